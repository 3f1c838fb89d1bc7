//! Tests of the client against routers in this process, and over sockets where the network matters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::admin::{BudgetRequest, ManifestRequest, PlanGrouping};
use axum::Router;
use axum::extract::{Path, Query, RawQuery, Request};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::IntoResponse as _;
use axum::routing::{any, get, post, put};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;

const CLUSTER: &str =
    "/subscriptions/s/resourcegroups/g/providers/Microsoft.RedHatOpenShift/openShiftClusters/n";

fn manifest(id: Uuid) -> Value {
    json!({
        "id": id, "state": "Pending", "statusText": "", "maintenanceTaskID": Uuid::nil(), "createdBySchedule": "",
        "priority": 0, "runAfter": 0, "runBefore": 10, "phase": "queued", "reason": "", "attempt": 0, "maxAttempts": 5,
        "createdAt": "2026-01-01T00:00:00Z", "createdBy": "me",
    })
}

#[tokio::test]
async fn a_list_is_read_to_its_last_page_from_one_server() {
    let router = Router::new().route(
        "/admin/maintenancemanifests/queued",
        get(|Query(query): Query<BTreeMap<String, String>>| async move {
            assert_eq!(query["api-version"], "admin");
            let page: u128 = query.get("$skipToken").map_or(0, |token| token.parse().unwrap());
            // A link to another host: the client must use only its path.
            let next = format!(
                "https://elsewhere.example/admin/maintenancemanifests/queued?api-version=admin&$skipToken={}",
                page + 1
            );
            let next = if page < 2 { next } else { String::new() };
            axum::Json(json!({ "value": [manifest(Uuid::from_u128(page))], "nextLink": next }))
        }),
    );
    let client = Client::in_process(router);
    let all = client.queued_manifests().all().await.unwrap();
    assert_eq!(all.iter().map(|it| it.id.as_u128()).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(client.queued_manifests().first(2).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_next_page_that_is_the_same_page_is_an_error() {
    let router = Router::new().fallback(|uri: Uri| async move {
        axum::Json(json!({ "value": [], "nextLink": uri.path_and_query().unwrap().as_str() }))
    });
    let error = Client::in_process(router).tasks().all().await.unwrap_err();
    assert!(error.to_string().contains("its next page is the same page"), "{error}");
}

/// Client of a server whose responses are errors with the request as their message.
fn echo_client() -> Client {
    let echo = |request: Request| async move {
        let line = format!("{} {}", request.method(), request.uri());
        let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
        let text = format!("{line} {}", String::from_utf8_lossy(&body));
        (StatusCode::IM_A_TEAPOT, axum::Json(json!({"error": {"code": "Echo", "message": text}})))
    };
    Client::in_process(Router::new().fallback(any(echo)))
}

/// Checks the request that an [`echo_client`] sent.
fn check(result: Result<(), ClientError>, expected: &str) {
    let ClientError::Response(response) = result.unwrap_err() else { panic!("{expected}") };
    assert_eq!(response.message.trim(), expected);
}

#[tokio::test]
async fn each_method_sends_its_request() {
    let client = echo_client();
    let id = Uuid::nil();
    let base = CLUSTER;
    let manifest = format!("/admin{base}/maintenancemanifests/{id}");
    check(
        client.create_manifest(CLUSTER, &ManifestRequest::default(), true).await.map(drop),
        &format!("PUT /admin{base}/maintenancemanifests?api-version=admin&dryRun=true {{}}"),
    );
    check(client.why(CLUSTER, id).await.map(drop), &format!("GET {manifest}/why?api-version=admin"));
    check(
        client.cancel_manifest(CLUSTER, id, Some("enough")).await.map(drop),
        &format!("POST {manifest}/cancel?api-version=admin {{\"reason\":\"enough\"}}"),
    );
    check(
        client.expedite_manifest(CLUSTER, id, Some("now")).await.map(drop),
        &format!("POST {manifest}/expedite?api-version=admin&reason=now"),
    );
    check(client.delete_manifest(CLUSTER, id, None).await, &format!("DELETE {manifest}?api-version=admin"));
    check(
        client.history(CLUSTER, id).all().await.map(drop),
        &format!("GET {manifest}/history?api-version=admin&limit=100"),
    );
    check(client.cluster(CLUSTER).await.map(drop), &format!("GET {base}?api-version=admin"));
    check(
        client.operations_page(CLUSTER).await.map(drop),
        &format!("GET /admin{base}/operations?api-version=admin&limit=1000"),
    );
    check(
        client.forget_cluster(CLUSTER, None).await,
        &format!("DELETE /admin{base}/import?api-version=admin"),
    );
    check(
        client.label_cluster(CLUSTER, &BTreeMap::from([("a".into(), "b".into())]), None).await.map(drop),
        &format!("PUT /admin{base}/labels?api-version=admin {{\"a\":\"b\"}}"),
    );
    check(
        client.set_budget("task/x", &BudgetRequest { limit: None, reason: None }).await.map(drop),
        "PUT /admin/maintenancebudgets/task%2Fx?api-version=admin {\"limit\":null}",
    );
    check(
        client.delete_schedule("weekly", PendingWork::Keep, None).await,
        "DELETE /admin/maintenanceschedules/weekly?api-version=admin&pending=keep",
    );
    check(
        client.preview(&json!({}), 3, 5, Some("2026-01-01T00:00:00Z")).await.map(drop),
        "POST /admin/maintenanceschedules/preview?api-version=admin&count=3&clusters=5&now=2026-01-01T00%3A00%3A00Z {}",
    );
    check(
        client.cancel_schedule_manifests("weekly", None).await.map(drop),
        "POST /admin/maintenancemanifests/cancel?api-version=admin&scheduleID=weekly",
    );
    let query = PlanQuery { cluster: Some(CLUSTER.to_owned()), ..PlanQuery::default() };
    let escaped = base.replace('/', "%2F");
    check(
        client.plan(&query).await.map(drop),
        &format!("GET /admin/maintenanceplan?api-version=admin&cluster={escaped}"),
    );
    let query = PlanQuery { grouping: PlanGrouping::Run, ..PlanQuery::default() };
    check(
        client.plan_page(&query, 200, 100).await.map(drop),
        "GET /admin/maintenanceplan?api-version=admin&groupBy=run&skip=200&limit=100",
    );
}

#[tokio::test]
async fn an_error_response_has_the_message_of_its_envelope() {
    let router = Router::new()
        .route(
            "/admin/maintenanceschedules",
            put(async || {
                let error = json!({"error": {"code": "InvalidParameter", "message": "The zone is unknown.", "target": "timeZone"}});
                (StatusCode::BAD_REQUEST, axum::Json(error))
            }),
        )
        .route("/admin/maintenanceschedules/preview", post(async || (StatusCode::BAD_GATEWAY, "<p>\n oh")));
    let client = Client::in_process(router);
    let error = client.put_schedule(&json!({}), None).await.unwrap_err();
    assert_eq!(error.to_string(), "The zone is unknown (InvalidParameter, timeZone)");
    assert!(!error.is_transient());
    let error = client.preview(&json!({}), 1, 1, None).await.unwrap_err();
    assert_eq!(error.to_string(), "Bad Gateway: <p> oh (502)");
    assert!(error.is_transient());
}

#[tokio::test]
async fn an_etag_is_sent_with_the_change() {
    let router = Router::new().route(
        "/admin/maintenancetasks/{id}",
        get(|Path(id): Path<String>| async move {
            ([("etag", "\"7\"")], axum::Json(json!({"name": id, "title": "t", "steps": []})))
        })
        .put(|headers: HeaderMap, body: String| async move {
            assert_eq!(headers["if-match"], "\"7\"");
            assert_eq!(headers["content-type"], "application/json");
            (StatusCode::CREATED, body)
        }),
    );
    let client = Client::in_process(router);
    let found = client.task("tidy").await.unwrap();
    assert_eq!((found.value.name.as_str(), found.etag.as_deref()), ("tidy", Some("\"7\"")));
    let stored = client.put_task(Uuid::nil(), &found.value, found.etag.as_deref()).await.unwrap();
    assert!(stored.is_created());
}

#[tokio::test]
async fn an_unreachable_server_is_an_error_with_a_remedy() {
    let unused = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let context =
        Context { server: format!("http://{unused}"), authority: None, credential: Credential::None };
    let error = Client::new(&context).unwrap().tasks().all().await.unwrap_err();
    let message =
        format!("cannot reach server http://{unused}: connection refused; check that `shipshape up`");
    assert!(error.to_string().starts_with(&message), "{error}");
    assert!(error.is_transient());
}

#[tokio::test]
async fn a_request_to_a_silent_server_times_out() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    let context = Context { server, authority: None, credential: Credential::None };
    let client = Client::new(&context).unwrap().with_timeout(Duration::from_millis(50));
    let error = client.task("x").await.unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
}

#[test]
fn an_invalid_context_is_an_error_with_its_cause() {
    let check = |server: &str, authority: Option<Pem>, expected: &str| {
        let context = Context { server: server.to_owned(), authority, credential: Credential::None };
        let error = Client::new(&context).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(
        "nonsense",
        None,
        "invalid server address \"nonsense\"; expected an address such as https://127.0.0.1:8443",
    );
    check("ftp://x", None, "invalid server address");
    check("https://x/path", None, "invalid server address");
    check("https://x", None, "has no certificate authority");
    check("https://x", Some(Pem::Inline("nothing".into())), "it contains no certificate");
    check(
        "https://x",
        Some(Pem::File("/no/such/file".into())),
        "cannot read certificate authority /no/such/file",
    );
}

#[tokio::test]
async fn an_interrupted_event_stream_resumes_after_the_last_event() {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    let router = Router::new().route(
        "/admin/events",
        get(move |headers: HeaderMap, RawQuery(query): RawQuery| {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                assert_eq!(query.unwrap(), "api-version=admin&topics=schedules%2Ctasks");
                let after = headers.get("last-event-id").map(|id| id.to_str().unwrap().to_owned());
                match number {
                    0 => {
                        assert_eq!(after, None);
                        "id: 4\nevent: schedule\ndata: {\"id\":\"weekly\",\"deleted\":true}\n\n"
                            .into_response()
                    }
                    1 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
                    2 => {
                        assert_eq!(after.as_deref(), Some("4"));
                        "id: 5\nevent: relist\ndata: {}\n\n".into_response()
                    }
                    _ => StatusCode::FORBIDDEN.into_response(),
                }
            }
        }),
    );
    let client = Client::in_process(router);
    tokio::time::pause();
    let mut events = client.events(&[Topic::Schedules, Topic::Tasks], None);
    let mut seen = Vec::new();
    let error = loop {
        match events.next().await.unwrap() {
            Ok(event) => seen.push((event.id, event.change)),
            Err(error) => break error,
        }
    };
    assert_eq!(error.status(), Some(StatusCode::FORBIDDEN));
    assert!(events.next().await.is_none());
    let ids: Vec<&str> = seen.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["4", "4", "5", "5"], "{seen:?}");
    assert!(matches!(seen[0].1, Change::Deleted { .. }));
    assert!(matches!(seen[1].1, Change::Interrupted { .. }));
    assert!(matches!(seen[2].1, Change::Relist));
}

#[tokio::test(start_paused = true)]
async fn reconnecting_to_a_server_that_ends_each_stream_at_once_has_a_delay() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    let router = Router::new().fallback(any(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async { "" }
    }));
    let mut events = Client::in_process(router).events(&[], None);
    let reading = async { while events.next().await.is_some() {} };
    let finished = tokio::time::timeout(std::time::Duration::from_secs(10), reading).await;
    assert!(finished.is_err(), "the stream continues");
    let requests = requests.load(Ordering::Relaxed);
    assert!((2..=41).contains(&requests), "{requests}");
}

