//! A proxy before moto. It adds idempotency tokens of launches and instances that become visible late, which moto lacks; it counts
//! calls, and injects faults.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// What happens to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// AWS responds with an error, before any effect.
    Error(u16, &'static str),
    /// Something before AWS responds with a page, before any effect.
    Html(u16),
    /// The call has its effect, and the response breaks off.
    LostResponse,
    /// The process ends at the call, before its effect or after it.
    Crash { after_effect: bool },
}

#[derive(Debug)]
struct Rule {
    /// The action, or none for all.
    action: Option<&'static str>,
    /// Calls that are spared first.
    spared: usize,
    fault: Fault,
}

/// The fields of a call's form.
type Form = HashMap<String, String>;

#[derive(Debug, Default)]
struct Inner {
    /// The actions in their order.
    calls: Vec<String>,
    rules: VecDeque<Rule>,
    /// Body and response of each launch, by its token.
    launches: HashMap<String, (Bytes, Bytes)>,
    /// How many descriptions do not show an instance that was launched.
    late_by: usize,
    /// The instances that are not shown, each with its Machine's name and the descriptions that are left.
    hidden: HashMap<String, (String, usize)>,
    /// Bodies of launches, as they were sent.
    launch_forms: Vec<Form>,
}

#[derive(Clone)]
struct Shared {
    upstream: String,
    http: Client<HttpConnector, Full<Bytes>>,
    inner: Arc<Mutex<Inner>>,
    crashed: Arc<Notify>,
}

/// A proxy on a port of its own.
pub(crate) struct Proxy {
    pub(crate) url: String,
    shared: Shared,
    _server: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn before(upstream: &str) -> Proxy {
        let http = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
        let (inner, crashed) = (Arc::default(), Arc::default());
        let shared = Shared { upstream: upstream.to_owned(), http, inner, crashed };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(handle).with_state(shared.clone());
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Proxy { url, shared, _server: server }
    }

    fn inner<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(&mut self.shared.inner.lock().unwrap())
    }

    /// Lets the next call of an action fail.
    pub(crate) fn fail_next(&self, action: &'static str, fault: Fault) {
        self.inner(|it| it.rules.push_back(Rule { action: Some(action), spared: 0, fault }));
    }

    /// Ends the process at a call, counted from zero and from now.
    pub(crate) fn crash_at(&self, call: usize, after_effect: bool) {
        let fault = Fault::Crash { after_effect };
        self.inner(|it| it.rules.push_back(Rule { action: None, spared: call, fault }));
    }

    /// Waits until a call meets [`Proxy::crash_at`].
    pub(crate) async fn crashed(&self) {
        self.shared.crashed.notified().await;
    }

    /// Hides what is launched from now on in so many descriptions.
    pub(crate) fn show_launches_late(&self, descriptions: usize) {
        self.inner(|it| it.late_by = descriptions);
    }

    /// The actions since the last question.
    pub(crate) fn take_calls(&self) -> Vec<String> {
        self.inner(|it| std::mem::take(&mut it.calls))
    }

    /// The forms of all launches, repetitions included.
    pub(crate) fn launches(&self) -> Vec<Form> {
        self.inner(|it| it.launch_forms.clone())
    }
}

async fn handle(State(shared): State<Shared>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let form: Form = form_urlencoded::parse(&body).into_owned().collect();
    let action = form.get("Action").cloned().unwrap_or_default();
    let fault = {
        let mut inner = shared.inner.lock().unwrap();
        inner.calls.push(action.clone());
        inner.fault(&action)
    };
    match fault {
        Some(Fault::Error(status, code)) => error(&form, status, code),
        Some(Fault::Html(status)) => {
            let page = "<html><head><title>Bad Gateway</title></head><body><h1>nginx</h1></body></html>";
            respond(status, "text/html", page.into())
        }
        Some(Fault::Crash { after_effect: false }) => shared.end().await,
        Some(Fault::Crash { after_effect: true }) => {
            shared.answer(&parts.headers, &form, &body).await;
            shared.end().await
        }
        Some(Fault::LostResponse) => {
            shared.answer(&parts.headers, &form, &body).await;
            let broken =
                futures_util::stream::once(async { Err::<Bytes, _>(std::io::Error::other("broken")) });
            Response::new(Body::from_stream(broken))
        }
        None => shared.answer(&parts.headers, &form, &body).await,
    }
}

impl Inner {
    fn fault(&mut self, action: &str) -> Option<Fault> {
        let at = self.rules.iter().position(|it| it.action.is_none_or(|wanted| wanted == action))?;
        let rule = &mut self.rules[at];
        if rule.spared > 0 {
            rule.spared -= 1;
            return None;
        }
        self.rules.remove(at).map(|it| it.fault)
    }

