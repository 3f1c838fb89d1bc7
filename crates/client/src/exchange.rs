//! One question and its answer.

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
use crate::error::{ClientError, Refusal};
use crate::path::Path;
use crate::transport::{Body, BoxError, Transport};

/// The longest that an answer may take: a plan of a large fleet is computed in seconds.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// The longest answer that is read; a page of any list is far smaller.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A client of the Admin API; clones share its connections.
#[derive(Clone)]
pub struct Client {
    transport: Transport,
    answer_time_max: Duration,
    /// For whom it speaks, in the server's histories and audit log.
    principal: Option<HeaderValue>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("server", &self.transport.server()).finish_non_exhaustive()
    }
}

/// An answer that is not a refusal.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer<T> {
    /// 200, 201 or 202, which say different things on some routes.
    pub status: StatusCode,
    /// The version of what was answered, to be given back with the next change of it.
    pub etag: Option<String>,
    /// What was answered.
    pub value: T,
}

impl<T> Answer<T> {
    /// Whether the thing is new.
    pub fn is_created(&self) -> bool {
        self.status == StatusCode::CREATED
    }
}

impl Client {
    /// A client of the server that `context` names. Nothing is sent yet.
    pub fn new(context: &Context) -> Result<Client, ClientError> {
        Ok(Client::with(Transport::network(context)?))
    }

    /// A client of a service in this process, such as the frontend's router.
    pub fn in_process<S, B>(service: S) -> Client
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Client::with(Transport::in_process(service))
    }

    fn with(transport: Transport) -> Client {
        Client { transport, answer_time_max: ANSWER_TIME_MAX, principal: None }
    }

    /// The same client with another limit for each answer.
    #[must_use]
    pub fn answer_within(mut self, limit: Duration) -> Client {
        self.answer_time_max = limit;
        self
    }

    /// The same client, speaking for this person: histories and the audit log name both. What headers cannot carry is
    /// escaped.
    #[must_use]
    pub fn speaking_for(&self, person: &str) -> Client {
        let escaped = utf8_percent_encode(person, CONTROLS).to_string();
        Client { principal: HeaderValue::from_str(&escaped).ok(), ..self.clone() }
    }

    /// Whatever the server answers to a GET of this path with its query.
    pub async fn document(&self, path: &str) -> Result<serde_json::Value, ClientError> {
        Ok(self.get_at(path).await?.value)
    }

    /// The server's address, for sentences.
    pub fn server(&self) -> &str {
        self.transport.server()
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &Path) -> Result<Answer<T>, ClientError> {
        self.get_at(&path.text()).await
    }

    pub(crate) async fn get_at<T: DeserializeOwned>(&self, path: &str) -> Result<Answer<T>, ClientError> {
        self.ask(Method::GET, path, Bytes::new(), None).await
    }

    pub(crate) async fn put<T: DeserializeOwned>(
        &self,
        path: &Path,
        body: &(impl Serialize + ?Sized),
        if_match: Option<&str>,
    ) -> Result<Answer<T>, ClientError> {
        self.ask(Method::PUT, &path.text(), self.json(body)?, if_match).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &Path,
        body: &(impl Serialize + ?Sized),
    ) -> Result<Answer<T>, ClientError> {
        self.ask(Method::POST, &path.text(), self.json(body)?, None).await
    }

    /// A POST without a body.
    pub(crate) async fn post_empty<T: DeserializeOwned>(
        &self,
        path: &Path,
    ) -> Result<Answer<T>, ClientError> {
        self.ask(Method::POST, &path.text(), Bytes::new(), None).await
    }

    pub(crate) async fn delete(&self, path: &Path) -> Result<(), ClientError> {
        let answer: Answer<serde::de::IgnoredAny> =
            self.ask(Method::DELETE, &path.text(), Bytes::new(), None).await?;
        drop(answer);
        Ok(())
    }

    pub(crate) fn json(&self, body: &(impl Serialize + ?Sized)) -> Result<Bytes, ClientError> {
        let text = serde_json::to_vec(body).map_err(|error| self.garbled("the request", &error))?;
        Ok(text.into())
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        if_match: Option<&str>,
    ) -> Result<Answer<T>, ClientError> {
        let (head, body) = self.exchange(method, path, body, if_match).await?;
        let value = self.read(path, &body)?;
        let etag = head.headers.get(header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        Ok(Answer { status: head.status, etag, value })
    }

    /// One request and its whole answer, which is no refusal.
    pub(crate) async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        if_match: Option<&str>,
    ) -> Result<(http::response::Parts, Bytes), ClientError> {
        let limit = self.answer_time_max;
        let exchange = async {
            let answer = self.send(method, path, body, if_match, HeaderMap::new()).await?;
            let (head, body) = answer.into_parts();
            let body = read_all(body).await.map_err(|error| ClientError::Unreachable {
                server: self.server().to_owned(),
                why: format!("its answer broke off: {error}"),
            })?;
            Ok::<_, ClientError>((head, body))
        };
        let (head, body) = tokio::time::timeout(limit, exchange)
            .await
            .map_err(|_| ClientError::TooSlow { server: self.server().to_owned(), limit })??;
        match head.status.is_success() {
            true => Ok((head, body)),
            false => Err(ClientError::Refused(Refusal::read(head.status, &body))),
        }
    }

    pub(crate) fn read<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|error| self.garbled(path, &error))
    }

    /// Sends one request; the caller reads the answer, whatever its status, and minds the time.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        if_match: Option<&str>,
        more: HeaderMap,
    ) -> Result<Response<Body>, ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::USER_AGENT, concat!("shipshape/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, "application/json")
            // One for each request, so that its line in the server's log and the audit log can be found.
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
        let mut request = request.body(Full::new(body)).map_err(|error| self.garbled(path, &error))?;
        request.headers_mut().extend(more);
        self.transport.send(request).await
    }

    pub(crate) fn garbled(&self, what: &str, why: &dyn std::fmt::Display) -> ClientError {
        ClientError::Garbled { server: self.server().to_owned(), what: what.to_owned(), why: why.to_string() }
    }
}

/// The whole of an answer.
pub(crate) async fn read_all(mut body: Body) -> Result<Bytes, BoxError> {
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            if whole.len() + data.len() > ANSWER_BYTES_MAX {
                return Err("it is longer than any answer of ours".into());
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.into())
}