#[tokio::test]
async fn each_method_of_the_arm_api_sends_its_request() {
    let client = echo_client();
    let version = "api-version=2025-07-25";
    check(client.resource(CLUSTER).await.map(drop), &format!("GET {CLUSTER}?{version}"));
    check(
        client.put_resource(CLUSTER, &json!({ "location": "l" })).await.map(drop),
        &format!("PUT {CLUSTER}?{version} {{\"location\":\"l\"}}"),
    );
    check(
        client.patch_resource(CLUSTER, &json!({})).await.map(drop),
        &format!("PATCH {CLUSTER}?{version} {{}}"),
    );
    check(client.delete_resource(CLUSTER).await.map(drop), &format!("DELETE {CLUSTER}?{version}"));
    check(client.credentials(CLUSTER).await.map(drop), &format!("POST {CLUSTER}/listCredentials?{version}"));
    check(
        client.kubeconfig(CLUSTER).await.map(drop),
        &format!("POST {CLUSTER}/listAdminCredentials?{version}"),
    );
    let space = "/providers/Microsoft.RedHatOpenShift";
    check(
        client.resources("s", Some("g")).all().await.map(drop),
        &format!("GET /subscriptions/s/resourceGroups/g{space}/openShiftClusters?{version}"),
    );
    check(
        client.resources("s", None).all().await.map(drop),
        &format!("GET /subscriptions/s{space}/openShiftClusters?{version}"),
    );
    let id = Uuid::nil();
    check(
        client.poll_operation(&OperationHandle::new("s", "l", id)).await.map(drop),
        &format!("GET /subscriptions/s{space}/locations/l/operationsStatus/{id}?{version}"),
    );
    check(
        client.installable_versions("s", "l").all().await.map(drop),
        &format!("GET /subscriptions/s{space}/locations/l/openShiftVersions?{version}"),
    );
    check(client.versions().all().await.map(drop), "GET /admin/versions?api-version=admin");
    check(
        client.set_subscription("s", "Registered").await.map(drop),
        "PUT /subscriptions/s?api-version=2.0 {\"properties\":{},\"state\":\"Registered\"}",
    );
    let preflight = client.preflight(CLUSTER, &json!({ "location": "l" })).await.map(drop);
    let ClientError::Response(response) = preflight.unwrap_err() else { panic!("no error response") };
    let place = format!("POST /subscriptions/s/resourcegroups/g{space}/deployments/cli/preflight?{version} ");
    assert!(response.message.starts_with(&place), "{response}");
    assert!(
        response.message.contains("\"apiVersion\":\"2025-07-25\"")
            && response.message.contains("\"name\":\"n\"")
    );
}

