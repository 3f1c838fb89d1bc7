//! What the metadata of each cloud are taken for, against a server that answers as their documents say, and as they do not.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::decide::{Notice, condition, provider_of};
use super::{CloudProvider, MetadataAddress, MetadataError, Notices};

/// A request that the server got: method, path with query, and headers.
type Received = (Method, String, HeaderMap);

/// A metadata service that gives prepared answers in their order, the last one again and again.
struct Service {
    address: MetadataAddress,
    script: Arc<Script>,
    _running: JoinSet<()>,
}

#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<(u16, String)>>,
    received: Mutex<Vec<Received>>,
}

impl Service {
    async fn answering(answers: &[(u16, &str)]) -> Service {
        let answers = answers.iter().map(|(status, body)| (*status, (*body).to_owned())).collect();
        let script = Arc::new(Script { answers: Mutex::new(answers), ..Script::default() });
        let routes = Router::new().fallback(answer).with_state(script.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/below/", listener.local_addr().unwrap()).parse().unwrap();
        let mut running = JoinSet::new();
        running.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Service { address, script, _running: running }
    }

    fn notices(&self, provider: CloudProvider) -> Notices {
        Notices::new(provider, self.address.clone())
    }

    /// Methods and paths of the requests.
    fn requests(&self) -> Vec<String> {
        let received = self.script.received.lock().unwrap();
        received.iter().map(|(method, path, _)| format!("{method} {path}")).collect()
    }

    /// The header of the request of this number.
    fn header(&self, request: usize, name: &str) -> Option<String> {
        let received = self.script.received.lock().unwrap();
        received[request].2.get(name).map(|value| value.to_str().unwrap().to_owned())
    }
}

async fn answer(State(script): State<Arc<Script>>, request: Request<Body>) -> Response<Body> {
    let path = request.uri().path_and_query().unwrap().to_string();
    script.received.lock().unwrap().push((request.method().clone(), path, request.headers().clone()));
    let mut answers = script.answers.lock().unwrap();
    let (status, body) = match answers.len() {
        1 => answers[0].clone(),
        _ => answers.pop_front().unwrap(),
    };
    Response::builder().status(StatusCode::from_u16(status).unwrap()).body(Body::from(body)).unwrap()
}

/// One look at a service with these answers.
async fn look(provider: CloudProvider, answers: &[(u16, &str)]) -> Result<Notice, MetadataError> {
    let service = Service::answering(answers).await;
    service.notices(provider).look().await
}

async fn failure(provider: CloudProvider, answers: &[(u16, &str)]) -> String {
    look(provider, answers).await.unwrap_err().to_string()
}

const TOKEN: (u16, &str) = (200, "token-1");
const TIME: (u16, &str) = (200, "2026-03-01T12:00:00Z\n");
const NOT_FOUND: (u16, &str) = (404, "<html>404 - Not Found</html>");

#[tokio::test]
async fn rule_11_amazon_announces_a_time_and_otherwise_answers_404() {
    assert_eq!(look(CloudProvider::Aws, &[TOKEN, NOT_FOUND]).await.unwrap(), Notice::None);
    assert_eq!(look(CloudProvider::Aws, &[TOKEN, TIME]).await.unwrap(), Notice::Termination);
    // As Amazon documents: "or contains a value that is not a time value".
    assert_eq!(look(CloudProvider::Aws, &[TOKEN, (200, "")]).await.unwrap(), Notice::None);
    assert_eq!(
        look(CloudProvider::Aws, &[TOKEN, (200, "<html>sign in</html>")]).await.unwrap(),
        Notice::None
    );
}

#[tokio::test]
async fn amazon_is_asked_with_a_token_that_is_renewed_when_it_is_refused() {
    let answers = [TOKEN, NOT_FOUND, NOT_FOUND, (401, ""), (200, "token-2"), TIME];
    let service = Service::answering(&answers).await;
    let mut notices = service.notices(CloudProvider::Aws);
    for expect in [Notice::None, Notice::None, Notice::Termination] {
        assert_eq!(notices.look().await.unwrap(), expect);
    }
    let (token, time) = ("PUT /below/latest/api/token", "GET /below/latest/meta-data/spot/termination-time");
    assert_eq!(service.requests(), [token, time, time, time, token, time]);
    assert_eq!(service.header(0, "x-aws-ec2-metadata-token-ttl-seconds").as_deref(), Some("21600"));
    assert_eq!(service.header(3, "x-aws-ec2-metadata-token").as_deref(), Some("token-1"));
    assert_eq!(service.header(5, "x-aws-ec2-metadata-token").as_deref(), Some("token-2"));
}

#[tokio::test]
async fn a_refusal_of_amazon_ends_the_handler_without_its_token() {
    let refused = failure(CloudProvider::Aws, &[TOKEN, (401, "")]).await;
    assert!(
        refused.ends_with(
            "were answered with 401 Unauthorized; expected 200 with the time of termination, or 404"
        ),
        "{refused}"
    );
    assert!(!refused.contains("token-1"), "{refused}");
    let refused = failure(CloudProvider::Aws, &[(403, "")]).await;
    assert!(refused.contains("/latest/api/token were answered with 403 Forbidden"), "{refused}");
    for token in ["", "two\nlines"] {
        let odd = failure(CloudProvider::Aws, &[(200, token)]).await;
        assert!(odd.ends_with("expected a token that can be sent in a header"), "{odd}");
    }
}

#[tokio::test]
async fn rule_11_a_server_error_is_retried_three_times() {
    let broken = (500, "");
    let service = Service::answering(&[TOKEN, broken, (503, ""), (429, ""), TIME]).await;
    assert_eq!(service.notices(CloudProvider::Aws).look().await.unwrap(), Notice::Termination);
    let service = Service::answering(&[TOKEN, broken]).await;
    let error = service.notices(CloudProvider::Aws).look().await.unwrap_err().to_string();
    assert!(error.ends_with("could not be read in 4 attempts: 500 Internal Server Error"), "{error}");
    assert_eq!(service.requests().len(), 5);
}

#[tokio::test]
async fn a_service_that_does_not_listen_or_says_too_much_ends_the_handler() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: MetadataAddress = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let error = Notices::new(CloudProvider::Gcp, address).look().await.unwrap_err().to_string();
    assert!(error.contains("in 4 attempts") && error.contains("onnection refused"), "{error}");
    let endless = "x".repeat(300 * 1024);
    let error = failure(CloudProvider::Gcp, &[(200, &endless)]).await;
    assert!(error.contains("length limit exceeded"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_accepts_and_never_answers_ends_the_handler() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: MetadataAddress = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let error = Notices::new(CloudProvider::Aws, address).look().await.unwrap_err().to_string();
    assert!(error.ends_with("in 4 attempts: no response within 5 s"), "{error}");
}

#[tokio::test]
async fn rule_11_google_says_true_or_false() {
    let service = Service::answering(&[(200, "FALSE"), (200, "TRUE\n")]).await;
    let mut notices = service.notices(CloudProvider::Gcp);
    assert_eq!(notices.look().await.unwrap(), Notice::None);
    assert_eq!(notices.look().await.unwrap(), Notice::Termination);
    assert_eq!(service.requests()[0], "GET /below/computeMetadata/v1/instance/preempted");
    assert_eq!(service.header(0, "metadata-flavor").as_deref(), Some("Google"));
    let odd = failure(CloudProvider::Gcp, &[(200, "<html>sign in</html>")]).await;
    assert!(odd.ends_with("cannot be understood; expected TRUE or FALSE"), "{odd}");
    assert!(failure(CloudProvider::Gcp, &[(404, "")]).await.contains("were answered with 404 Not Found"));
}

fn events(events: &Value) -> String {
    json!({"DocumentIncarnation": 1, "Events": events}).to_string()
}

const COMPUTE: (u16, &str) = (200, r#"{"compute": {"name": "Worker-0", "vmId": "v"}, "network": {}}"#);

#[tokio::test]
async fn rule_11_azure_lists_events_of_which_only_an_eviction_of_this_machine_counts() {
    let event = |kind: &str, status: &str, machine: &str| {
        json!({"EventId": "e", "EventType": kind, "EventStatus": status, "ResourceType": "VirtualMachine",
            "Resources": ["neighbour", machine], "NotBefore": "", "EventSource": "Platform"})
    };
    let cases = [
        (json!([]), Notice::None),
        (json!([event("Reboot", "Scheduled", "worker-0")]), Notice::None),
        (json!([event("Preempt", "Scheduled", "worker-00")]), Notice::None),
        (
            json!([event("Freeze", "Started", "worker-0"), event("Preempt", "Scheduled", "worker-0")]),
            Notice::Termination,
        ),
        (json!([event("Preempt", "Started", "WORKER-0")]), Notice::Termination),
    ];
    let answers: Vec<String> = cases.iter().map(|(list, _)| events(list)).collect();
    let mut script = vec![COMPUTE];
    script.extend(answers.iter().map(|body| (200, body.as_str())));
    let service = Service::answering(&script).await;
    let mut notices = service.notices(CloudProvider::Azure);
    for (list, expect) in cases {
        assert_eq!(notices.look().await.unwrap(), expect, "{list}");
    }
    let requests = service.requests();
    assert_eq!(requests[0], "GET /below/metadata/instance?api-version=2021-02-01");
    assert!(
        requests[1..].iter().all(|it| it == "GET /below/metadata/scheduledevents?api-version=2020-07-01")
    );
    assert_eq!(service.header(5, "metadata").as_deref(), Some("true"));
}

#[tokio::test]
async fn what_azure_does_not_document_ends_the_handler() {
    for body in ["", "[]", r#"{"compute": {}}"#, r#"{"compute": {"name": ""}}"#] {
        let odd = failure(CloudProvider::Azure, &[(200, body)]).await;
        assert!(odd.ends_with("a document with the machine's name in compute.name"), "{odd}");
    }
    for body in ["<html>", r#"{"Events": [{"Resources": []}]}"#, "{}"] {
        let odd = failure(CloudProvider::Azure, &[COMPUTE, (200, body)]).await;
        assert!(odd.ends_with("expected a document of scheduled events"), "{odd}");
    }
    let refused = failure(CloudProvider::Azure, &[COMPUTE, (400, "")]).await;
    assert!(refused.contains("api-version=2020-07-01 were answered with 400 Bad Request"), "{refused}");
}

#[test]
fn an_address_is_http_with_a_host_and_perhaps_a_path() {
    for good in ["http://169.254.169.254", "http://[fd00:ec2::254]", "http://127.0.0.1:80/machines/w/"] {
        assert_eq!(good.parse::<MetadataAddress>().unwrap().to_string(), good.trim_end_matches('/'));
    }
    for bad in [
        "",
        "169.254.169.254",
        "https://h",
        "http://",
        "http://u:p@h",
        "http://h?x",
        "http://h/#a",
        "ftp://h",
    ] {
        let error = bad.parse::<MetadataAddress>().unwrap_err();
        assert!(
            error.starts_with(&format!("{bad:?} must be an address such as http://169.254.169.254")),
            "{error}"
        );
    }
    assert_eq!(MetadataAddress::default().to_string(), "http://169.254.169.254");
}

#[test]
fn the_cloud_is_that_of_the_provider_id() {
    let check = |id: &str, expect: Option<&str>| {
        assert_eq!(provider_of(id).map(CloudProvider::as_str), expect, "{id}");
    };
    check("aws:///eu-west-1a/i-0123", Some("aws"));
    check(
        "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/w",
        Some("azure"),
    );
    check("gce://project/zone/name", Some("gcp"));
    for other in ["", "vsphere://u", "aws", "azureus://x"] {
        check(other, None);
    }
    assert_eq!("gcp".parse(), Ok(CloudProvider::Gcp));
    assert!("gce".parse::<CloudProvider>().unwrap_err().contains("accepted: aws, azure, gcp"));
}

fn now() -> Timestamp {
    "2026-03-01T12:00:00.5Z".parse().unwrap()
}

fn node(conditions: &Value) -> Node {
    serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"conditions": conditions}})).unwrap()
}

#[test]
fn rule_11_the_condition_says_that_termination_was_requested() {
    let set = |conditions: Value| condition(&node(&conditions), now());
    let expect = json!({
        "type": "Terminating", "status": "True", "reason": "TerminationRequested",
        "message": "The cloud provider has marked this instance for termination",
        "lastHeartbeatTime": "2026-03-01T12:00:00Z", "lastTransitionTime": "2026-03-01T12:00:00Z",
    });
    for before in [
        json!([]),
        json!([{"type": "Terminating", "status": "False"}]),
        json!([{"type": "Ready", "status": "True"}]),
    ] {
        assert_eq!(serde_json::to_value(set(before).unwrap()).unwrap(), expect);
    }
}

#[test]
fn rule_11_a_condition_that_is_true_is_kept() {
    let kept = json!([{"type": "Terminating", "status": "True", "reason": "Other", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    assert_eq!(condition(&node(&kept), now()), None);
}
