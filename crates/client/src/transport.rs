//! How bytes get to the server: over the network, or straight into a router in this process.

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

use crate::context::{Context, ContextError, Credential, is_protected};
use crate::error::ClientError;

/// A server that has not accepted a connection by then is away.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Connections to one server that are kept; the command line needs one or two.
const IDLE_MAX: usize = 8;

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Takes requests to the server.
#[derive(Clone)]
pub(crate) enum Transport {
    Network(Box<Network>),
    InProcess(BoxCloneSyncService<Request<Full<Bytes>>, Response<Body>, BoxError>),
}

/// A server on the network, and what is said to it with each request.
#[derive(Clone)]
pub(crate) struct Network {
    server: String,
    base: Uri,
    http: hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    authorization: Option<HeaderValue>,
}

impl Transport {
    /// To the server of `context`.
    pub(crate) fn network(context: &Context) -> Result<Transport, ContextError> {
        let wrong = || ContextError::Address { server: context.server.clone() };
        let server = context.server.trim_end_matches('/').to_owned();
        let base: Uri = server.parse().map_err(|_| wrong())?;
        let secure = match base.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(wrong()),
        };
        let has_user = base.authority().is_some_and(|authority| authority.as_str().contains('@'));
        let is_bare = matches!(base.path(), "" | "/") && base.query().is_none();
        if base.host().is_none_or(str::is_empty) || has_user || !is_bare {
            return Err(wrong());
        }
        // A context may say that a server of this very machine is trusted without TLS; no other is.
        if !context.credential.is_none() && !is_protected(&base) {
            return Err(ContextError::Unprotected { server });
        }
        if secure && context.authority.is_none() {
            return Err(ContextError::NoAuthority { server });
        }
        let authorization = match &context.credential {
            Credential::Token(token) => {
                let value = HeaderValue::from_str(&format!("Bearer {}", token.expose().trim()));
                let mut value = value.map_err(|_| ContextError::NotPem {
                    what: "bearer token",
                    why: "it holds characters that no token has".to_owned(),
                })?;
                value.set_sensitive(true);
                Some(value)
            }
            Credential::None | Credential::Certificate { .. } => None,
        };
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(CONNECT_TIME_MAX));
        connector.set_nodelay(true);
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(context.tls()?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(IDLE_MAX)
            .build(connector);
        Ok(Transport::Network(Box::new(Network { server, base, http, authorization })))
    }

    /// To a service in this process.
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

    /// The server's name in sentences.
    pub(crate) fn server(&self) -> &str {
        match self {
            Transport::Network(network) => &network.server,
            Transport::InProcess(_) => "of this process",
        }
    }

    /// One request; returns when the head of its answer is there.
    pub(crate) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Body>, ClientError> {
        match self {
            Transport::Network(network) => {
                let Network { server, base, http, authorization } = network.as_ref();
                let unreachable = |why: String| ClientError::Unreachable { server: server.clone(), why };
                let mut parts = base.clone().into_parts();
                parts.path_and_query = request.uri().path_and_query().cloned();
                *request.uri_mut() =
                    Uri::from_parts(parts).map_err(|error| unreachable(error.to_string()))?;
                if let Some(authorization) = authorization {
                    request.headers_mut().insert(http::header::AUTHORIZATION, authorization.clone());
                }
                let answer = http.request(request).await.map_err(|error| unreachable(cause(&error)))?;
                Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
            }
            Transport::InProcess(service) => service.clone().oneshot(request).await.map_err(|error| {
                ClientError::Unreachable { server: self.server().to_owned(), why: error.to_string() }
            }),
        }
    }
}

/// What lies at the bottom of an error: the layers above it say only "client error" and "connect error".
pub(crate) fn cause(error: &(dyn StdError + 'static)) -> String {
    let mut deepest = error;
    while let Some(next) = deepest.source() {
        deepest = next;
    }
    // An I/O error keeps what it wraps to itself.
    let mut text = deepest.to_string();
    if let Some(io) = deepest.downcast_ref::<std::io::Error>() {
        text = match io.kind() {
            std::io::ErrorKind::ConnectionRefused => "nobody listens there".to_owned(),
            std::io::ErrorKind::TimedOut => "nobody answers there".to_owned(),
            std::io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
            _ => text,
        };
    }
    if text.contains("UnknownIssuer") || text.contains("BadSignature") || text.contains("InvalidCertificate")
    {
        text = format!("its certificate is not one that the context's authority signed for it ({text})");
    }
    text
}