/// Server whose operation finishes at the third poll; the second poll fails.
fn operation_server(polls: &Arc<AtomicUsize>, end: Value) -> Router {
    let id = Uuid::from_u128(7);
    let place = format!("/subscriptions/s/operationsStatus/{id}");
    // The address has another host, as behind a resource manager: the client must use only its path.
    let address = format!("https://elsewhere.example{place}?api-version=2025-07-25");
    let polls = Arc::clone(polls);
    Router::new()
        .route(
            CLUSTER,
            put(move || async move {
                let headers = [("azure-asyncoperation", address), ("retry-after", "1".to_owned())];
                (StatusCode::CREATED, headers, axum::Json(json!({ "name": "n" })))
            }),
        )
        .route(
            &place,
            get(move |RawQuery(query): RawQuery| {
                let (poll, end) = (polls.fetch_add(1, Ordering::SeqCst), end.clone());
                async move {
                    assert_eq!(query.as_deref(), Some("api-version=2025-07-25"), "the query of the address is unchanged");
                    let status = |status: &str| json!({ "id": "/o", "name": "o", "status": status, "startTime": "2026-01-01T00:00:00Z" });
                    match poll {
                        0 => {
                            let mut now = status("Creating");
                            now["properties"] = json!({ "step": "ensure-network", "percent": 40, "message": "m" });
                            ([("retry-after", "3")], axum::Json(now)).into_response()
                        }
                        1 => (StatusCode::SERVICE_UNAVAILABLE, "restarting").into_response(),
                        _ => axum::Json(end).into_response(),
                    }
                }
            }),
        )
}

