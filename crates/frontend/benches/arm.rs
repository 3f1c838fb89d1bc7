//! The resource manager's API, each figure beside its floor in the same run: a GET of one cluster through the whole stack at no
//! less than 0.40 of a bare axum route that answers as many bytes; a PUT within twice the one durable commit that it is (of cluster,
//! operation, secret and work), and beside it what the machine allows at all and the commit of a single document
//! (docs/decisions/0023); a page of 100 clusters at the same cost among 1,000 and among 100,000.
//!
//! A missed goal is printed, and the run still ends well: speed depends on the machine.

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
/// Clients that ask at once.
const CLIENTS: usize = 4;
/// How long a rate is measured, and how often, one beside the other.
const TURN: Duration = Duration::from_millis(1000);
const TURNS: usize = 7;
/// PUTs and commits, one after another.
const WRITES: usize = 300;
/// What the log takes of a PUT that creates: 23 pages with their headers, as counted by `strace`.
const LOG_BYTES: usize = 23 * (4096 + 24);
/// Pages of each list in one turn.
const PAGES: usize = 20;

type Http = Client<HttpConnector, Full<Bytes>>;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    println!("{:<52} {:>12} {:>12} {:>8} {:>8}", "", "measured", "floor", "ratio", "goal");
    let directory = tempfile::tempdir()?;
    let shutdown = CancellationToken::new();
    let mut serving = JoinSet::new();
    let small = House::open(&directory.path().join("small.db"), &mut serving, &shutdown).await?;
    let large = House::open(&directory.path().join("large.db"), &mut serving, &shutdown).await?;
    let http: Http = Client::builder(TokioExecutor::new()).build_http();

    // Whoever asks is a task of the runtime, as a service's loop is: its main function sits on a thread of its own.
    let mut asking = JoinSet::new();
    let raw = tempfile::tempfile_in(directory.path())?;
    asking.spawn(puts(small.url.clone(), small.store.clone(), raw));
    asking.join_next().await.context("the PUTs")???;
    gets(&http, &small.url, &mut serving, &shutdown).await?;
    pages(&http, &small, &large).await?;
    shutdown.cancel();
    while let Some(ended) = serving.join_next().await {
        ended??;
    }
    small.store.close().await;
    large.store.close().await;
    Ok(())
}

/// A frontend on a store of its own.
struct House {
    store: Store,
    url: String,
}

