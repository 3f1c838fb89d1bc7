//! The calls without which no cluster can be created, as plain requests: what one needs comes before it, and what is independent runs at
//! the same time. Writes of one network follow each other, as Azure demands.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use bytes::Bytes;
use cloud::ResourceId;
use cloudsim::Endpoints;
use futures_util::future::try_join_all;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tokio::try_join;
use uuid::Uuid;

use crate::service::{LOCATION, service};

const ARM_SCOPE: &str = "https://management.azure.com/.default";
const VAULT_SCOPE: &str = "https://vault.azure.net/.default";
const GROUPS: &str = "2021-04-01";
const NETWORK: &str = "2024-05-01";
const COMPUTE: &str = "2024-07-01";
const SKUS: &str = "2021-07-01";
const DNS: &str = "2018-05-01";
const STORAGE: &str = "2023-05-01";
const AUTHORIZATION: &str = "2022-04-01";
const REGISTRY: &str = "2023-07-01";
const VAULT: &str = "2025-07-01";
/// The built-in role Contributor.
const CONTRIBUTOR: &str = "b24988ac-6180-42a0-ab88-20f7382dd24c";
/// Reads of a resource until it is ready.
const READS_MAX: usize = 1000;

/// A cluster whose network and principal exist.
pub(crate) struct PreparedCluster {
    pub(crate) name: String,
    pub(crate) subscription: String,
    pub(crate) master: ResourceId,
    pub(crate) worker: ResourceId,
    pub(crate) client_id: String,
    pub(crate) secret: String,
}

/// A response.
struct Answer {
    status: u16,
    location: Option<String>,
    body: Value,
}

/// Plain requests to the emulator, with the tokens of the service.
pub(crate) struct BareClient {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    endpoints: Endpoints,
    token: String,
    vault_token: String,
    sent: AtomicUsize,
}

