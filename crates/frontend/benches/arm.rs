//! The resource manager's API, each figure with its baseline in the same run: a GET of one cluster through the whole stack at no less
//! than 0.40 of a bare axum route with a response of the same size; a PUT within twice its durable commit (of cluster, operation,
//! secret and work), and for comparison the fastest durable route and the commit of a single document (docs/decisions/0023); a page of
//! 100 clusters at the same cost among 1,000 and among 100,000.
//!
//! A missed goal is printed and does not fail the run: speed depends on the machine.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use api::clock::SystemClock;
use api::doc::secrets::CLIENT_SECRET;
use api::doc::{Cluster, Document, Operation, Subscription, SubscriptionState, Version};
use api::secret::Secret;
use bytes::Bytes;
use frontend::{Config, Deps, Metrics, Server};
use http::StatusCode;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{AuditContext, Keyring, Location, Options, Secrets, Store, Transaction};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const SUBSCRIPTION: &str = "11111111-1111-1111-1111-11111111aaaa";
/// Concurrent clients.
const CLIENTS: usize = 4;
/// Duration of a measurement, and number of alternating measurements.
const MEASUREMENT: Duration = Duration::from_millis(1000);
const ROUNDS: usize = 7;
/// Sequential PUTs and commits.
const WRITES: usize = 300;
/// Bytes that a PUT that creates appends to the WAL: 23 pages with their headers, as counted by `strace`.
const LOG_BYTES: usize = 23 * (4096 + 24);
/// Pages of each list in one round.
const PAGES: usize = 20;

type Http = Client<HttpConnector, Full<Bytes>>;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    println!("{:<52} {:>12} {:>12} {:>8} {:>8}", "", "measured", "baseline", "ratio", "goal");
    let directory = tempfile::tempdir()?;
    let shutdown = CancellationToken::new();
    let mut serving = JoinSet::new();
    let small = BenchServer::open(&directory.path().join("small.db"), &mut serving, &shutdown).await?;
    let large = BenchServer::open(&directory.path().join("large.db"), &mut serving, &shutdown).await?;
    let http: Http = Client::builder(TokioExecutor::new()).build_http();

    // The client is a task of the runtime, as a service's loop is, because the main function runs on a thread of its own.
    let mut requests = JoinSet::new();
    let raw = tempfile::tempfile_in(directory.path())?;
    requests.spawn(puts(small.url.clone(), small.store.clone(), raw));
    requests.join_next().await.context("the PUTs")???;
    gets(&http, &small.url, &mut serving, &shutdown).await?;
    pages(&http, &small, &large).await?;
    shutdown.cancel();
    while let Some(result) = serving.join_next().await {
        result??;
    }
    small.store.close().await;
    large.store.close().await;
    Ok(())
}

/// A frontend on a store of its own.
struct BenchServer {
    store: Store,
    url: String,
}

impl BenchServer {
    async fn open(
        file: &std::path::Path,
        serving: &mut JoinSet<anyhow::Result<()>>,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<BenchServer> {
        let location = Location::Sqlite(file.to_owned());
        let store = Store::open(Options::new(location, Keyring::ephemeral()?, Arc::new(SystemClock))).await?;
        prepare(&store).await?;
        let config = Config { insecure: true, listen: ([127, 0, 0, 1], 0).into(), ..Config::default() };
        let deps = Deps {
            store: store.clone(),
            clock: Arc::new(SystemClock),
            metrics: Metrics::default(),
            cloud: None,
        };
        let server = Server::bind(config, deps).await?;
        let url = server.url();
        let ending = shutdown.clone();
        serving.spawn(async move { server.serve(ending).await.map_err(anyhow::Error::from) });
        Ok(BenchServer { store, url })
    }
}

async fn prepare(store: &Store) -> anyhow::Result<()> {
    let by = AuditContext::service("bench");
    let subscription = Subscription {
        subscription_id: SUBSCRIPTION.to_owned(),
        state: SubscriptionState::Registered,
        tenant_id: None,
        registered_features: Vec::new(),
        body: Value::Null,
    };
    store.subscriptions().put(&subscription, None, &by).await?;
    let version = Version {
        version: "4.20.3".to_owned(),
        openshift_pullspec: "r".to_owned(),
        installer_pullspec: None,
        enabled: true,
        default: true,
    };
    store.versions().put(&version, None, &by).await?;
    Ok(())
}

fn path(group: &str, name: &str) -> String {
    format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.RedHatOpenShift/openShiftClusters{name}"
    )
}

