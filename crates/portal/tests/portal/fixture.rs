//! A portal with a frontend on a store of its own, and its users.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::admin::{ImportRequest, ManifestRequest};
use api::clock::{Clock as _, SystemClock};
use api::doc::{Cluster, ProvisioningState};
use api::work::{Ending, WorkKind};
use axum::Router;
use axum::body::Body;
use client::Client;
use frontend::{Config, Deps, Metrics, Server};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use portal::{Login, Options, Portal, Role};
use serde_json::{Value, json};
use store::{AuditContext, ClaimedWork, Completion, Keyring, Location, Store, Transaction};
use tempfile::TempDir;
use tower::ServiceExt as _;
use uuid::Uuid;

/// Origin of the portal.
pub(crate) const ORIGIN: &str = "http://127.0.0.1:8444";

/// A task with parameters of every kind.
pub(crate) const TASK: &str = "6f1d0a52-7a53-4a6b-9a0e-3a4f7a3b2c11";

/// A portal with its frontend and store.
pub(crate) struct TestPortal {
    pub(crate) store: Store,
    pub(crate) admin: Client,
    pub(crate) portal: Portal,
    pub(crate) router: Router,
    _server: Server,
    _place: TempDir,
}

/// A response with its whole body.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Reply {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self
    }

    #[track_caller]
    pub(crate) fn shows(&self, text: &str) -> &Reply {
        assert!(self.text.contains(text), "{text:?} is not in {}", self.text);
        self
    }
}

/// A user with a browser.
#[derive(Debug, Clone)]
pub(crate) struct TestUser {
    router: Router,
    pub(crate) cookie: String,
    pub(crate) csrf: String,
}

impl TestPortal {
    /// A portal with one-time links.
    pub(crate) async fn open() -> TestPortal {
        TestPortal::with(Login::OneTimeLink, ORIGIN).await
    }

    pub(crate) async fn with(login: Login, url: &str) -> TestPortal {
        let place = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(place.path().join("store.db"));
        let options = store::Options::new(location, Keyring::ephemeral().unwrap(), Arc::new(SystemClock));
        let store = Store::open(options).await.unwrap();
        let config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            locations: vec!["local".to_owned(), "west".to_owned(), "east".to_owned()],
            insecure: true,
            ..Config::default()
        };
        let deps = Deps {
            store: store.clone(),
            clock: Arc::new(SystemClock),
            metrics: Metrics::default(),
            cloud: None,
        };
        let server = Server::bind(config, deps).await.unwrap();
        let admin = Client::in_process(server.local("portal"));
        let options =
            Options { admin: admin.clone(), login, clock: Arc::new(SystemClock), url: url.to_owned() };
        let portal = Portal::new(options).unwrap();
        let router = portal.router();
        TestPortal { store, admin, portal, router, _server: server, _place: place }
    }

    /// A signed-in user.
    pub(crate) async fn user(&self, user: &str, role: Role) -> TestUser {
        let link = self.portal.one_time_link(user, role).unwrap();
        let mut user = TestUser { router: self.router.clone(), cookie: String::new(), csrf: String::new() };
        let signed_in = user.get(&link).await.expect(303);
        user.cookie = signed_in.header("set-cookie").split(';').next().unwrap().to_owned();
        let page = user.get("/fleet").await.expect(200);
        user.csrf = csrf(&page.text);
        user
    }

    /// A user without a session.
    pub(crate) fn anonymous(&self) -> TestUser {
        TestUser { router: self.router.clone(), cookie: String::new(), csrf: String::new() }
    }

    /// Imports a cluster with an unreachable API server.
    pub(crate) async fn import(&self, name: &str, labels: &[(&str, &str)]) -> String {
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let request =
            ImportRequest { kubeconfig: kubeconfig(), context: None, location: None, labels, reason: None };
        self.admin.import_cluster(&rid(name), &request).await.unwrap().value.id
    }

    /// Creates many clusters.
    pub(crate) async fn fill(&self, count: usize) {
        let by = AuditContext::service("test");
        let all: Vec<usize> = (0..count).collect();
        for block in all.chunks(500) {
            let mut transaction = Transaction::new();
            for number in block {
                let name = format!("cluster-{number:04}");
                let cluster = Cluster {
                    subscription_id: "00000000-0000-0000-0000-000000000000".to_owned(),
                    location: ["local", "west", "east"][number % 3].to_owned(),
                    labels: [("env".to_owned(), ["test", "prod"][number % 2].to_owned())].into(),
                    imported: true,
                    ..Cluster::new(
                        rid(&name),
                        match number % 40 {
                            7 => ProvisioningState::Failed,
                            11 => ProvisioningState::Updating,
                            _ => ProvisioningState::Succeeded,
                        },
                        SystemClock.now(),
                    )
                };
                transaction = transaction.create(Uuid::now_v7(), &cluster, &by).unwrap();
            }
            self.store.commit(transaction).await.unwrap();
        }
    }

    /// Stores a task with two steps.
    pub(crate) async fn task(&self) {
        let task = json!({
            "name": "cordon-node", "title": "Cordons a node <b>for a while</b>", "disruptive": true,
            "parameters": {"type": "object", "required": ["node"], "properties": {
                "node": {"type": "string", "description": "Which node"},
                "rest": {"type": "string", "default": "5s"},
                "times": {"type": "integer", "minimum": 1, "maximum": 9},
                "deep": {"type": "boolean"},
                "mode": {"enum": ["soft", "hard"]},
            }},
            "steps": [
                {"name": "set-aside", "uses": "pause", "with": {"duration": "1s"}},
                {"name": "let-go", "uses": "pause", "with": {"duration": "1s"}},
            ],
        });
        self.admin.put_task(TASK.parse().unwrap(), &task, None).await.unwrap();
    }

    /// Requests the task on a cluster; returns the id of the manifest.
    pub(crate) async fn request_task(&self, cluster: &str, run_after: Option<i64>) -> Uuid {
        let parameters = json!({"node": "worker-1"}).as_object().unwrap().clone();
        let request = ManifestRequest {
            maintenance_task_id: TASK.to_owned(),
            run_after,
            parameters,
            ..ManifestRequest::default()
        };
        self.admin.create_manifest(cluster, &request, false).await.unwrap().value.id
    }

    /// Claims a due manifest, as an actuator does.
    pub(crate) async fn claim(&self) -> ClaimedWork {
        self.store.claim(WorkKind::Manifest, 1, Uuid::from_u128(9)).await.unwrap().remove(0)
    }

    /// Records that the work is in a step.
    pub(crate) async fn step(&self, claimed: &ClaimedWork, index: u32, message: &str) {
        let name = ["set-aside", "let-go"][index as usize - 1];
        let step =
            json!({"name": name, "index": index, "of": 2, "since": SystemClock.now(), "message": message});
        self.store.checkpoint(claimed.lease, name, json!({"step": step})).await.unwrap();
    }

    /// Completes the work.
    pub(crate) async fn complete(&self, claimed: &ClaimedWork) {
        let done =
            Completion::new(claimed.lease, Ending::Completed, json!({"message": "the node had its rest"}));
        self.store.complete(&[done]).await.unwrap();
    }
}

