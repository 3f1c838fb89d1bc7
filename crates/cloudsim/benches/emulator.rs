//! The emulated resource manager with the resources of 100 clusters: GETs of one resource over 16 connections with TLS, beside a bare
//! axum route with a response of the same size in the same run; lists and PUTs; and the memory of the process that serves and asks.
//!
//! A missed goal is printed and does not fail the run: speed depends on the machine.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use cloudsim::{Endpoints, Options, Service};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use serve::pki::{CertificateAuthority, CertificateRequest, Purpose, Validity};
use serve::{Listener, ListenerLimits, SharedService, tls};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

const CLUSTERS: usize = 100;
const CONNECTIONS: usize = 16;
/// Duration of a measurement, and number of alternating measurements.
const SLICE: Duration = Duration::from_secs(1);
const ROUNDS: usize = 5;
/// GETs per second that the emulator has to reach.
const GETS_GOAL: f64 = 2_000.0;
const MEMORY_GOAL_MIB: u64 = 150;
const VERSION: &str = "2024-05-01";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // The arguments of `cargo bench` are ignored.
    let directory = tempfile::tempdir()?;
    let shutdown = CancellationToken::new();
    let mut serving = JoinSet::new();
    let options = Options { directory: Some(directory.path().join("cloud")), ..Options::default() };
    let service = Service::open(options).await?;
    let endpoints = service.endpoints();
    let stop = shutdown.clone();
    serving.spawn(async move { service.serve(stop).await.map_err(anyhow::Error::from) });

    let emulator = Target::new(&endpoints.resource_manager, Path::new(&endpoints.ca_file))?;
    let token = token(&emulator, &endpoints).await?;
    let started = Instant::now();
    let written = populate(&emulator, &endpoints, &token).await?;
    let puts = per_second(written, started.elapsed());
    let memory = resident_mib()?;

    let group = group_path(&endpoints, 0);
    let balancer =
        format!("{group}/providers/Microsoft.Network/loadBalancers/internal?api-version={VERSION}");
    let get = request("GET", &balancer, &token, None);
    let list = request("GET", &format!("{group}/resources?api-version={VERSION}"), &token, None);
    let (_, body) = emulator.connect().await?.send(&get).await?;
    let bare = bare_route(body, &mut serving, &shutdown).await?;
    let bare_get = request("GET", "/bare", &token, None);

    // The first pair only warms up.
    rate(&emulator, &get, SLICE / 4).await?;
    rate(&bare, &bare_get, SLICE / 4).await?;
    let (mut gets, mut bare_gets, mut lists) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        gets.push(rate(&emulator, &get, SLICE).await?);
        bare_gets.push(rate(&bare, &bare_get, SLICE).await?);
        lists.push(rate(&emulator, &list, SLICE / 2).await?);
    }
    let (gets, bare_gets) = (median(gets), median(bare_gets));
    let verdict = |is_met: bool| if is_met { "pass" } else { "MISS" };
    println!("{written} resources of {CLUSTERS} clusters, {CONNECTIONS} connections with TLS");
    println!(
        "{:<30} {:>8.0}/s   bare route {:>8.0}/s   ratio {:>5.2}   goal at least {GETS_GOAL:.0}/s   {}",
        "GET of a load balancer",
        gets,
        bare_gets,
        gets / bare_gets,
        verdict(gets >= GETS_GOAL)
    );
    println!("{:<30} {:>8.0}/s", "list of a group's resources", median(lists));
    println!("{:<30} {:>8.0}/s", "PUT on one connection", puts);
    println!(
        "{:<30} {:>6} MiB   goal at most {MEMORY_GOAL_MIB} MiB   {}",
        "memory after the PUTs",
        memory,
        verdict(memory <= MEMORY_GOAL_MIB)
    );
    shutdown.cancel();
    while let Some(result) = serving.join_next().await {
        result??;
    }
    Ok(())
}

/// A server, and what is needed to connect to it.
struct Target {
    address: String,
    connector: TlsConnector,
}

impl Target {
    fn new(url: &str, authority: &Path) -> anyhow::Result<Target> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(authority)? {
            roots.add(certificate?)?;
        }
        let config = rustls::ClientConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let address = url.trim_start_matches("https://").to_owned();
        Ok(Target { address, connector: TlsConnector::from(Arc::new(config)) })
    }

    async fn connect(&self) -> anyhow::Result<Connection> {
        let tcp = TcpStream::connect(&self.address).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        Ok(Connection { stream: BufStream::new(self.connector.connect(name, tcp).await?) })
    }
}

