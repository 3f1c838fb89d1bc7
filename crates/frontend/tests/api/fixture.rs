//! A running server on a store of its own, and a small client.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::clock::SystemClock;
use bytes::Bytes;
use frontend::{Config, Deps, Metrics, Server};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use serve::pki::PkiDirectory;
use store::{Keyring, Location, Options, Store};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The subscription of the clusters in these tests.
pub(crate) const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000000";

/// An HTTP client of the server.
pub(crate) type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A running server.
pub(crate) struct TestServer {
    pub(crate) store: Store,
    pub(crate) url: String,
    pub(crate) pki: Option<PkiDirectory>,
    pub(crate) http: Http,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
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
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Status, code and target of an error response.
    pub(crate) fn error(&self) -> (u16, String, String) {
        let body = self.json();
        let member = |name: &str| body["error"][name].as_str().unwrap_or_default().to_owned();
        assert!(!member("message").is_empty(), "an error response has a message: {body}");
        (self.status.as_u16(), member("code"), member("target"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Reply {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self
    }
}

/// A store in a file of `place`.
pub(crate) async fn sqlite(place: &Path) -> Store {
    let location = Location::Sqlite(place.join("store.db"));
    let options = Options::new(location, Keyring::ephemeral().unwrap(), Arc::new(SystemClock));
    Store::open(options).await.unwrap()
}

impl TestServer {
    /// A server without authentication, over plain HTTP.
    pub(crate) async fn open() -> TestServer {
        let place = tempfile::tempdir().unwrap();
        let store = sqlite(place.path()).await;
        TestServer::with_store(store, place).await
    }

    /// A server on an existing store.
    pub(crate) async fn with_store(store: Store, place: TempDir) -> TestServer {
        let config = Config { insecure: true, ..base_config() };
        TestServer::start(config, None, store, place, None).await
    }

    /// A server with adjusted settings.
    pub(crate) async fn configured(adjust: impl FnOnce(&mut Config)) -> TestServer {
        let place = tempfile::tempdir().unwrap();
        let store = sqlite(place.path()).await;
        let mut config = Config { insecure: true, ..base_config() };
        adjust(&mut config);
        TestServer::start(config, None, store, place, None).await
    }

    /// A server with a cloud.
    pub(crate) async fn with_cloud(cloud: &cloud::Cloud) -> TestServer {
        let place = tempfile::tempdir().unwrap();
        let store = sqlite(place.path()).await;
        let config = Config { insecure: true, ..base_config() };
        TestServer::start(config, None, store, place, Some(cloud.into())).await
    }

    /// A server with authentication by certificates of its own, and adjusted settings.
    pub(crate) async fn guarded(adjust: impl FnOnce(&mut Config, &PkiDirectory)) -> TestServer {
        let place = tempfile::tempdir().unwrap();
        let store = sqlite(place.path()).await;
        let pki = PkiDirectory::ensure(&place.path().join("pki"), &[], api::clock::Clock::now(&SystemClock))
            .unwrap();
        let mut config = base_config();
        config.complete_from(&pki);
        adjust(&mut config, &pki);
        TestServer::start(config, Some(pki), store, place, None).await
    }

    async fn start(
        config: Config,
        pki: Option<PkiDirectory>,
        store: Store,
        place: TempDir,
        cloud: Option<frontend::CloudRoles>,
    ) -> TestServer {
        let deps =
            Deps { store: store.clone(), clock: Arc::new(SystemClock), metrics: Metrics::default(), cloud };
        let server = Server::bind(config, deps).await.unwrap();
        let url = server.url();
        let shutdown = CancellationToken::new();
        let ending = shutdown.clone();
        #[expect(clippy::disallowed_methods, reason = "the handle is joined in close, or the test has ended")]
        let serving = tokio::spawn(async move { server.serve(ending).await.unwrap() });
        let http = match &pki {
            Some(pki) => client(pki, Some((&pki.operator, &pki.operator_key))),
            None => plain(),
        };
        TestServer { store, url, pki, http, shutdown, serving, _place: place }
    }

    /// Stops the server as a process does.
    pub(crate) async fn close(self) {
        self.shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(20), self.serving).await.unwrap().unwrap();
        self.store.close().await;
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], None).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Reply {
        self.send(Method::PUT, path, &[], Some(body.to_string().into())).await
    }

    pub(crate) async fn post(&self, path: &str) -> Reply {
        self.send(Method::POST, path, &[], None).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.send(Method::DELETE, path, &[], None).await
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Bytes>,
    ) -> Reply {
        exchange(&self.http, &self.url, method, path, headers, body).await.unwrap()
    }
}

/// Settings of all servers in these tests.
fn base_config() -> Config {
    Config {
        listen: ([127, 0, 0, 1], 0).into(),
        locations: vec!["local".to_owned(), "west".to_owned()],
        // Proxies in these tests.
        public_names: ["management.example", "proxy.example", "mockrefererhost"].map(str::to_owned).to_vec(),
        ..Config::default()
    }
}

/// Sends a request and reads the response.
pub(crate) async fn exchange(
    http: &Http,
    url: &str,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<Bytes>,
) -> anyhow::Result<Reply> {
    let mut request = Request::builder().method(method).uri(format!("{url}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if body.is_some() && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        request = request.header("content-type", "application/json");
    }
    let request = request.body(Full::new(body.unwrap_or_default()))?;
    let response = http.request(request).await.context("no response to the request")?;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await?.to_bytes();
    Ok(Reply { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.into())? })
}

/// A client without TLS.
pub(crate) fn plain() -> Http {
    let config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    http_client(config)
}

/// A client that trusts the server, with a client certificate or without.
pub(crate) fn client(pki: &PkiDirectory, certificate: Option<(&Path, &Path)>) -> Http {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&pki.authority).unwrap()).unwrap();
    let builder = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match certificate {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain: Vec<_> =
                CertificateDer::pem_file_iter(certificate).unwrap().collect::<Result<_, _>>().unwrap();
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap()
        }
    };
    http_client(config)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn http_client(config: rustls::ClientConfig) -> Http {
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build();
    Client::builder(TokioExecutor::new()).build(connector)
}