fn body(name: &str) -> Value {
    let network = format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/Net/providers/Microsoft.Network/virtualNetworks/Vnet/subnets"
    );
    json!({
        "location": "local",
        "tags": {"team": "blue"},
        "properties": {
            "clusterProfile": {
                "domain": format!("d{}", Uuid::new_v5(&Uuid::NAMESPACE_DNS, name.as_bytes()).simple()),
                "version": "4.20.3",
                "resourceGroupId": format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/managed-{name}"),
                "fipsValidatedModules": "Disabled",
            },
            "servicePrincipalProfile": {"clientId": Uuid::new_v4().to_string(), "clientSecret": "secret"},
            "networkProfile": {"podCidr": "10.128.0.0/14", "serviceCidr": "172.30.0.0/16"},
            "masterProfile": {
                "vmSize": "Standard_D8s_v5",
                "subnetId": format!("{network}/master"),
                "encryptionAtHost": "Disabled",
            },
            "workerProfiles": [{
                "name": "worker",
                "vmSize": "Standard_D4s_v5",
                "diskSizeGB": 128,
                "subnetId": format!("{network}/worker"),
                "count": 3,
                "encryptionAtHost": "Disabled",
            }],
            "apiserverProfile": {"visibility": "Public"},
            "ingressProfiles": [{"name": "default", "visibility": "Public"}],
        },
    })
}

async fn get(http: &Http, url: &str) -> anyhow::Result<(StatusCode, Bytes)> {
    let response = http.get(url.parse()?).await?;
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

/// A document of a kind that the frontend does not follow: it would read another one during the next PUT.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Note {
    number: usize,
    text: String,
}

impl Document for Note {
    const KIND: &'static str = "note";

    fn path(&self) -> String {
        format!("/notes/{}", self.number)
    }

    fn scope(&self) -> String {
        "/notes".to_owned()
    }
}

/// A raw connection: a client with a pool has tasks of its own, and passing requests to them takes time that is not the server's.
struct RawConnection(BufStream<TcpStream>);

impl RawConnection {
    async fn open(url: &str) -> anyhow::Result<RawConnection> {
        let stream = TcpStream::connect(url.trim_start_matches("http://")).await?;
        stream.set_nodelay(true)?;
        Ok(RawConnection(BufStream::new(stream)))
    }