/// A connection that sends one request after the other.
struct Connection {
    stream: BufStream<TlsStream<TcpStream>>,
}

impl Connection {
    /// The status and the body of a response, which has a length.
    async fn send(&mut self, request: &[u8]) -> anyhow::Result<(u16, Vec<u8>)> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        let mut line = String::new();
        self.stream.read_line(&mut line).await?;
        let status: u16 = line.split(' ').nth(1).context("a status line")?.parse()?;
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line).await?;
            match line.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse()?;
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        Ok((status, body))
    }

    async fn send_expecting_success(&mut self, request: &[u8]) -> anyhow::Result<Vec<u8>> {
        let (status, body) = self.send(request).await?;
        anyhow::ensure!((200..300).contains(&status), "{status} {}", String::from_utf8_lossy(&body));
        Ok(body)
    }
}

fn request(method: &str, path: &str, token: &str, body: Option<&Value>) -> Vec<u8> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// A token of the emulator's own principal.
async fn token(emulator: &Target, endpoints: &Endpoints) -> anyhow::Result<String> {
    let secret = std::fs::read_to_string(&endpoints.client_secret_file)?;
    let scope = "https%3A%2F%2Fmanagement.azure.com%2F.default";
    let form = format!(
        "grant_type=client_credentials&client_id={}&client_secret={secret}&scope={scope}",
        endpoints.client_id
    );
    let request = format!(
        "POST /{}/oauth2/v2.0/token HTTP/1.1\r\nhost: 127.0.0.1\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{form}",
        endpoints.tenant_id,
        form.len()
    );
    let body = emulator.connect().await?.send_expecting_success(request.as_bytes()).await?;
    let body: Value = serde_json::from_slice(&body)?;
    Ok(body["access_token"].as_str().context("a token")?.to_owned())
}

fn group_path(endpoints: &Endpoints, cluster: usize) -> String {
    format!("/subscriptions/{}/resourceGroups/cluster-{cluster}", endpoints.subscription_id)
}

/// Creates the resources of the clusters, as a create plan and an installer do, and returns their number.
async fn populate(emulator: &Target, endpoints: &Endpoints, token: &str) -> anyhow::Result<u32> {
    let mut connection = emulator.connect().await?;
    let mut written = 0;
    for cluster in 0..CLUSTERS {
        let group = group_path(endpoints, cluster);
        // The quotas of a location suffice for a few clusters.
        let location = format!("location{}", cluster / 5);
        for (path, body) in cluster_resources(&group, &location, cluster) {
            let path = format!("{path}?api-version={VERSION}");
            let put = request("PUT", &path, token, Some(&body));
            connection.send_expecting_success(&put).await.with_context(|| format!("PUT {path}"))?;
            written += 1;
        }
    }
    Ok(written)
}