impl House {
    async fn open(
        file: &std::path::Path,
        serving: &mut JoinSet<anyhow::Result<()>>,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<House> {
        let location = Location::Sqlite(file.to_owned());
        let store = Store::open(Options::new(location, Keyring::ephemeral()?, Arc::new(SystemClock))).await?;
        furnish(&store).await?;
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
        Ok(House { store, url })
    }
}

async fn furnish(store: &Store) -> anyhow::Result<()> {
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

async fn ask(http: &Http, url: &str) -> anyhow::Result<(StatusCode, Bytes)> {
    let response = http.get(url.parse()?).await?;
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

/// A document that nobody waits for: one of a kind that the frontend follows would be read by it beside the next PUT.
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

/// A connection with nothing between it and whoever measures: a client with a pool has tasks of its own, and to hand requests
/// over to them takes time that is not the server's.
struct Wire(BufStream<TcpStream>);

impl Wire {
    async fn open(url: &str) -> anyhow::Result<Wire> {
        let stream = TcpStream::connect(url.trim_start_matches("http://")).await?;
        stream.set_nodelay(true)?;
        Ok(Wire(BufStream::new(stream)))
    }

    /// The status of the answer, and its body.
    async fn ask(&mut self, request: &[u8]) -> anyhow::Result<(String, Vec<u8>)> {
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

/// The least that a durable PUT can be: a route that takes a body, syncs as many bytes as ours, and answers as many.
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

/// A PUT that creates, beside the commit that it makes, what the machine allows, and the commit of one document, turn and turn
/// about.
async fn puts(url: String, store: Store, file: File) -> anyhow::Result<()> {
    let by = AuditContext::service("bench");
    let found = store.subscriptions().find(&format!("/subscriptions/{SUBSCRIPTION}")).await?;
    let subscription = found.context("the subscription")?;
    let mut wire = Wire::open(&url).await?;
    // It ends with us.
    let mut serving = JoinSet::new();
    let mut bare = Wire::open(&bare_put(file, &mut serving).await?).await?;
    let (mut answered, mut begun_alone, mut committed) = (Vec::new(), Vec::new(), Vec::new());
    let mut synced = Vec::new();
    for at in 0..WRITES {
        let name = format!("put-{at}");
        let sent = body(&name).to_string();
        let target = format!("{}?api-version=2025-07-25", path("puts", &format!("/{name}")));
        for (wire, target, took) in
            [(&mut wire, target.as_str(), &mut answered), (&mut bare, "/bare", &mut synced)]
        {
            let request = request(target, &sent);
            let begun = Instant::now();
            let (status, text) = wire.ask(request.as_bytes()).await?;
            took.push(begun.elapsed());
            anyhow::ensure!(
                status.starts_with("HTTP/1.1 201"),
                "{status}: {}",
                String::from_utf8_lossy(&text)
            );
        }

        let (cluster, operation) = twin(&store, &name).await?;
        let secrets = Secrets::from([(CLIENT_SECRET, Secret::new(b"secret".to_vec()))]);
        let begun = Instant::now();
        let clusters = store.clusters();
        clusters.start_create_in(&subscription, &cluster, &operation, &secrets, &by).await?;
        begun_alone.push(begun.elapsed());

        let plain = Note { number: at, text: "x".repeat(2000) };
        let begun = Instant::now();
        store.collection::<Note>().create(&plain, &by).await?;
        committed.push(begun.elapsed());
    }
    let put = median(answered);
    told("PUT that creates, the commit that it makes", put, median(begun_alone), Some(2.0));
    told("PUT that creates, a bare route that syncs as much", put, median(synced), None);
    told("PUT that creates, the commit of one document", put, median(committed), None);
    Ok(())
}

/// What a PUT has just written, for another cluster.
async fn twin(store: &Store, name: &str) -> anyhow::Result<(Cluster, Operation)> {
    let made = store.clusters().find(&path("puts", &format!("/{name}"))).await?.context("the cluster")?;
    let operation = made.document.operation.context("the cluster's operation")?;
    let operation = store.operations().get(operation).await?.context("the operation")?;
    let (mut cluster, mut operation) = (made.document, operation.document);
    let other = format!("/twin-{name}");
    cluster.id = path("puts", &other);
    other[1..].clone_into(&mut cluster.name);
    cluster.credential = Some(Uuid::new_v4().to_string());
    cluster.managed_resource_group = cluster.managed_resource_group.map(|group| format!("{group}-twin"));
    let provisioned = cluster.provisioned.as_deref_mut().context("what was asked for")?;
    provisioned.spec.domain = format!("t{}", provisioned.spec.domain);
    provisioned.managed_domain = provisioned.managed_domain.as_ref().map(|domain| format!("t{domain}"));
    operation.id = Uuid::now_v7();
    operation.cluster = Uuid::now_v7();
    operation.cluster_path = cluster.id.to_ascii_lowercase();
    cluster.operation = Some(operation.id);
    Ok((cluster, operation))
}

/// A GET of one cluster, beside a bare route that answers as much.
async fn gets(
    http: &Http,
    url: &str,
    serving: &mut JoinSet<anyhow::Result<()>>,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    let whole = format!("{url}{}?api-version=2025-07-25", path("puts", "/put-0"));
    let (_, shown) = ask(http, &whole).await?;
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
    // One beside the other, in turns; the turn in the middle counts.
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        turns.push((rate(http, &whole).await?, rate(http, &bare).await?));
    }
    turns.sort_by(|one, other| (one.0 / one.1).total_cmp(&(other.0 / other.1)));
    let (found, floor) = turns[TURNS / 2];
    let ratio = found / floor;
    let fits = if ratio >= 0.40 { "" } else { "  MISSED" };
    println!(
        "{:<52} {:>10.0}/s {:>10.0}/s {ratio:>8.2} {:>8}{fits}",
        "GET of one cluster, a bare axum route", found, floor, "≥ 0.40"
    );
    Ok(())
}

/// Requests in a second, by several clients on connections that stay.
async fn rate(http: &Http, url: &str) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (http, url) = (http.clone(), url.to_owned());
        clients.spawn(async move {
            let mut answered = 0_u32;
            while begun.elapsed() < TURN {
                let (status, text) = ask(&http, &url).await?;
                anyhow::ensure!(status == StatusCode::OK, "{status}: {text:?}");
                answered += 1;
            }
            Ok(answered)
        });
    }
    let mut all = 0.0;
    while let Some(ended) = clients.join_next().await {
        all += f64::from(ended??);
    }
    Ok(all / begun.elapsed().as_secs_f64())
}

/// A page of 100, among few and among many, turn and turn about.
async fn pages(http: &Http, small: &House, large: &House) -> anyhow::Result<()> {
    let read = small.store.clusters().find(&path("puts", "/put-0")).await?;
    let mut like = read.context("the cluster that was put")?.document;
    // A name in our zone belongs to one cluster.
    if let Some(provisioned) = like.provisioned.as_deref_mut() {
        provisioned.managed_domain = None;
    }
    fill(&small.store, &like, 0, 1_000).await?;
    fill(&large.store, &like, 0, 100_000).await?;
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        few.push(walk(http, &small.url).await?);
        many.push(walk(http, &large.url).await?);
    }
    told("page of 100 among 100,000, among 1,000", median(many), median(few), Some(1.25));
    Ok(())
}

async fn fill(store: &Store, like: &Cluster, from: usize, to: usize) -> anyhow::Result<()> {
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
                ..like.clone()
            };
            write = write.create(Uuid::now_v7(), &cluster, &by)?;
        }
        store.commit(write).await?;
    }
    Ok(())
}

