//! A portal before a frontend on a store of its own, and somebody who asks it.

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

/// Where browsers would find the portal.
pub(crate) const ORIGIN: &str = "http://127.0.0.1:8444";

/// A task with parameters of every kind.
pub(crate) const TASK: &str = "6f1d0a52-7a53-4a6b-9a0e-3a4f7a3b2c11";

/// A portal and all that is behind it.
pub(crate) struct Site {
    pub(crate) store: Store,
    pub(crate) admin: Client,
    pub(crate) portal: Portal,
    pub(crate) router: Router,
    _server: Server,
    _place: TempDir,
}

/// An answer, read to its end.
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

/// Somebody with a browser.
#[derive(Debug, Clone)]
pub(crate) struct Guest {
    router: Router,
    pub(crate) cookie: String,
    pub(crate) csrf: String,
}

impl Site {
    /// A portal that is entered by links.
    pub(crate) async fn open() -> Site {
        Site::with(Login::OneTimeLink, ORIGIN).await
    }

    pub(crate) async fn with(login: Login, url: &str) -> Site {
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
        Site { store, admin, portal, router, _server: server, _place: place }
    }

    /// Somebody who is signed in.
    pub(crate) async fn guest(&self, user: &str, role: Role) -> Guest {
        let link = self.portal.one_time_link(user, role).unwrap();
        let mut guest = Guest { router: self.router.clone(), cookie: String::new(), csrf: String::new() };
        let entered = guest.get(&link).await.expect(303);
        guest.cookie = entered.header("set-cookie").split(';').next().unwrap().to_owned();
        let page = guest.get("/fleet").await.expect(200);
        guest.csrf = csrf(&page.text);
        guest
    }

    /// Somebody who is not.
    pub(crate) fn stranger(&self) -> Guest {
        Guest { router: self.router.clone(), cookie: String::new(), csrf: String::new() }
    }

    /// Imports a cluster whose API server answers nobody.
    pub(crate) async fn import(&self, name: &str, labels: &[(&str, &str)]) -> String {
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let request =
            ImportRequest { kubeconfig: kubeconfig(), context: None, location: None, labels, reason: None };
        self.admin.import_cluster(&rid(name), &request).await.unwrap().value.id
    }

    /// Many clusters at once.
    pub(crate) async fn fill(&self, count: usize) {
        let by = AuditContext::service("test");
        let all: Vec<usize> = (0..count).collect();
        for block in all.chunks(500) {
            let mut transaction = Transaction::new();
            for number in block {
                let name = format!("cluster-{number:04}");
                let cluster = Cluster {
                    id: rid(&name),
                    subscription_id: "00000000-0000-0000-0000-000000000000".to_owned(),
                    name,
                    location: ["local", "west", "east"][number % 3].to_owned(),
                    labels: [("env".to_owned(), ["test", "prod"][number % 2].to_owned())].into(),
                    provisioning_state: match number % 40 {
                        7 => ProvisioningState::Failed,
                        11 => ProvisioningState::Updating,
                        _ => ProvisioningState::Succeeded,
                    },
                    last_provisioning_state: None,
                    failed_provisioning_state: None,
                    operation: None,
                    credential: None,
                    managed_resource_group: None,
                    imported: true,
                    provisioned: None,
                    created_at: SystemClock.now(),
                };
                transaction = transaction.create(Uuid::now_v7(), &cluster, &by).unwrap();
            }
            self.store.commit(transaction).await.unwrap();
        }
    }

    /// Stores a task with two steps.
    pub(crate) async fn task(&self) {
        let task = json!({
            "name": "cordon-node", "title": "Sets a node aside <b>for a while</b>", "disruptive": true,
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

    /// Asks for the task on a cluster; the manifest's id.
    pub(crate) async fn order(&self, cluster: &str, run_after: Option<i64>) -> Uuid {
        let parameters = json!({"node": "worker-1"}).as_object().unwrap().clone();
        let request = ManifestRequest {
            maintenance_task_id: TASK.to_owned(),
            run_after,
            parameters,
            ..ManifestRequest::default()
        };
        self.admin.create_manifest(cluster, &request, false).await.unwrap().value.id
    }

    /// Takes up what is due, as an actuator does.
    pub(crate) async fn claim(&self) -> ClaimedWork {
        self.store.claim(WorkKind::Manifest, 1, Uuid::from_u128(9)).await.unwrap().remove(0)
    }

    /// Says that the work is in a step.
    pub(crate) async fn step(&self, claimed: &ClaimedWork, index: u32, message: &str) {
        let name = ["set-aside", "let-go"][index as usize - 1];
        let step =
            json!({"name": name, "index": index, "of": 2, "since": SystemClock.now(), "message": message});
        self.store.checkpoint(claimed.lease, name, json!({"step": step})).await.unwrap();
    }

    /// Brings it to its end.
    pub(crate) async fn complete(&self, claimed: &ClaimedWork) {
        let done =
            Completion::new(claimed.lease, Ending::Completed, json!({"message": "the node had its rest"}));
        self.store.complete(&[done]).await.unwrap();
    }
}

impl Guest {
    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.ask(Request::get(path), Body::empty()).await
    }

    /// Fills in a form of ours and sends it.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let mut fields = fields.to_vec();
        fields.push(("csrf", &self.csrf));
        self.post_from(ORIGIN, path, &fields).await
    }

    pub(crate) async fn post_from(&self, origin: &str, path: &str, fields: &[(&str, &str)]) -> Reply {
        let request = Request::post(path)
            .header("origin", origin)
            .header("content-type", "application/x-www-form-urlencoded");
        self.ask(request, Body::from(form(fields))).await
    }

    pub(crate) async fn ask(&self, request: http::request::Builder, body: Body) -> Reply {
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

    /// What changes of a page, as it changes.
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

/// The token in a page.
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

/// The id of a cluster.
pub(crate) fn rid(name: &str) -> String {
    format!(
        "/subscriptions/00000000-0000-0000-0000-000000000000/resourcegroups/imported/providers/Microsoft.RedHatOpenShift/openShiftClusters/{name}"
    )
}

/// The page of a cluster.
pub(crate) fn page_of(name: &str) -> String {
    format!("/cluster/00000000-0000-0000-0000-000000000000/imported/{name}")
}

/// A kubeconfig of an API server where nobody listens.
fn kubeconfig() -> String {
    "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- name: a\n  context: {cluster: a, user: a}\n\
     clusters:\n- name: a\n  cluster: {server: 'https://127.0.0.1:9'}\n\
     users:\n- name: a\n  user: {token: secret}\n"
        .to_owned()
}

/// The last entry of the audit log of that kind.
pub(crate) async fn last_audit(site: &Site, action: &str) -> Value {
    let query = client::AuditQuery { action: Some(action.to_owned()), limit: 1, ..Default::default() };
    let (entries, _) = site.admin.audit(&query).await.unwrap();
    serde_json::to_value(entries.first().unwrap_or_else(|| panic!("nobody did {action}"))).unwrap()
}