/// Paths and bodies in the order in which they are created.
fn cluster_resources(group: &str, location: &str, cluster: usize) -> Vec<(String, Value)> {
    let network = format!("{group}/providers/Microsoft.Network");
    let id = |kind: &str, name: &str| format!("{network}/{kind}/{name}");
    let subnet = id("virtualNetworks", "vnet/subnets/machines");
    let at = |properties: Value| json!({ "location": location, "properties": properties });
    let standard = |properties: Value| json!({ "location": location, "sku": { "name": "Standard" }, "properties": properties });
    let lb = id("loadBalancers", "internal");
    let pool = json!({ "id": format!("{lb}/backendAddressPools/pool") });
    let rule = |name: &str, port: u16| {
        json!({ "name": name, "properties": {
            "protocol": "Tcp", "frontendPort": port, "backendPort": port, "idleTimeoutInMinutes": 30,
            "frontendIPConfiguration": { "id": format!("{lb}/frontendIPConfigurations/internal-lb-ip-v4") },
            "backendAddressPool": pool, "probe": { "id": format!("{lb}/probes/api") } } })
    };
    let mut found = vec![
        (group.to_owned(), json!({ "location": location })),
        (id("networkSecurityGroups", "nsg"), at(json!({}))),
        (
            id("virtualNetworks", "vnet"),
            at(json!({ "addressSpace": { "addressPrefixes": ["10.0.0.0/16"] }, "subnets": [
                { "name": "machines", "properties": { "addressPrefix": "10.0.0.0/24",
                    "networkSecurityGroup": { "id": id("networkSecurityGroups", "nsg") } } }] })),
        ),
        (id("publicIPAddresses", "api"), standard(json!({ "publicIPAllocationMethod": "Static" }))),
        (
            lb.clone(),
            standard(json!({
                "frontendIPConfigurations": [
                    { "name": "internal-lb-ip-v4", "properties": { "subnet": { "id": subnet } } }],
                "backendAddressPools": [{ "name": "pool" }],
                "probes": [{ "name": "api", "properties": { "protocol": "Tcp", "port": 6443 } }],
                "loadBalancingRules": [rule("api-internal-v4", 6443), rule("sint-v4", 22623)] })),
        ),
        (
            id("loadBalancers", "public"),
            standard(json!({ "frontendIPConfigurations": [{ "name": "front", "properties": {
                "publicIPAddress": { "id": id("publicIPAddresses", "api") } } }] })),
        ),
        (id("privateDnsZones", &format!("c{cluster}.internal")), json!({ "location": "global" })),
    ];
    for account in ["cluster", "registry"] {
        let accounts = format!("{group}/providers/Microsoft.Storage/storageAccounts");
        let sku = json!({ "name": "Standard_LRS" });
        let body = json!({ "location": location, "kind": "StorageV2", "sku": sku, "properties": {} });
        found.push((format!("{accounts}/{account}{cluster:04}"), body));
    }
    for operator in 0..9 {
        let identities = format!("{group}/providers/Microsoft.ManagedIdentity/userAssignedIdentities");
        found.push((format!("{identities}/operator-{operator}"), json!({ "location": location })));
    }
    for machine in 0..6 {
        let interface = id("networkInterfaces", &format!("m{machine}-nic"));
        found.push((
            interface.clone(),
            at(json!({ "ipConfigurations": [{ "name": "ip", "properties": {
                "subnet": { "id": subnet }, "loadBalancerBackendAddressPools": [pool] } }] })),
        ));
        found.push((
            format!("{group}/providers/Microsoft.Compute/virtualMachines/m{machine}"),
            at(json!({
                "hardwareProfile": { "vmSize": "Standard_D2s_v5" },
                "networkProfile": { "networkInterfaces": [{ "id": interface }] } })),
        ));
    }
    found
}

/// Serves a body at `/bare` by the same kind of listener, without anything behind it.
async fn bare_route(
    body: Vec<u8>,
    serving: &mut JoinSet<anyhow::Result<()>>,
    shutdown: &CancellationToken,
) -> anyhow::Result<Target> {
    let authority = CertificateAuthority::generate("bench", Validity::UNLIMITED)?;
    let issued = authority.issue(&CertificateRequest {
        common_name: "localhost",
        organization: None,
        alternative_names: vec!["127.0.0.1".to_owned()],
        purpose: Purpose::Server,
        validity: Validity::UNLIMITED,
    })?;
    let certificate = tls::fixed_certificate(&issued.certificate, &issued.key)?;
    let config = tls::server_config(certificate, tls::ClientCertificates::NotRequested)?;
    let limits = ListenerLimits { connections_per_address: 1_000, ..ListenerLimits::default() };
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), limits).await?.with_tls(config);
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), authority.certificate())?;
    let target = Target::new(&listener.url(), file.path())?;
    let body = bytes::Bytes::from(body);
    let router = axum::Router::new().route("/bare", axum::routing::get(async move || body.clone()));
    let stop = shutdown.clone();
    let service = SharedService(router);
    serving.spawn(async move {
        listener.serve(service, stop).await;
        Ok(())
    });
    Ok(target)
}

/// Requests per second over all connections.
async fn rate(target: &Target, request: &[u8], slice: Duration) -> anyhow::Result<f64> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(target.connect().await?);
    }
    let started = Instant::now();
    let end = started + slice;
    let mut clients = JoinSet::new();
    for mut connection in connections {
        let request = request.to_vec();
        clients.spawn(async move {
            let mut done = 0_u32;
            while Instant::now() < end {
                connection.send_expecting_success(&request).await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let mut done = 0;
    while let Some(client) = clients.join_next().await {
        done += client??;
    }
    Ok(per_second(done, started.elapsed()))
}

fn per_second(count: u32, elapsed: Duration) -> f64 {
    f64::from(count) / elapsed.as_secs_f64()
}

/// The resident memory of this process.
fn resident_mib() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|it| it.starts_with("VmRSS:")).context("VmRSS")?;
    let kib: u64 = line.split_whitespace().nth(1).context("a number")?.parse()?;
    Ok(kib / 1024)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
