//! Control of a running simulation: HTTP on a Unix socket in its directory, which only its owner can access.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use axum::extract::{Path as Segment, State};
use axum::http::{Request, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use kubesim::SimulatedClusters;
use serde::{Deserialize, Serialize};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use super::fault::{self, FaultArg};

/// The socket's name in the simulation's directory.
const SOCKET: &str = "control";

/// A cluster in a list.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ClusterSummary {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) faults: Vec<String>,
}

/// A fault to inject.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultRequest {
    pub(super) fault: FaultArg,
    pub(super) times: Option<u32>,
    pub(super) path: Option<String>,
}

/// The open socket.
pub(super) struct ControlServer {
    listener: UnixListener,
    sim: Arc<SimulatedClusters>,
}

impl ControlServer {
    /// Opens the socket and replaces one that a killed process left behind; the caller holds the lock of the directory.
    pub(super) fn open(directory: &Path, sim: Arc<SimulatedClusters>) -> anyhow::Result<ControlServer> {
        let path = socket(directory);
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)
            .and_then(|listener| {
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
                Ok(listener)
            })
            .with_context(|| format!("{}: the socket cannot be created", path.display()))?;
        Ok(ControlServer { listener, sim })
    }

    /// Serves until `shutdown`.
    pub(super) async fn serve(self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let routes = Router::new()
            .route("/clusters", get(clusters))
            .route("/clusters/{name}/faults", post(faults))
            .with_state(self.sim);
        let served = axum::serve(self.listener, routes).with_graceful_shutdown(shutdown.cancelled_owned());
        Ok(served.await?)
    }
}

async fn clusters(State(sim): State<Arc<SimulatedClusters>>) -> Json<Vec<ClusterSummary>> {
    let summary = |cluster: &Arc<kubesim::SimulatedCluster>| ClusterSummary {
        name: cluster.name().to_owned(),
        url: cluster.url(),
        faults: cluster.faults().active().into_iter().map(fault::name).collect(),
    };
    Json(sim.list().iter().map(summary).collect())
}

async fn faults(
    State(sim): State<Arc<SimulatedClusters>>,
    Segment(name): Segment<String>,
    Json(request): Json<FaultRequest>,
) -> Result<StatusCode, (StatusCode, String)> {
    let Some(cluster) = sim.get(&name) else {
        let names: Vec<String> = sim.list().iter().map(|it| it.name().to_owned()).collect();
        let clusters = names.join(", ");
        return Err((StatusCode::NOT_FOUND, format!("cluster {name:?} not found; clusters: {clusters}")));
    };
    request.fault.apply(cluster.faults(), request.times, request.path.as_deref());
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the clusters of the simulation in a directory.
pub(super) async fn list(directory: &Path) -> anyhow::Result<Vec<ClusterSummary>> {
    let body = exchange(directory, Request::get("/clusters"), Vec::new()).await?;
    serde_json::from_slice(&body).context("the response of the simulation")
}

/// Injects a fault.
pub(super) async fn inject(directory: &Path, cluster: &str, fault: &FaultRequest) -> anyhow::Result<()> {
    // The name becomes a segment of the path.
    if cluster.is_empty() || !cluster.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-') {
        bail!("cluster {cluster:?}: expected letters, digits and dashes, such as sim-1");
    }
    let request =
        Request::post(format!("/clusters/{cluster}/faults")).header("content-type", "application/json");
    exchange(directory, request, serde_json::to_vec(fault)?).await.map(drop)
}

async fn exchange(
    directory: &Path,
    request: axum::http::request::Builder,
    body: Vec<u8>,
) -> anyhow::Result<Vec<u8>> {
    let path = socket(directory);
    let stream = UnixStream::connect(&path).await.with_context(|| {
        format!(
            "no simulation runs in {}; start one with `shipshape sim`, or pass its --data-dir",
            directory.display()
        )
    })?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = request.header("host", "sim").body(Full::<axum::body::Bytes>::from(body))?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        anyhow::Ok((status, body))
    };
    let (status, body) = tokio::select! {
        response = exchange => response?,
        closed = connection => {
            closed?;
            bail!("the simulation closed the connection before it responded");
        }
    };
    if !status.is_success() {
        bail!("{}", String::from_utf8_lossy(&body));
    }
    Ok(body.to_vec())
}

fn socket(directory: &Path) -> PathBuf {
    directory.join(SOCKET)
}
