//! Rejected tokens of the vault: its library repeats a request that is answered by 401, with whatever token the credential has cached.
//! So the tokens are forgotten before the library asks.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::http::headers::{AUTHORIZATION, WWW_AUTHENTICATE};
use azure_core::http::{AsyncRawResponse, HttpClient, Request, StatusCode};

use crate::credential::Credentials;
use crate::headers::challenge_claims;

/// A transport that forgets the service's tokens when one is rejected. New ones answer the claims of the challenge.
#[derive(Debug)]
pub(crate) struct TokenRenewal {
    pub(crate) http: Arc<dyn HttpClient>,
    pub(crate) credentials: Arc<Credentials>,
}

#[async_trait]
impl HttpClient for TokenRenewal {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let generation = self.credentials.generation();
        let response = self.http.execute_request(request).await?;
        // The first request to a vault has no token: its challenge rejects none.
        let had_token = request.headers().get_optional_str(&AUTHORIZATION).is_some();
        if response.status() == StatusCode::Unauthorized && had_token {
            let challenge = response.headers().get_optional_str(&WWW_AUTHENTICATE);
            self.credentials.renew(generation, challenge.and_then(challenge_claims).as_deref());
        }
        Ok(response)
    }
}
