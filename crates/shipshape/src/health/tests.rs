//! The endpoint over real sockets.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::*;

struct Endpoint {
    address: SocketAddr,
    readiness: Readiness,
    stopping: CancellationToken,
    shutdown: CancellationToken,
    task: JoinSet<anyhow::Result<()>>,
}

async fn endpoint() -> Endpoint {
    let stopping = CancellationToken::new();
    let readiness = Readiness::new(stopping.clone());
    let metrics = Metrics::new(readiness.clone());
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let admin = HealthServer::bind(listen, readiness.clone(), Some(metrics)).await.unwrap();
    let (address, shutdown) = (admin.listener.address(), CancellationToken::new());
    let mut task = JoinSet::new();
    task.spawn(admin.serve(shutdown.clone()));
    Endpoint { address, readiness, stopping, shutdown, task }
}

impl Endpoint {
    async fn ask(&self, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn get(&self, path: &str) -> (u16, String) {
        split(&self.ask("GET", path).await)
    }

    async fn close(mut self) -> Duration {
        let begun = tokio::time::Instant::now();
        self.shutdown.cancel();
        self.task.join_next().await.unwrap().unwrap().unwrap();
        begun.elapsed()
    }
}

fn split(answer: &str) -> (u16, String) {
    let (head, body) = answer.split_once("\r\n\r\n").expect(answer);
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn readiness_names_what_is_missing_and_turns_at_once_when_stopping() {
    let endpoint = endpoint().await;
    let store = endpoint.readiness.condition("store");
    store.not_ready("migrating");
    for path in ["/readyz", "/healthz", "/healthz/ready"] {
        assert_eq!(endpoint.get(path).await, (503, "store: migrating\n".to_owned()));
    }
    assert_eq!(endpoint.get("/livez").await, (200, "alive\n".to_owned()));
    store.ready();
    assert_eq!(endpoint.get("/readyz").await, (200, "ready\n".to_owned()));
    endpoint.stopping.cancel();
    assert_eq!(endpoint.get("/readyz").await, (503, "shutting down\n".to_owned()));
    assert_eq!(endpoint.get("/livez").await.0, 200);
    endpoint.close().await;
}

#[tokio::test]
async fn metrics_are_open_metrics_and_tell_the_build() {
    let endpoint = endpoint().await;
    endpoint.readiness.condition("store").ready();
    let answer = endpoint.ask("GET", "/metrics").await;
    assert!(
        answer.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{answer}"
    );
    assert!(answer.contains("shipshape_build_info{version=\"0."), "{answer}");
    assert!(answer.contains("shipshape_process_ready{condition=\"store\"} 1"), "{answer}");
    assert!(answer.ends_with("# EOF\n"), "{answer}");
    endpoint.close().await;
}

#[tokio::test]
async fn other_paths_and_methods_get_one_line() {
    let endpoint = endpoint().await;
    let (status, body) = endpoint.get("/nope").await;
    assert_eq!((status, body.lines().count()), (404, 1));
    let (status, body) = split(&endpoint.ask("POST", "/livez").await);
    assert_eq!((status, body.lines().count()), (405, 1));
    let (status, body) = endpoint.get("/version").await;
    assert_eq!(status, 200);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&body).unwrap()["version"],
        env!("CARGO_PKG_VERSION")
    );
    endpoint.close().await;
}

#[tokio::test]
async fn silent_and_half_spoken_clients_do_not_delay_the_end() {
    let endpoint = endpoint().await;
    let silent = TcpStream::connect(endpoint.address).await.unwrap();
    let mut halfway = TcpStream::connect(endpoint.address).await.unwrap();
    halfway.write_all(b"GET /livez HTTP/1.1\r\nHo").await.unwrap();
    assert_eq!(endpoint.get("/livez").await.0, 200, "others are still served");
    let took = endpoint.close().await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    drop((silent, halfway));
}

#[tokio::test]
async fn more_silent_clients_than_places_keep_no_probe_out() {
    let endpoint = endpoint().await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(endpoint.address).await.unwrap());
    }
    assert_eq!(endpoint.get("/livez").await.0, 200);
    drop(silent);
    endpoint.close().await;
}

#[tokio::test]
async fn a_port_in_use_is_reported_in_one_sentence() {
    let endpoint = endpoint().await;
    let metrics = Metrics::new(endpoint.readiness.clone());
    let error =
        HealthServer::bind(endpoint.address, endpoint.readiness.clone(), Some(metrics)).await.unwrap_err();
    let expected = format!("health.listen {}: the port is in use by another process", endpoint.address);
    assert!(error.to_string().starts_with(&expected), "{error}");
    endpoint.close().await;
}
