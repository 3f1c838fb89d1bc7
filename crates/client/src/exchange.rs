//! HTTP requests and their responses.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use percent_encoding::{CONTROLS, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::Service;
use uuid::Uuid;

use crate::context::Context;
use crate::error::{ClientError, ErrorResponse};
use crate::path::ApiPath;
use crate::transport::{Body, BoxError, Transport};

/// Timeout of a request. The server computes the plan of a large fleet in seconds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest response body; a page of any list is far smaller.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// Client of the Admin and ARM APIs; clones share its connections.
#[derive(Clone)]
pub struct Client {
    transport: Transport,
    timeout: Duration,
    /// Person that the server names in histories and the audit log.
    principal: Option<HeaderValue>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("server", &self.transport.server()).finish_non_exhaustive()
    }
}

/// Successful response with its parsed body.
#[derive(Debug, Clone, PartialEq)]
pub struct TypedResponse<T> {
    /// 200, 201 or 202, which differ in meaning on some routes.
    pub status: StatusCode,
    /// Version of the resource, for the `if_match` of its next change.
    pub etag: Option<String>,
    /// Parsed body.
    pub value: T,
}

impl<T> TypedResponse<T> {
    /// Whether the request created the resource.
    pub fn is_created(&self) -> bool {
        self.status == StatusCode::CREATED
    }
}

impl Client {
    /// Creates a client of the server of `context`, without connecting.
    pub fn new(context: &Context) -> Result<Client, ClientError> {
        Ok(Client::with_transport(Transport::network(context)?))
    }

    /// Creates a client of a service in this process, such as the frontend's router.
    pub fn in_process<S, B>(service: S) -> Client
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Client::with_transport(Transport::in_process(service))
    }

    fn with_transport(transport: Transport) -> Client {
        Client { transport, timeout: RESPONSE_TIMEOUT, principal: None }
    }

    /// Sets the timeout of each request.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Client {
        self.timeout = timeout;
        self
    }

    /// Returns a client that acts on behalf of `person`: histories and the audit log name both. Characters that a header
    /// cannot carry are escaped.
    #[must_use]
    pub fn on_behalf_of(&self, person: &str) -> Client {
        let escaped = utf8_percent_encode(person, CONTROLS).to_string();
        Client { principal: HeaderValue::from_str(&escaped).ok(), ..self.clone() }
    }

    /// Gets a path with its query, and returns the response body as JSON.
    pub async fn get_json(&self, path: &str) -> Result<serde_json::Value, ClientError> {
        Ok(self.get_at(path).await?.value)
    }

    /// Address of the server, for messages.
    pub fn server(&self) -> &str {
        self.transport.server()
    }

    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &ApiPath,
    ) -> Result<TypedResponse<T>, ClientError> {
        self.get_at(&path.to_uri()).await
    }

    pub(crate) async fn get_at<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<TypedResponse<T>, ClientError> {
        self.request(Method::GET, path, Bytes::new(), None).await
    }

    pub(crate) async fn put<T: DeserializeOwned>(
        &self,
        path: &ApiPath,
        body: &(impl Serialize + ?Sized),
        if_match: Option<&str>,
    ) -> Result<TypedResponse<T>, ClientError> {
        self.request(Method::PUT, &path.to_uri(), self.json(body)?, if_match).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &ApiPath,
        body: &(impl Serialize + ?Sized),
    ) -> Result<TypedResponse<T>, ClientError> {
        self.request(Method::POST, &path.to_uri(), self.json(body)?, None).await
    }

    /// A POST without a body.
    pub(crate) async fn post_empty<T: DeserializeOwned>(
        &self,
        path: &ApiPath,
    ) -> Result<TypedResponse<T>, ClientError> {
        self.request(Method::POST, &path.to_uri(), Bytes::new(), None).await
    }

    pub(crate) async fn delete(&self, path: &ApiPath) -> Result<(), ClientError> {
        let response: TypedResponse<serde::de::IgnoredAny> =
            self.request(Method::DELETE, &path.to_uri(), Bytes::new(), None).await?;
        drop(response);
        Ok(())
    }

    pub(crate) fn json(&self, body: &(impl Serialize + ?Sized)) -> Result<Bytes, ClientError> {
        let json = serde_json::to_vec(body).map_err(|error| self.invalid_response("the request", &error))?;
        Ok(json.into())
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        if_match: Option<&str>,
    ) -> Result<TypedResponse<T>, ClientError> {
        let (head, body) = self.exchange(method, path, body, if_match).await?;
        let value = self.parse(path, &body)?;
        let etag = head.headers.get(header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        Ok(TypedResponse { status: head.status, etag, value })
    }

    /// Sends one request and reads its whole response; an error status is an error.
    pub(crate) async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        if_match: Option<&str>,
    ) -> Result<(http::response::Parts, Bytes), ClientError> {
        let timeout = self.timeout;
        let exchange = async {
            let response = self.send(method, path, body, if_match, HeaderMap::new()).await?;
            let (head, body) = response.into_parts();
            let body = read_body(body).await.map_err(|error| ClientError::Unreachable {
                server: self.server().to_owned(),
                cause: format!("the response was interrupted: {error}"),
            })?;
            Ok::<_, ClientError>((head, body))
        };
        let (head, body) = tokio::time::timeout(timeout, exchange)
            .await
            .map_err(|_| ClientError::TimedOut { server: self.server().to_owned(), timeout })??;
        match head.status.is_success() {
            true => Ok((head, body)),
            false => Err(ClientError::Response(ErrorResponse::parse(head.status, &body))),
        }
    }

    pub(crate) fn parse<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|error| self.invalid_response(path, &error))
    }

    /// Sends one request. The caller checks the status, reads the body and applies a timeout.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        if_match: Option<&str>,
        headers: HeaderMap,
    ) -> Result<Response<Body>, ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::USER_AGENT, concat!("shipshape/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, "application/json")
            // Identifies the request in the server's log and the audit log.
            .header("x-ms-correlation-request-id", Uuid::new_v4().to_string());
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(etag) = if_match {
            request = request.header(header::IF_MATCH, etag);
        }
        if let Some(principal) = &self.principal {
            request = request.header("x-ms-client-principal-name", principal);
        }
        let mut request =
            request.body(Full::new(body)).map_err(|error| self.invalid_response(path, &error))?;
        request.headers_mut().extend(headers);
        self.transport.send(request).await
    }

    pub(crate) fn invalid_response(&self, request: &str, cause: &dyn std::fmt::Display) -> ClientError {
        ClientError::InvalidResponse {
            server: self.server().to_owned(),
            request: request.to_owned(),
            cause: cause.to_string(),
        }
    }
}

/// Reads a whole response body.
pub(crate) async fn read_body(mut body: Body) -> Result<Bytes, BoxError> {
    let mut content = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            if content.len() + data.len() > RESPONSE_BYTES_MAX {
                return Err(format!("the response is longer than {RESPONSE_BYTES_MAX} bytes").into());
            }
            content.extend_from_slice(&data);
        }
    }
    Ok(content.into())
}