#[tokio::test(start_paused = true)]
async fn an_operation_is_polled_as_the_server_requests_until_it_finishes_despite_a_restart() {
    let polls = Arc::new(AtomicUsize::new(0));
    let end = json!({ "id": "/o", "name": "o", "status": "Succeeded", "startTime": "2026-01-01T00:00:00Z" });
    let client = Client::in_process(operation_server(&polls, end));
    let accepted = client.put_resource(CLUSTER, &json!({})).await.unwrap();
    assert_eq!((accepted.status, accepted.operation.id), (StatusCode::CREATED, Uuid::from_u128(7)));
    let start = tokio::time::Instant::now();
    let mut steps = Vec::new();
    let finished = client
        .wait_for_operation(&accepted.operation, |status| {
            steps.extend(status.properties.as_ref().map(|it| (it.step.clone(), it.percent)));
        })
        .await
        .unwrap();
    assert_eq!(finished.status, "Succeeded");
    assert_eq!(steps, [("ensure-network".to_owned(), 40)]);
    // One second by the first Retry-After, three by the second, three more after the failed poll.
    assert_eq!(start.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn polling_can_stop_and_start_again() {
    let polls = Arc::new(AtomicUsize::new(0));
    let end = json!({
        "id": "/o", "name": "o", "status": "Failed", "startTime": "2026-01-01T00:00:00Z",
        "error": { "code": "InvalidLinkedVNet", "message": "no such network" },
    });
    let client = Client::in_process(operation_server(&polls, end));
    let operation = client.put_resource(CLUSTER, &json!({})).await.unwrap().operation;
    let stopped =
        tokio::time::timeout(Duration::from_secs(2), client.wait_for_operation(&operation, |_| {})).await;
    assert!(stopped.is_err(), "the operation takes longer");
    let finished = client.wait_for_operation(&operation, |_| {}).await.unwrap();
    assert_eq!(
        finished.error.unwrap().code,
        "InvalidLinkedVNet",
        "a failed operation is a result, not an error of the poll"
    );
}

#[tokio::test]
async fn a_change_without_an_operation_is_an_error_and_a_missing_cluster_is_none() {
    let router = Router::new()
        .route(CLUSTER, put(|| async { axum::Json(json!({})) }).delete(|| async { StatusCode::NO_CONTENT }));
    let client = Client::in_process(router);
    let error = client.put_resource(CLUSTER, &json!({})).await.unwrap_err().to_string();
    assert!(error.contains("it has no azure-asyncoperation header"), "{error}");
    assert_eq!(client.delete_resource(CLUSTER).await.unwrap(), None);
}

#[tokio::test]
async fn a_kubeconfig_is_decoded_and_secrets_are_hidden_in_debug_output() {
    let router = Router::new()
        .route(
            &format!("{CLUSTER}/listAdminCredentials"),
            post(|| async { axum::Json(json!({ "kubeconfig": "aHVzaA==" })) }),
        )
        .route(
            &format!("{CLUSTER}/listCredentials"),
            post(|| async {
                axum::Json(json!({ "kubeadminUsername": "kubeadmin", "kubeadminPassword": "hush" }))
            }),
        );
    let client = Client::in_process(router);
    assert_eq!(client.kubeconfig(CLUSTER).await.unwrap().unwrap().expose(), "hush");
    let credentials = client.credentials(CLUSTER).await.unwrap();
    assert_eq!(credentials.password.expose(), "hush");
    assert!(!format!("{credentials:?}").contains("hush"));
}

#[test]
fn credentials_are_sent_only_over_tls_or_to_this_machine() {
    let token = || Credential::Token(api::secret::Secret::new("hush".to_owned()));
    let certificate = || Credential::Certificate {
        certificate: Pem::Inline("certificate".to_owned()),
        key: Pem::Inline("key".to_owned()),
    };
    let connect = |server: &str, credential: Credential| {
        let context = Context { server: server.to_owned(), authority: None, credential };
        Client::new(&context).map(drop).map_err(|error| error.to_string())
    };
    for server in [
        "http://shipshape.example",
        "HTTP://shipshape.example:8443",
        "hTtP://10.0.0.1",
        "http://127.0.0.1.example",
        "http://[2001:db8::1]:80",
    ] {
        for credential in [token(), certificate()] {
            let error = connect(server, credential).unwrap_err();
            assert!(
                error.contains(&format!(
                    "server {server} does not use TLS, so no token or certificate is sent to it"
                )),
                "{error}"
            );
        }
        assert_eq!(connect(server, Credential::None), Ok(()), "{server}: no credential is sent to it");
        assert!(is_plain_http(server), "{server}");
    }
    for server in ["http://127.0.0.1:1", "HTTP://LocalHost:1", "http://[::1]:1", "http://127.9.9.9"] {
        assert_eq!(connect(server, token()), Ok(()), "{server}");
    }
    for server in ["http://127.0.0.1@shipshape.example", "ftp://a", "a", "http://", "http://a/path", ""] {
        assert!(
            connect(server, Credential::None).unwrap_err().contains("invalid server address"),
            "{server}"
        );
    }
    // The scheme is compared ignoring case.
    assert!(connect("HTTPS://a", token()).unwrap_err().contains("has no certificate authority"));
    assert!(!is_plain_http("HTTPS://a") && !is_plain_http("a") && !is_plain_http(""));
}