/// The path of a cluster under `/admin`.
pub(crate) fn admin(name: &str) -> String {
    format!("/admin{}", rid(name))
}

/// The resource id of a cluster.
pub(crate) fn rid(name: &str) -> String {
    format!(
        "/subscriptions/{SUBSCRIPTION}/resourcegroups/imported/providers/Microsoft.RedHatOpenShift/openShiftClusters/{name}"
    )
}

/// A kubeconfig with everything inline.
pub(crate) fn kubeconfig() -> String {
    "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- name: a\n  context: {cluster: a, user: a}\n\
     clusters:\n- name: a\n  cluster: {server: 'https://127.0.0.1:6443'}\n\
     users:\n- name: a\n  user: {token: secret}\n"
        .to_owned()
}

/// A task that waits for a moment, with one parameter.
pub(crate) const TASK: &str = "6f1d0a52-7a53-4a6b-9a0e-3a4f7a3b2c11";

/// The body of the task.
pub(crate) fn task() -> Value {
    serde_json::json!({
        "name": "wait-a-moment",
        "title": "Waits for a moment",
        "parameters": {
            "type": "object",
            "properties": {"long": {"type": "string", "pattern": "^[0-9]+s$"}},
        },
        "steps": [{"name": "wait", "uses": "pause", "with": {"duration": "1s"}}],
    })
}

impl TestServer {
    /// Imports a cluster and stores the task.
    pub(crate) async fn prepare(&self, cluster: &str) {
        let body = serde_json::json!({"kubeconfig": kubeconfig()});
        let reply = self.put(&format!("{}/import", admin(cluster)), &body).await;
        assert!(reply.status.is_success(), "{}", reply.text);
        let reply = self.put(&format!("/admin/maintenancetasks/{TASK}?api-version=admin"), &task()).await;
        assert!(reply.status.is_success(), "{}", reply.text);
    }

    /// Requests the task on a cluster; returns the id of the manifest.
    pub(crate) async fn request_task(&self, cluster: &str, more: Value) -> uuid::Uuid {
        let mut body = serde_json::json!({"maintenanceTaskID": TASK});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let created = self.put(&manifests(cluster), &body).await.expect(201);
        created.json()["id"].as_str().unwrap().parse().unwrap()
    }
}

/// The path of the manifests of a cluster.
pub(crate) fn manifests(cluster: &str) -> String {
    format!("{}/maintenancemanifests?api-version=admin", admin(cluster))
}

/// The path of a manifest, or of a resource under it.
pub(crate) fn manifest(cluster: &str, rest: &str) -> String {
    format!("{}/maintenancemanifests/{rest}?api-version=admin", admin(cluster))
}

/// Runs a test on SQLite and, where this machine has it, on PostgreSQL.
pub(crate) async fn on_both<F: Future<Output = ()>>(test: impl Fn(TestServer) -> F) {
    test(TestServer::open().await).await;
    let Some(postgres) = testkit::postgres::shared() else {
        return testkit::prerequisites::skip(
            testkit::prerequisites::POSTGRESQL,
            "no server binaries were found",
        );
    };
    let database = postgres.database().unwrap();
    let location = Location::Postgres(api::secret::Secret::new(database.url().to_owned()));
    let options = Options::new(location, Keyring::ephemeral().unwrap(), Arc::new(SystemClock));
    let store = Store::open(options).await.unwrap();
    test(TestServer::with_store(store, tempfile::tempdir().unwrap()).await).await;
}