impl BareClient {
    pub(crate) async fn new(endpoints: Endpoints) -> anyhow::Result<BareClient> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(Path::new(&endpoints.ca_file))? {
            roots.add(certificate?)?;
        }
        let config =
            rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots)
                .with_no_client_auth();
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_only()
            .enable_http1()
            .wrap_connector(connector);
        let http = Client::builder(TokioExecutor::new()).build(https);
        let (token, vault_token, sent) = (String::new(), String::new(), AtomicUsize::new(0));
        let mut client = BareClient { http, endpoints, token, vault_token, sent };
        let secret = std::fs::read_to_string(&client.endpoints.client_secret_file)?;
        let client_id = client.endpoints.client_id.clone();
        client.token = client.token_of(&client_id, secret.trim(), ARM_SCOPE).await?;
        client.vault_token = client.token_of(&client_id, secret.trim(), VAULT_SCOPE).await?;
        Ok(client)
    }

    /// The number of requests since the last call.
    pub(crate) fn take_sent(&self) -> usize {
        self.sent.swap(0, Ordering::Relaxed)
    }

    /// Makes all calls of a create up to the request of the installation.
    pub(crate) async fn create(&self, cluster: &PreparedCluster) -> anyhow::Result<()> {
        let PreparedCluster { name, subscription, .. } = cluster;
        let (master, worker) = self.validate(cluster).await?;
        let group = ResourceId::group(subscription, &format!("aro-{name}"));
        self.put(group.as_str(), GROUPS, &json!({ "location": LOCATION })).await?;
        let network = |kind: &str, name: &str| group.sibling("Microsoft.Network", kind, name).to_string();
        let internal = network("loadBalancers", "infra-internal");
        let zone = service().zone_id(&service().domain_in(LOCATION));
        let links = async {
            let security_group = network("networkSecurityGroups", "infra-nsg");
            self.put(&security_group, NETWORK, &located(json!({ "securityRules": [rule()] }))).await?;
            // Both are in one network.
            for (id, mut body) in [(&cluster.master, master), (&cluster.worker, worker)] {
                body["properties"]["networkSecurityGroup"] = json!({ "id": security_group });
                body["properties"]["privateLinkServiceNetworkPolicies"] = json!("Disabled");
                body["properties"]["serviceEndpoints"] = ["Microsoft.ContainerRegistry", "Microsoft.Storage"]
                    .map(|it| json!({ "service": it, "locations": ["*"] }))
                    .into();
                self.put(id.as_str(), NETWORK, &body).await?;
            }
            let frontend =
                json!({ "name": "internal-lb-ip-v4", "properties": { "subnet": { "id": cluster.master } } });
            self.put(&internal, NETWORK, &balancer(&internal, &frontend, &[6443, 22623])).await?;
            let read_back = self.get(&internal, NETWORK);
            let link = network("privateLinkServices", "infra-pls");
            let endpoint = async {
                let body = located(json!({
                    "loadBalancerFrontendIpConfigurations":
                        [{ "id": format!("{internal}/frontendIPConfigurations/internal-lb-ip-v4") }],
                    "ipConfigurations": [{ "name": "nic", "properties": { "subnet": { "id": cluster.master } } }],
                    "visibility": { "subscriptions": [service().subscription] },
                    "autoApproval": { "subscriptions": [service().subscription] } }));
                self.put(&link, NETWORK, &body).await?;
                let own = service().group_id().sibling(
                    "Microsoft.Network",
                    "privateEndpoints",
                    &format!("rp-pe-{name}"),
                );
                let body = located(json!({
                    "subnet": { "id": service().subnet_id() },
                    "manualPrivateLinkServiceConnections":
                        [{ "name": "pe", "properties": { "privateLinkServiceId": link } }] }));
                self.put(own.as_str(), NETWORK, &body).await?;
                self.get_with(own.as_str(), NETWORK, "&$expand=networkInterfaces").await
            };
            try_join!(read_back, endpoint).map(drop)
        };
        let addresses = async {
            let [api, ingress] =
                ["infra-pip-v4", "infra-default-v4"].map(|it| network("publicIPAddresses", it));
            let body = standard(json!({ "publicIPAllocationMethod": "Static" }));
            let (api_body, ingress_body) =
                try_join!(self.put(&api, NETWORK, &body), self.put(&ingress, NETWORK, &body))?;
            let public = network("loadBalancers", "infra");
            let frontend =
                json!({ "name": "public-lb-ip-v4", "properties": { "publicIPAddress": { "id": api } } });
            let body = balancer(&public, &frontend, &[6443]);
            let record = async |label: &str, address: &Value| {
                let address = address["properties"]["ipAddress"].as_str().context("an address")?;
                let body = json!({ "properties": { "TTL": 300, "ARecords": [{ "ipv4Address": address }] } });
                self.put(zone.child("A", &format!("{label}.{name}")).as_str(), DNS, &body).await
            };
            try_join!(
                self.put(&public, NETWORK, &body),
                record("api", &api_body),
                record("*.apps", &ingress_body)
            )
            .map(drop)
        };
        let role = async {
            let id = Uuid::new_v4();
            let path = format!("{group}/providers/Microsoft.Authorization/roleAssignments/{id}");
            let role = format!(
                "/subscriptions/{subscription}/providers/Microsoft.Authorization/roleDefinitions/{CONTRIBUTOR}"
            );
            let properties = json!({ "roleDefinitionId": role, "principalId": cluster.client_id,
                "principalType": "ServicePrincipal" });
            self.put(&path, AUTHORIZATION, &json!({ "properties": properties })).await
        };
        let account = async |purpose: &str, containers: &[&str]| {
            let id = group.sibling("Microsoft.Storage", "storageAccounts", &format!("{purpose}{name}"));
            let sku = json!({ "name": "Standard_LRS" });
            let body = json!({ "location": LOCATION, "kind": "StorageV2", "sku": sku, "properties": {} });
            self.put(id.as_str(), STORAGE, &body).await?;
            let container = async |container: &&str| {
                let path = format!("{id}/blobServices/default/containers/{container}");
                self.put(&path, STORAGE, &json!({})).await
            };
            try_join_all(containers.iter().map(container)).await
        };
        let certificate = async |use_: &str, label: &str| {
            self.certificate(&format!("{name}-{use_}"), &format!("{label}.{name}.aro.example")).await
        };
        try_join!(
            links,
            addresses,
            role,
            account("cluster", &["ignition", "aro"]),
            account("registry", &["image-registry"]),
            self.pull_token(name),
            certificate("apiserver", "api"),
            certificate("ingress", "*.apps"),
        )?;
        Ok(())
    }

    /// Reads what a create validates before it changes anything; returns both subnets.
    async fn validate(&self, cluster: &PreparedCluster) -> anyhow::Result<(Value, Value)> {
        let PreparedCluster { name, subscription, master, worker, client_id, secret } = cluster;
        let network = master.parent().context("a network")?;
        let provider = |rest: &str| format!("/subscriptions/{subscription}/providers/{rest}");
        let scopes = [network.as_str(), master.as_str(), worker.as_str()];
        let permissions = async |token: &str| {
            let paths = scopes.map(|it| format!("{it}/providers/Microsoft.Authorization/permissions"));
            try_join_all(paths.iter().map(|it| self.send(Method::GET, it, AUTHORIZATION, "", token, None)))
                .await
        };
        let of_customer = async { permissions(&self.token_of(client_id, secret, ARM_SCOPE).await?).await };
        let denials = async {
            let paths = scopes.map(|it| format!("{it}/providers/Microsoft.Authorization/denyAssignments"));
            try_join_all(paths.iter().map(|it| self.get(it, AUTHORIZATION))).await
        };
        let zone = service().zone_id(&service().domain_in(LOCATION));
        let record = |label: &str| zone.child("A", &format!("{label}.{name}"));
        let (api, apps, group) =
            (record("api"), record("*.apps"), ResourceId::group(subscription, &format!("aro-{name}")));
        // They must not exist, or be ours.
        let free = async {
            try_join!(
                self.send(Method::GET, api.as_str(), DNS, "", &self.token, None),
                self.send(Method::GET, apps.as_str(), DNS, "", &self.token, None),
                self.send(Method::GET, group.as_str(), GROUPS, "", &self.token, None),
            )
        };
        let (skus, cores, addresses, providers) = (
            provider("Microsoft.Compute/skus"),
            provider(&format!("Microsoft.Compute/locations/{LOCATION}/usages")),
            provider(&format!("Microsoft.Network/locations/{LOCATION}/usages")),
            format!("/subscriptions/{subscription}/providers"),
        );
        let filter = format!("&$filter=location%20eq%20'{LOCATION}'");
        let subnets =
            async { try_join!(self.get(master.as_str(), NETWORK), self.get(worker.as_str(), NETWORK)) };
        let (subnets, ..) = try_join!(
            subnets,
            of_customer,
            permissions(&self.token),
            denials,
            free,
            self.get_with(&skus, SKUS, &filter),
            self.get(&cores, COMPUTE),
            self.get(&addresses, NETWORK),
            self.get(&providers, GROUPS),
            self.get(network.as_str(), NETWORK),
            self.get(zone.as_str(), DNS),
        )?;
        Ok(subnets)
    }

    /// A token of the registry with a password.
    async fn pull_token(&self, name: &str) -> anyhow::Result<()> {
        let registry = &self.endpoints.registry;
        let path = format!("{registry}/tokens/token-{name}");
        let scope_map = format!("{registry}/scopeMaps/_repositories_pull");
        let body = json!({ "properties": { "scopeMapId": scope_map, "status": "enabled" } });
        self.put(&path, REGISTRY, &body).await?;
        let body = json!({ "tokenId": path, "name": "password1" });
        let path = format!("{registry}/generateCredentials");
        let url = format!("{}{path}?api-version={REGISTRY}", self.endpoints.resource_manager);
        let token = Some(self.token.as_str());
        let mut answer = self.exchange(Method::POST, &url, token, body.to_string()).await?;
        while answer.status == 202 {
            let location = answer.location.context("a location")?;
            answer = self.exchange(Method::GET, &location, token, String::new()).await?;
        }
        anyhow::ensure!(answer.body["passwords"].is_array(), "{} {}", answer.status, answer.body);
        Ok(())
    }

    async fn certificate(&self, name: &str, dns_name: &str) -> anyhow::Result<()> {
        let vault = self.endpoints.vaults.values().next().context("a vault")?;
        let url = |rest: &str| format!("{vault}/certificates/{name}/{rest}?api-version={VAULT}");
        let policy = json!({
            "key_props": { "kty": "RSA", "key_size": 2048, "exportable": true },
            "secret_props": { "contentType": "application/x-pem-file" },
            "x509_props": { "subject": "CN=bench", "sans": { "dns_names": [dns_name] }, "validity_months": 3 },
            "issuer": { "name": "SimulatedCloud" } });
        let token = Some(self.vault_token.as_str());
        let body = json!({ "policy": policy }).to_string();
        let answer = self.exchange(Method::POST, &url("create"), token, body).await?;
        anyhow::ensure!(answer.status == 202, "{} {}", answer.status, answer.body);
        let operation = self.exchange(Method::GET, &url("pending"), token, String::new()).await?.body;
        anyhow::ensure!(operation["status"] == "completed", "{operation}");
        Ok(())
    }

    async fn token_of(&self, client_id: &str, secret: &str, scope: &str) -> anyhow::Result<String> {
        let Endpoints { authority, tenant_id, .. } = &self.endpoints;
        let url = format!("{authority}/{tenant_id}/oauth2/v2.0/token");
        let form = format!(
            "grant_type=client_credentials&client_id={client_id}&client_secret={secret}&scope={scope}"
        );
        let answer = self.exchange(Method::POST, &url, None, form).await?;
        Ok(answer.body["access_token"].as_str().context("a token")?.to_owned())
    }

    async fn get(&self, path: &str, version: &str) -> anyhow::Result<Value> {
        self.get_with(path, version, "").await
    }

    async fn get_with(&self, path: &str, version: &str, query: &str) -> anyhow::Result<Value> {
        let (status, body) = self.send(Method::GET, path, version, query, &self.token, None).await?;
        anyhow::ensure!(status == 200, "GET {path}: {status} {body}");
        Ok(body)
    }

    /// Writes a resource, and reads it until it is ready unless it is so at once.
    async fn put(&self, path: &str, version: &str, body: &Value) -> anyhow::Result<Value> {
        let (status, mut body) = self.send(Method::PUT, path, version, "", &self.token, Some(body)).await?;
        anyhow::ensure!((200..300).contains(&status), "PUT {path}: {status} {body}");
        for _ in 0..READS_MAX {
            match body["properties"]["provisioningState"].as_str() {
                None if !body.is_null() => return Ok(body),
                Some("Succeeded") => return Ok(body),
                _ => body = self.get(path, version).await?,
            }
        }
        anyhow::bail!("PUT {path}: {body} does not become ready")
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        version: &str,
        query: &str,
        token: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(u16, Value)> {
        let url = format!("{}{path}?api-version={version}{query}", self.endpoints.resource_manager);
        let body = body.map(Value::to_string).unwrap_or_default();
        let answer = self.exchange(method, &url, Some(token), body).await?;
        Ok((answer.status, answer.body))
    }

    async fn exchange(
        &self,
        method: Method,
        url: &str,
        token: Option<&str>,
        body: String,
    ) -> anyhow::Result<Answer> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let kind = if token.is_some() { "application/json" } else { "application/x-www-form-urlencoded" };
        let mut request = Request::builder().method(method).uri(url).header("content-type", kind);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = self.http.request(request.body(Full::new(Bytes::from(body)))?).await?;
        let status = response.status().as_u16();
        let location = response.headers().get("location").and_then(|it| it.to_str().ok()).map(str::to_owned);
        let body = response.into_body().collect().await?.to_bytes();
        Ok(Answer { status, location, body: serde_json::from_slice(&body).unwrap_or_default() })
    }
}