    /// Sends a request; returns the status line and the body.
    async fn send(&mut self, request: &[u8]) -> anyhow::Result<(String, Vec<u8>)> {
        self.0.write_all(request).await?;
        self.0.flush().await?;
        let (mut status, mut length) = (String::new(), 0);
        self.0.read_line(&mut status).await?;
        loop {
            let mut header = String::new();
            self.0.read_line(&mut header).await?;
            match header.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse()?;
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await?;
        Ok((status, body))
    }
}

/// The fastest durable PUT: a route that syncs the same number of bytes and responds with its body.
async fn bare_put(file: File, serving: &mut JoinSet<std::io::Result<()>>) -> anyhow::Result<String> {
    let file = Arc::new(file);
    file.write_all_at(&vec![1; LOG_BYTES], 0)?;
    file.sync_all()?;
    let put = async move |body: Bytes| {
        let written = tokio::task::block_in_place(|| {
            file.write_all_at(&[2; LOG_BYTES], 0).and_then(|()| file.sync_data())
        });
        let status = if written.is_ok() { StatusCode::CREATED } else { StatusCode::INTERNAL_SERVER_ERROR };
        (status, body)
    };
    let router = axum::Router::new().route("/bare", axum::routing::put(put));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    serving.spawn(async move { axum::serve(listener, router).await });
    Ok(url)
}

fn request(target: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "PUT {target} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// Measures a PUT that creates, its commit alone, the bare route and the commit of one document, alternately.
async fn puts(url: String, store: Store, file: File) -> anyhow::Result<()> {
    let by = AuditContext::service("bench");
    let found = store.subscriptions().find(&format!("/subscriptions/{SUBSCRIPTION}")).await?;
    let subscription = found.context("the subscription")?;
    let mut connection = RawConnection::open(&url).await?;
    // Aborted on drop.
    let mut serving = JoinSet::new();
    let mut bare = RawConnection::open(&bare_put(file, &mut serving).await?).await?;
    let (mut put_times, mut commit_times, mut document_times) = (Vec::new(), Vec::new(), Vec::new());
    let mut synced = Vec::new();
    for at in 0..WRITES {
        let name = format!("put-{at}");
        let sent = body(&name).to_string();
        let target = format!("{}?api-version=2025-07-25", path("puts", &format!("/{name}")));
        for (connection, target, took) in
            [(&mut connection, target.as_str(), &mut put_times), (&mut bare, "/bare", &mut synced)]
        {
            let request = request(target, &sent);
            let started = Instant::now();
            let (status, text) = connection.send(request.as_bytes()).await?;
            took.push(started.elapsed());
            anyhow::ensure!(
                status.starts_with("HTTP/1.1 201"),
                "{status}: {}",
                String::from_utf8_lossy(&text)
            );
        }

        let (cluster, operation) = copy(&store, &name).await?;
        let secrets = Secrets::from([(CLIENT_SECRET, Secret::new(b"secret".to_vec()))]);
        let started = Instant::now();
        let clusters = store.clusters();
        clusters.start_create_in(&subscription, &cluster, &operation, &secrets, &by).await?;
        commit_times.push(started.elapsed());

        let plain = Note { number: at, text: "x".repeat(2000) };
        let started = Instant::now();
        store.collection::<Note>().create(&plain, &by).await?;
        document_times.push(started.elapsed());
    }
    let put = median(put_times);
    report("PUT that creates, the commit that it makes", put, median(commit_times), Some(2.0));
    report("PUT that creates, a bare route that syncs as much", put, median(synced), None);
    report("PUT that creates, the commit of one document", put, median(document_times), None);
    Ok(())
}

/// A copy of the documents of a PUT, for another cluster.
async fn copy(store: &Store, name: &str) -> anyhow::Result<(Cluster, Operation)> {
    let created = store.clusters().find(&path("puts", &format!("/{name}"))).await?.context("the cluster")?;
    let operation = created.document.operation.context("the cluster's operation")?;
    let operation = store.operations().get(operation).await?.context("the operation")?;
    let (mut cluster, mut operation) = (created.document, operation.document);
    let other = format!("/twin-{name}");
    cluster.id = path("puts", &other);
    other[1..].clone_into(&mut cluster.name);
    cluster.credential = Some(Uuid::new_v4().to_string());
    cluster.managed_resource_group = cluster.managed_resource_group.map(|group| format!("{group}-twin"));
    let provisioned = cluster.provisioned.as_deref_mut().context("the specification")?;
    provisioned.spec.domain = format!("t{}", provisioned.spec.domain);
    provisioned.managed_domain = provisioned.managed_domain.as_ref().map(|domain| format!("t{domain}"));
    operation.id = Uuid::now_v7();
    operation.cluster = Uuid::now_v7();
    operation.cluster_path = cluster.id.to_ascii_lowercase();
    cluster.operation = Some(operation.id);
    Ok((cluster, operation))
}

/// Measures a GET of one cluster and a bare route with a response of the same size.
async fn gets(
    http: &Http,
    url: &str,
    serving: &mut JoinSet<anyhow::Result<()>>,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    let whole = format!("{url}{}?api-version=2025-07-25", path("puts", "/put-0"));
    let (_, shown) = get(http, &whole).await?;
    let router = axum::Router::new().route("/bare", axum::routing::get(async move || shown.clone()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let bare = format!("http://{}/bare", listener.local_addr()?);
    let ending = shutdown.clone();
    serving.spawn(async move {
        axum::serve(listener, router)
            .with_graceful_shutdown(ending.cancelled_owned())
            .await
            .context("the bare route")
    });
    // Measured alternately; the median round counts.
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push((rate(http, &whole).await?, rate(http, &bare).await?));
    }
    rounds.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let (found, floor) = rounds[ROUNDS / 2];
    let ratio = found / floor;
    let fits = if ratio >= 0.40 { "" } else { "  MISSED" };
    println!(
        "{:<52} {:>10.0}/s {:>10.0}/s {ratio:>8.2} {:>8}{fits}",
        "GET of one cluster, a bare axum route", found, floor, "≥ 0.40"
    );
    Ok(())
}

/// Requests per second of several clients with persistent connections.
async fn rate(http: &Http, url: &str) -> anyhow::Result<f64> {
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (http, url) = (http.clone(), url.to_owned());
        clients.spawn(async move {
            let mut count = 0_u32;
            while started.elapsed() < MEASUREMENT {
                let (status, text) = get(&http, &url).await?;
                anyhow::ensure!(status == StatusCode::OK, "{status}: {text:?}");
                count += 1;
            }
            Ok(count)
        });
    }
    let mut all = 0.0;
    while let Some(result) = clients.join_next().await {
        all += f64::from(result??);
    }
    Ok(all / started.elapsed().as_secs_f64())
}

/// Measures a page of 100 among few and among many clusters, alternately.
async fn pages(http: &Http, small: &BenchServer, large: &BenchServer) -> anyhow::Result<()> {
    let read = small.store.clusters().find(&path("puts", "/put-0")).await?;
    let mut template = read.context("the cluster that was put")?.document;
    // A managed domain belongs to one cluster.
    if let Some(provisioned) = template.provisioned.as_deref_mut() {
        provisioned.managed_domain = None;
    }
    fill(&small.store, &template, 0, 1_000).await?;
    fill(&large.store, &template, 0, 100_000).await?;
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        few.push(page_time(http, &small.url).await?);
        many.push(page_time(http, &large.url).await?);
    }
    report("page of 100 among 100,000, among 1,000", median(many), median(few), Some(1.25));
    Ok(())
}

async fn fill(store: &Store, template: &Cluster, from: usize, to: usize) -> anyhow::Result<()> {
    let by = AuditContext::service("bench");
    for block in (from..to).collect::<Vec<_>>().chunks(500) {
        let mut write = Transaction::new();
        for at in block {
            let name = format!("c{at:06}");
            let cluster = Cluster {
                id: path("many", &format!("/{name}")),
                name,
                operation: None,
                credential: None,
                managed_resource_group: None,
                ..template.clone()
            };
            write = write.create(Uuid::now_v7(), &cluster, &by)?;
        }
        store.commit(write).await?;
    }
    Ok(())
}

/// The median time of the first pages.
async fn page_time(http: &Http, url: &str) -> anyhow::Result<Duration> {
    let first = format!("{url}{}?api-version=2025-07-25&limit=100", path("many", ""));
    let mut next = first.clone();
    let mut took = Vec::new();
    for _ in 0..PAGES {
        let started = Instant::now();
        let (status, text) = get(http, &next).await?;
        took.push(started.elapsed());
        let page: Value = serde_json::from_slice(&text)?;
        anyhow::ensure!(
            status == StatusCode::OK && page["value"].as_array().is_some_and(|it| it.len() == 100),
            "{page}"
        );
        // Both lists restart at the same name, so that both read the same pages.
        let is_last = page["value"][99]["name"] == "c000999";
        next = page["nextLink"].as_str().filter(|_| !is_last).map_or_else(|| first.clone(), str::to_owned);
    }
    Ok(median(took))
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// Prints a measurement and its ratio to the baseline, which should be at most `goal`.
fn report(name: &str, measured: Duration, floor: Duration, goal: Option<f64>) {
    let ratio = measured.as_secs_f64() / floor.as_secs_f64();
    let fits = if goal.is_none_or(|goal| ratio <= goal) { "" } else { "  MISSED" };
    let goal = goal.map(|goal| format!("≤ {goal}")).unwrap_or_default();
    let ms = |it: Duration| format!("{:.2} ms", it.as_secs_f64() * 1000.0);
    println!("{name:<52} {:>12} {:>12} {ratio:>8.2} {goal:>8}{fits}", ms(measured), ms(floor));
}