/// The median cost of pages from the beginning on.
async fn walk(http: &Http, url: &str) -> anyhow::Result<Duration> {
    let first = format!("{url}{}?api-version=2025-07-25&limit=100", path("many", ""));
    let mut next = first.clone();
    let mut took = Vec::new();
    for _ in 0..PAGES {
        let begun = Instant::now();
        let (status, text) = ask(http, &next).await?;
        took.push(begun.elapsed());
        let page: Value = serde_json::from_slice(&text)?;
        anyhow::ensure!(
            status == StatusCode::OK && page["value"].as_array().is_some_and(|it| it.len() == 100),
            "{page}"
        );
        // Both walks turn round at the same place, so that both read the same pages.
        let is_turn = page["value"][99]["name"] == "c000999";
        next = page["nextLink"].as_str().filter(|_| !is_turn).map_or_else(|| first.clone(), str::to_owned);
    }
    Ok(median(took))
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// Prints a figure that should be at most so many times its floor.
fn told(what: &str, measured: Duration, floor: Duration, goal: Option<f64>) {
    let ratio = measured.as_secs_f64() / floor.as_secs_f64();
    let fits = if goal.is_none_or(|goal| ratio <= goal) { "" } else { "  MISSED" };
    let goal = goal.map(|goal| format!("≤ {goal}")).unwrap_or_default();
    let ms = |it: Duration| format!("{:.2} ms", it.as_secs_f64() * 1000.0);
    println!("{what:<52} {:>12} {:>12} {ratio:>8.2} {goal:>8}{fits}", ms(measured), ms(floor));
}