fn located(properties: Value) -> Value {
    json!({ "location": LOCATION, "properties": properties })
}

fn standard(properties: Value) -> Value {
    json!({ "location": LOCATION, "sku": { "name": "Standard" }, "properties": properties })
}

fn rule() -> Value {
    json!({ "name": "apiserver_in", "properties": { "protocol": "Tcp", "sourcePortRange": "*",
        "destinationPortRange": "6443", "sourceAddressPrefix": "*", "destinationAddressPrefix": "*",
        "access": "Allow", "priority": 120, "direction": "Inbound" } })
}

/// A load balancer with one frontend, and a rule with its probe for each port.
fn balancer(id: &str, frontend: &Value, ports: &[u16]) -> Value {
    let part = |kind: &str, name: &str| json!({ "id": format!("{id}/{kind}/{name}") });
    let frontend_name = frontend["name"].as_str().unwrap_or_default();
    let rules: Vec<Value> = ports
        .iter()
        .map(|port| {
            json!({ "name": format!("rule-{port}"), "properties": {
                "frontendIPConfiguration": part("frontendIPConfigurations", frontend_name),
                "backendAddressPool": part("backendAddressPools", "infra"),
                "probe": part("probes", &format!("probe-{port}")),
                "protocol": "Tcp", "frontendPort": port, "backendPort": port, "idleTimeoutInMinutes": 30 } })
        })
        .collect();
    let probes: Vec<Value> = ports
        .iter()
        .map(|port| json!({ "name": format!("probe-{port}"), "properties": { "protocol": "Tcp", "port": port } }))
        .collect();
    standard(json!({ "frontendIPConfigurations": [frontend], "backendAddressPools": [{ "name": "infra" }],
        "loadBalancingRules": rules, "probes": probes }))
}