impl TestUser {
    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Request::get(path), Body::empty()).await
    }

    /// Submits a form of the portal.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let mut fields = fields.to_vec();
        fields.push(("csrf", &self.csrf));
        self.post_from(ORIGIN, path, &fields).await
    }

    pub(crate) async fn post_from(&self, origin: &str, path: &str, fields: &[(&str, &str)]) -> Reply {
        let request = Request::post(path)
            .header("origin", origin)
            .header("content-type", "application/x-www-form-urlencoded");
        self.send(request, Body::from(form(fields))).await
    }

    pub(crate) async fn send(&self, request: http::request::Builder, body: Body) -> Reply {
        let request = request.header("cookie", &self.cookie).body(body).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Reply {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    /// Subscribes to the changes of a page.
    pub(crate) async fn listen(&self, address: &str) -> Body {
        self.listen_at(&format!("/live?at={}", escaped(address))).await
    }

    pub(crate) async fn listen_at(&self, path: &str) -> Body {
        let request = Request::get(path).header("cookie", &self.cookie).body(Body::empty()).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body()
    }
}

/// The CSRF token in a page.
pub(crate) fn csrf(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"csrf\" value=\"").expect("the page has a form");
    rest.split('"').next().unwrap().to_owned()
}

fn form(fields: &[(&str, &str)]) -> String {
    let pairs: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value))).collect();
    pairs.join("&")
}

pub(crate) fn escaped(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// The resource id of a cluster.
pub(crate) fn rid(name: &str) -> String {
    format!(
        "/subscriptions/00000000-0000-0000-0000-000000000000/resourcegroups/imported/providers/Microsoft.RedHatOpenShift/openShiftClusters/{name}"
    )
}

/// The path of a cluster's page.
pub(crate) fn page_of(name: &str) -> String {
    format!("/cluster/00000000-0000-0000-0000-000000000000/imported/{name}")
}

/// A kubeconfig with an unreachable API server.
fn kubeconfig() -> String {
    "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- name: a\n  context: {cluster: a, user: a}\n\
     clusters:\n- name: a\n  cluster: {server: 'https://127.0.0.1:9'}\n\
     users:\n- name: a\n  user: {token: secret}\n"
        .to_owned()
}

/// The newest entry of the audit log with this action.
pub(crate) async fn last_audit(site: &TestPortal, action: &str) -> Value {
    let query = client::AuditQuery { action: Some(action.to_owned()), limit: 1, ..Default::default() };
    let (entries, _) = site.admin.audit(&query).await.unwrap();
    serde_json::to_value(entries.first().unwrap_or_else(|| panic!("no entry with action {action}"))).unwrap()
}
