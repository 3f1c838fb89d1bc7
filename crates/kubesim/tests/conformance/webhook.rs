//! A server of admission webhooks for both API servers. The path of a webhook says how it answers; what it was sent is
//! kept by namespace.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use serve::pki::{CertificateAuthority, CertificateRequest, Purpose, Validity};
use serve::tls::{self, ClientCertificates};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Requests by namespace.
type Reviews = Arc<Mutex<HashMap<String, Vec<Value>>>>;

/// The server.
pub(crate) struct WebhookServer {
    port: u16,
    authority: String,
    reviews: Reviews,
    _tasks: JoinSet<()>,
}

/// The server, started on first use.
pub(crate) async fn server() -> &'static WebhookServer {
    static SERVER: OnceLock<WebhookServer> = OnceLock::new();
    if let Some(server) = SERVER.get() {
        return server;
    }
    let started = start().await;
    SERVER.get_or_init(|| started)
}

async fn start() -> WebhookServer {
    let authority = CertificateAuthority::generate("webhooks", Validity::UNLIMITED).unwrap();
    let request = CertificateRequest {
        common_name: "webhook",
        organization: None,
        alternative_names: vec!["127.0.0.1".to_owned(), "hook.default.svc".to_owned()],
        purpose: Purpose::Server,
        validity: Validity::UNLIMITED,
    };
    let pair = authority.issue(&request).unwrap();
    let certificate = tls::fixed_certificate(&pair.certificate, &pair.key).unwrap();
    let config = tls::server_config(certificate, ClientCertificates::NotRequested).unwrap();
    let mut config = config.as_ref().clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let reviews = Reviews::default();
    let mut tasks = JoinSet::new();
    tasks.spawn(accept(listener, TlsAcceptor::from(Arc::new(config)), reviews.clone()));
    WebhookServer { port, authority: STANDARD.encode(authority.certificate()), reviews, _tasks: tasks }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, reviews: Reviews) {
    let mut tasks = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, reviews) = (acceptor.clone(), reviews.clone());
        tasks.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| respond(request, reviews.clone()));
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn respond(request: Request<Incoming>, reviews: Reviews) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body =
        request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let asked = &review["request"];
    let namespace = asked["namespace"].as_str().unwrap_or_default().to_owned();
    if path == "/record" {
        reviews.lock().unwrap().entry(namespace).or_default().push(review.clone());
    }
    if path == "/slow" {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let answer = |response: Value| {
        let mut whole =
            json!({ "apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response });
        if whole["response"]["uid"].is_null() {
            whole["response"]["uid"] = asked["uid"].clone();
        }
        Response::new(Full::new(Bytes::from(whole.to_string())))
    };
    let patch = |operations: Value| json!({ "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string()) });
    let mark = |key: &str, value: &str| {
        let mut operations = Vec::new();
        if asked["object"]["metadata"]["annotations"].is_null() {
            operations.push(json!({ "op": "add", "path": "/metadata/annotations", "value": {} }));
        }
        operations
            .push(json!({ "op": "add", "path": format!("/metadata/annotations/{key}"), "value": value }));
        patch(Value::Array(operations))
    };
    let calls = asked["object"]["metadata"]["annotations"]["calls"].as_str().unwrap_or_default().len();
    Ok(match path.as_str() {
        "/mark" => answer(mark("marked", "yes")),
        "/count" => answer(mark("calls", &"x".repeat(calls + 1))),
        "/deny" => answer(
            json!({ "allowed": false, "status": { "message": "the colour is wrong", "code": 403, "reason": "Forbidden" } }),
        ),
        "/deny-silently" => answer(json!({ "allowed": false })),
        "/deny-reason" => answer(
            json!({ "allowed": false, "status": { "reason": "Because", "code": 200, "details": { "name": "x" } } }),
        ),
        "/warn" => answer(json!({ "allowed": true, "warnings": ["mind the gap"] })),
        "/warn-and-deny" => answer(json!({ "allowed": false, "warnings": ["mind the gap"] })),
        "/wrong-uid" => answer(json!({ "allowed": true, "uid": "other" })),
        "/patch-without-type" => answer(json!({ "allowed": true, "patch": STANDARD.encode("[]") })),
        "/bad-patch" => answer(patch(json!([{ "op": "add", "path": "/metadata/labels/a", "value": 5 }]))),
        "/empty" => Response::new(Full::new(Bytes::from_static(
            br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
        ))),
        "/500" => {
            let mut response = Response::new(Full::new(Bytes::from_static(b"broken")));
            *response.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
            response
        }
        _ => answer(json!({ "allowed": true })),
    })
}

impl WebhookServer {
    /// The client configuration of the webhook at this path.
    pub(crate) fn client(&self, path: &str) -> Value {
        json!({ "url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": self.authority })
    }

    /// What was sent about objects of a namespace to `/record`.
    pub(crate) fn take(&self, namespace: &str) -> Vec<Value> {
        self.reviews.lock().unwrap().remove(namespace).unwrap_or_default()
    }
}