    /// The answer that the proxy gives in the place of moto.
    fn own_answer(&mut self, form: &Form, body: &Bytes) -> Option<Response<Body>> {
        match form.get("Action").map(String::as_str) {
            Some("RunInstances") => {
                self.launch_forms.push(form.clone());
                let (first, answer) = self.launches.get(form.get("ClientToken")?)?;
                Some(match first == body {
                    true => respond(200, "text/xml", answer.clone()),
                    false => error(form, 400, "IdempotentParameterMismatch"),
                })
            }
            Some("DescribeInstances") => {
                let id = form.get("InstanceId.1");
                let names: Vec<&String> = (1..9)
                    .filter(|it| form.get(&format!("Filter.{it}.Name")).is_some_and(|it| it == "tag:Name"))
                    .filter_map(|it| form.get(&format!("Filter.{it}.Value.1")))
                    .collect();
                let is_meant = |it: &str, name: &str| {
                    id.is_some_and(|id| id == it) || names.iter().any(|wanted| *wanted == name)
                };
                let (_, (_, left)) = self
                    .hidden
                    .iter_mut()
                    .find(|(it, (name, left))| *left > 0 && is_meant(it.as_str(), name))?;
                *left -= 1;
                Some(match id {
                    Some(_) => error(form, 400, "InvalidInstanceID.NotFound"),
                    None => respond(
                        200,
                        "text/xml",
                        "<DescribeInstancesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>0</requestId>\
                         <reservationSet/></DescribeInstancesResponse>"
                            .into(),
                    ),
                })
            }
            _ => None,
        }
    }

    /// Notes what was launched.
    fn note_launch(&mut self, form: &Form, body: &Bytes, answer: &Bytes) {
        let text = String::from_utf8_lossy(answer);
        let id = text.split_once("<instanceId>").and_then(|(_, it)| it.split_once("</instanceId>"));
        let (Some((id, _)), Some(token)) = (id, form.get("ClientToken")) else { return };
        self.launches.insert(token.clone(), (body.clone(), answer.clone()));
        let name = (1..60).find_map(|it| {
            let key = form.get(&format!("TagSpecification.1.Tag.{it}.Key"))?;
            if key == "Name" { form.get(&format!("TagSpecification.1.Tag.{it}.Value")) } else { None }
        });
        self.hidden.insert(id.to_owned(), (name.cloned().unwrap_or_default(), self.late_by));
    }
}

impl Shared {
    /// The process that has sent the call is gone, so nobody waits for a response.
    async fn end(&self) -> Response<Body> {
        self.crashed.notify_one();
        std::future::pending().await
    }

    async fn answer(&self, headers: &HeaderMap, form: &Form, body: &Bytes) -> Response<Body> {
        // moto's threads race, which AWS does not.
        let turn = turn(&self.upstream);
        let _guard = turn.lock().await;
        if let Some(answer) = self.inner.lock().unwrap().own_answer(form, body) {
            return answer;
        }
        let mut request = Request::post(format!("{}/", self.upstream));
        for (name, value) in headers.iter().filter(|(name, _)| *name != "host") {
            request = request.header(name, value);
        }
        let response = self.http.request(request.body(Full::new(body.clone())).unwrap()).await.unwrap();
        let (parts, answer) = response.into_parts();
        let answer = answer.collect().await.unwrap().to_bytes();
        let is_launch = form.get("Action").is_some_and(|it| it == "RunInstances");
        if is_launch && parts.status.is_success() {
            self.inner.lock().unwrap().note_launch(form, body, &answer);
        }
        respond(parts.status.as_u16(), "text/xml", answer)
    }
}

/// The lock under which a server is called.
fn turn(upstream: &str) -> Arc<tokio::sync::Mutex<()>> {
    static TURNS: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>> = Mutex::new(BTreeMap::new());
    TURNS.lock().unwrap().entry(upstream.to_owned()).or_default().clone()
}

fn respond(status: u16, content_type: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("content-type", content_type.parse().unwrap());
    response
}

/// An error as the called service writes it.
fn error(form: &Form, status: u16, code: &str) -> Response<Body> {
    let is_ec2 = form.get("Version").is_some_and(|it| it == "2016-11-15");
    let text = match is_ec2 {
        true => format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code><Message>Injected.</Message></Error>\
             </Errors><RequestID>0</RequestID></Response>"
        ),
        false => format!(
            "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>Injected.</Message></Error><RequestId>0</RequestId>\
             </ErrorResponse>"
        ),
    };
    respond(status, "text/xml", text.into())
}
