//! A scripted service for tests: responses in their order or by a function, and the requests that were sent.

mod memory_cloud;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use api::secret::Secret;
use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::Headers;
use azure_core::http::{AsyncRawResponse, Body, HttpClient, Request, StatusCode};
use cloud::ResourceId;
use serde_json::{Value, json};

use crate::client::AzureClient;
use crate::settings::{ServiceCredential, Settings};

pub(crate) use memory_cloud::{MemoryCloud, requests};

pub(crate) const SECRET: &str = "hunter2-hunter2";

/// A request that was sent.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) method: String,
    /// Scheme and authority.
    pub(crate) origin: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) text: String,
}

impl Sent {
    /// The body as JSON; `Null` when it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(String::as_str).unwrap_or_default()
    }

    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    fn is_token_request(&self) -> bool {
        self.path.ends_with("/oauth2/v2.0/token") || self.path.ends_with("/identity/oauth2/token")
    }
}

/// A response, or none.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Response {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    },
    /// Nothing listens there.
    Refused,
    /// The connection broke after the request was sent.
    Broken,
}

impl Reply {
    pub(crate) fn json(status: u16, body: Value) -> Reply {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        Reply::Response { status, headers: Vec::new(), body }
    }

    pub(crate) fn text(status: u16, body: &str) -> Reply {
        Reply::Response { status, headers: Vec::new(), body: body.as_bytes().to_vec() }
    }

    pub(crate) fn error(status: u16, code: &str) -> Reply {
        let message = format!("It is \"{code}\".\r\nSee the log.");
        Reply::json(status, json!({"error": {"code": code, "message": message}}))
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Reply {
        if let Reply::Response { headers, .. } = &mut self {
            headers.push((name, value.to_owned()));
        }
        self
    }

    fn token(number: usize) -> Reply {
        Reply::json(
            200,
            json!({"token_type": "Bearer", "expires_in": 3600, "access_token": format!("token-{number}")}),
        )
    }
}

type Responder = dyn Fn(&Sent) -> Reply + Send + Sync;

#[derive(Default)]
struct State {
    sent: Vec<Sent>,
    token_requests: Vec<Sent>,
    replies: VecDeque<Reply>,
    token_replies: VecDeque<Reply>,
}

/// A service whose responses a test has written.
#[derive(Clone)]
pub(crate) struct ScriptedService {
    state: Arc<Mutex<State>>,
    responder: Arc<Responder>,
}

impl std::fmt::Debug for ScriptedService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedService").finish_non_exhaustive()
    }
}

impl ScriptedService {
    /// Responses in their order; more requests than responses are a mistake of the test.
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> ScriptedService {
        let service = ScriptedService::by(|sent| panic!("unexpected: {}", sent.line()));
        service.state.lock().unwrap().replies.extend(replies);
        service
    }

    /// Responses by a function.
    pub(crate) fn by(responder: impl Fn(&Sent) -> Reply + Send + Sync + 'static) -> ScriptedService {
        ScriptedService { state: Arc::default(), responder: Arc::new(responder) }
    }

    /// Responses to token requests, before the usual ones.
    pub(crate) fn with_token_replies(self, replies: impl IntoIterator<Item = Reply>) -> ScriptedService {
        self.state.lock().unwrap().token_replies.extend(replies);
        self
    }

    pub(crate) fn client(&self) -> AzureClient {
        self.client_with(settings())
    }

    pub(crate) fn client_with(&self, settings: Settings) -> AzureClient {
        AzureClient::with_http(settings, Arc::new(self.clone())).unwrap()
    }

    /// The requests that were sent, without those for tokens.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.state.lock().unwrap().sent.clone()
    }

    /// Method and path of each request.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.sent().iter().map(Sent::line).collect()
    }

    pub(crate) fn token_requests(&self) -> Vec<Sent> {
        self.state.lock().unwrap().token_requests.clone()
    }
}

/// The settings of a client of the scripted service.
pub(crate) fn settings() -> Settings {
    let registry =
        ResourceId::group("s", "ours").sibling("Microsoft.ContainerRegistry", "registries", "images");
    let credential = ServiceCredential::ClientSecret {
        client_id: "app".to_owned(),
        secret: Secret::new(SECRET.to_owned()),
    };
    Settings::public("contoso.com", "https://keys.vault.azure.net", registry, credential)
}

#[async_trait::async_trait]
impl HttpClient for ScriptedService {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let Body::Bytes(body) = request.body() else { panic!("a stream") };
        let url = request.url();
        let sent = Sent {
            method: request.method().as_str().to_owned(),
            origin: url.origin().ascii_serialization(),
            path: url.path().to_owned(),
            query: url.query().unwrap_or_default().to_owned(),
            headers: request
                .headers()
                .iter()
                .map(|(name, value)| (name.as_str().to_owned(), value.as_str().to_owned()))
                .collect(),
            text: String::from_utf8_lossy(body).into_owned(),
        };
        let reply = {
            let mut state = self.state.lock().unwrap();
            if sent.is_token_request() {
                state.token_requests.push(sent.clone());
                let number = state.token_requests.len();
                Some(state.token_replies.pop_front().unwrap_or_else(|| Reply::token(number)))
            } else {
                state.sent.push(sent.clone());
                state.replies.pop_front()
            }
        };
        // Others get their turn, as on a network.
        tokio::task::yield_now().await;
        match reply.unwrap_or_else(|| (self.responder)(&sent)) {
            Reply::Refused => Err(Error::with_message(ErrorKind::Connection, "refused")),
            Reply::Broken => Err(Error::with_message(ErrorKind::Io, "broken")),
            Reply::Response { status, headers, body } => {
                let mut all = Headers::new();
                for (name, value) in headers {
                    all.insert(name, value);
                }
                Ok(AsyncRawResponse::from_bytes(StatusCode::from(status), all, body))
            }
        }
    }
}
