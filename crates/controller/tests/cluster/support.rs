//! A namespace of the test's own on the shared cluster, and a client whose connection can be disturbed.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use controller::{Informers, Observability, connect};
use futures_util::{StreamExt, TryStreamExt};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::client::Body;
use kube::{Api, Client};
use serde_json::{Value, json};
use testkit::kube::TestCluster;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

/// Longest wait of a test for what must happen; only a test that fails waits for it.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Where a test works.
pub(crate) struct World {
    pub(crate) cluster: &'static TestCluster,
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

/// A new namespace on the shared cluster; `None`, with a message, if this machine has no cluster.
pub(crate) async fn world(prefix: &str) -> Option<World> {
    let Some(cluster) = testkit::kube::shared() else {
        testkit::prerequisites::skip(testkit::prerequisites::KUBERNETES, testkit::kube::MISSING);
        return None;
    };
    let namespace = cluster.namespace(prefix).unwrap();
    let connection = connect(Some(&cluster.kubeconfig_path()), Some(&namespace)).await.unwrap();
    assert_eq!(connection.namespace, namespace);
    Some(World { cluster, client: connection.client, namespace })
}

impl World {
    pub(crate) fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn create(&self, metadata: Value) -> ConfigMap {
        let object = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        self.config_maps().create(&PostParams::default(), &object).await.unwrap()
    }
}

/// Informers that run until they are dropped.
pub(crate) struct RunningInformers {
    pub(crate) informers: Arc<Informers>,
    _tasks: JoinSet<()>,
}

pub(crate) fn informers(client: &Client) -> RunningInformers {
    let informers = Informers::new(client.clone(), Observability::default());
    let (mut tasks, run) = (JoinSet::new(), informers.clone());
    tasks.spawn(async move { run.run(CancellationToken::new()).await.unwrap() });
    RunningInformers { informers, _tasks: tasks }
}

/// Waits for what must happen soon.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.unwrap_or_else(|_| panic!("{what} did not happen within {SOON:?}"))
}

type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

/// How the connection to the API server behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Healthy,
    /// Running watches end, and new ones are refused because their version is too old.
    WatchesExpired,
    /// Running watches end, and new ones never begin.
    NoWatches,
    /// No request is answered.
    Silent,
}

/// A client whose connection can be disturbed.
#[derive(Clone)]
pub(crate) struct Line(Arc<Mutex<(Mode, CancellationToken)>>);

impl Line {
    pub(crate) fn new() -> Line {
        Line(Arc::new(Mutex::new((Mode::Healthy, CancellationToken::new()))))
    }

    pub(crate) fn set(&self, mode: Mode) {
        let mut line = self.0.lock().unwrap();
        line.1.cancel();
        *line = (mode, CancellationToken::new());
    }

    fn get(&self) -> (Mode, CancellationToken) {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn client(&self, client: &Client) -> Client {
        let (line, inner) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (line, inner) = (line.clone(), inner.clone());
            async move { line.send(inner, request).await }
        });
        Client::new(service, client.default_namespace())
    }

    async fn send(&self, client: Client, request: Request<Body>) -> Result<Response<AnyBody>, BoxError> {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let (mode, changed) = self.get();
        match mode {
            Mode::Silent => std::future::pending().await,
            Mode::NoWatches if is_watch => {
                changed.cancelled().await;
                Err("the connection was lost".into())
            }
            Mode::WatchesExpired if is_watch => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410,
                    "reason": "Expired", "message": "too old resource version"});
                let body = Full::new(Bytes::from(status.to_string())).map_err(BoxError::from).boxed_unsync();
                Ok(Response::builder().status(StatusCode::GONE).body(body)?)
            }
            _ if is_watch => {
                let (parts, body) = client.send(request).await?.into_parts();
                let stream = TryStreamExt::map_err(BodyStream::new(body), BoxError::from);
                let stream = stream.take_until(Box::pin(changed.cancelled_owned()));
                Ok(Response::from_parts(parts, StreamBody::new(stream).boxed_unsync()))
            }
            _ => Ok(client.send(request).await?.map(|body| body.map_err(BoxError::from).boxed_unsync())),
        }
    }
}
