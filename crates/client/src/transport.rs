//! Transport of requests: over the network, or to a router in this process.

use std::error::Error as StdError;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt as _};

use crate::context::{Context, ContextError, Credential, is_secure_or_local};
use crate::error::ClientError;

/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Idle connections in the pool; the command line needs one or two.
const IDLE_CONNECTIONS_MAX: usize = 8;

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Transport to the server.
#[derive(Clone)]
pub(crate) enum Transport {
    Network(Box<NetworkTransport>),
    InProcess(BoxCloneSyncService<Request<Full<Bytes>>, Response<Body>, BoxError>),
}

/// Server on the network, with the authorization header of each request.
#[derive(Clone)]
pub(crate) struct NetworkTransport {
    server: String,
    base: Uri,
    http: hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    authorization: Option<HeaderValue>,
}

impl Transport {
    /// Transport to the server of `context`.
    pub(crate) fn network(context: &Context) -> Result<Transport, ContextError> {
        let invalid = || ContextError::InvalidAddress { server: context.server.clone() };
        let server = context.server.trim_end_matches('/').to_owned();
        let base: Uri = server.parse().map_err(|_| invalid())?;
        let secure = match base.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(invalid()),
        };
        let has_user = base.authority().is_some_and(|authority| authority.as_str().contains('@'));
        let is_bare = matches!(base.path(), "" | "/") && base.query().is_none();
        if base.host().is_none_or(str::is_empty) || has_user || !is_bare {
            return Err(invalid());
        }
        // A credential may be sent without TLS only to a server on this machine.
        if !context.credential.is_none() && !is_secure_or_local(&base) {
            return Err(ContextError::PlainHttp { server });
        }
        if secure && context.authority.is_none() {
            return Err(ContextError::MissingAuthority { server });
        }
        let authorization = match &context.credential {
            Credential::Token(token) => {
                let value = HeaderValue::from_str(&format!("Bearer {}", token.expose().trim()));
                let mut value = value.map_err(|_| ContextError::Invalid {
                    what: "bearer token",
                    cause: "it contains characters that are not allowed in a header".to_owned(),
                })?;
                value.set_sensitive(true);
                Some(value)
            }
            Credential::None | Credential::Certificate { .. } => None,
        };
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(context.tls()?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(connector);
        Ok(Transport::Network(Box::new(NetworkTransport { server, base, http, authorization })))
    }

    /// Transport to a service in this process.
    pub(crate) fn in_process<S, B>(service: S) -> Transport
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let service = service
            .map_response(|response: Response<B>| {
                response.map(|body| body.map_err(Into::into).boxed_unsync())
            })
            .map_err(Into::into);
        Transport::InProcess(BoxCloneSyncService::new(service))
    }

    /// Address of the server, for messages.
    pub(crate) fn server(&self) -> &str {
        match self {
            Transport::Network(network) => &network.server,
            Transport::InProcess(_) => "in this process",
        }
    }

    /// Sends one request; returns when the response head has arrived.
    pub(crate) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Body>, ClientError> {
        match self {
            Transport::Network(network) => {
                let NetworkTransport { server, base, http, authorization } = network.as_ref();
                let unreachable = |cause: String| ClientError::Unreachable { server: server.clone(), cause };
                let mut parts = base.clone().into_parts();
                parts.path_and_query = request.uri().path_and_query().cloned();
                *request.uri_mut() =
                    Uri::from_parts(parts).map_err(|error| unreachable(error.to_string()))?;
                if let Some(authorization) = authorization {
                    request.headers_mut().insert(http::header::AUTHORIZATION, authorization.clone());
                }
                let response =
                    http.request(request).await.map_err(|error| unreachable(root_cause(&error)))?;
                Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
            }
            Transport::InProcess(service) => service.clone().oneshot(request).await.map_err(|error| {
                ClientError::Unreachable { server: self.server().to_owned(), cause: error.to_string() }
            }),
        }
    }
}

/// Text of the innermost error: the layers above it have only generic texts such as "client error".
fn root_cause(error: &(dyn StdError + 'static)) -> String {
    let mut deepest = error;
    while let Some(next) = deepest.source() {
        deepest = next;
    }
    // The text of an I/O error is not specific to connections.
    let mut text = deepest.to_string();
    if let Some(io) = deepest.downcast_ref::<std::io::Error>() {
        text = match io.kind() {
            std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            std::io::ErrorKind::TimedOut => "connection timed out".to_owned(),
            std::io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
            _ => text,
        };
    }
    if text.contains("UnknownIssuer") || text.contains("BadSignature") || text.contains("InvalidCertificate")
    {
        text = format!("its certificate is not signed by the certificate authority of the context ({text})");
    }
    text
}
