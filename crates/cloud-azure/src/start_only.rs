//! Starting an operation without waiting for it: the client of certificates pauses for as long as a vault asks before it returns, 30 s when
//! the vault does not say. Callers poll by themselves, so the response to the start asks for no pause.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::http::{AsyncRawResponse, HttpClient, Method, Request, StatusCode};
use bytes::Bytes;

/// The path segment of the request that starts the issuing of a certificate.
const CREATE: &str = "/create";

/// A transport whose responses to the start of an operation ask for no pause.
#[derive(Debug)]
pub(crate) struct StartOnly(pub(crate) Arc<dyn HttpClient>);

#[async_trait]
impl HttpClient for StartOnly {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let response = self.0.execute_request(request).await?;
        let is_start = request.method() == Method::Post && request.url().path().ends_with(CREATE);
        if !is_start || response.status() != StatusCode::Accepted {
            return Ok(response);
        }
        let (status, mut headers, body) = response.try_into_raw_response().await?.deconstruct();
        // The clients prefer this header to `Retry-After`.
        headers.insert("retry-after-ms", "0");
        Ok(AsyncRawResponse::from_bytes(status, headers, Bytes::from(body)))
    }
}
