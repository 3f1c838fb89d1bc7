//! The resource manager's API, driven from outside.

mod callers;
mod catalogue;
mod changes;
mod cloud;
mod hostile;
mod lists;
mod operations;
mod put;
mod rules;
mod states;
mod subscriptions;
mod workload;

use std::time::Duration;

use api::doc::{Cluster, Operation, ProvisioningState};
use http::Method;
use serde_json::{Value, json};
use store::AuditContext;

use crate::fixture::{Reply, TestServer};

pub(crate) const SUBSCRIPTION: &str = "11111111-1111-1111-1111-11111111aaaa";
pub(crate) const NEW: &str = "2025-07-25";
pub(crate) const OLD: &str = "2023-11-22";
pub(crate) const CLIENT_SECRET: &str = "hunter2-client-secret";
pub(crate) const PULL_SECRET: &str = r#"{"auths":{"registry.example":{"auth":"aHVudGVyMg=="}}}"#;

/// The resource id of a cluster in mixed case.
pub(crate) fn rid(name: &str) -> String {
    format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/MyGroup/providers/Microsoft.RedHatOpenShift/openShiftClusters/{name}"
    )
}

/// The path of a cluster with a version.
pub(crate) fn at(name: &str, version: &str) -> String {
    format!("{}?api-version={version}", rid(name))
}

/// A valid body with unique names.
pub(crate) fn body(name: &str) -> Value {
    let network = format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/Net/providers/Microsoft.Network/virtualNetworks/Vnet/subnets"
    );
    let client = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, name.as_bytes());
    json!({
        "location": "local",
        "tags": {"team": "blue"},
        "properties": {
            "clusterProfile": {
                "pullSecret": PULL_SECRET,
                "domain": domain(name),
                "version": "4.20.3",
                "resourceGroupId": format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/Managed-{name}"),
                "fipsValidatedModules": "Disabled",
            },
            "servicePrincipalProfile": {"clientId": client.to_string(), "clientSecret": CLIENT_SECRET},
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

/// A unique DNS label for each name: some names are too long for a label, or begin with an invalid character.
fn domain(name: &str) -> String {
    let id = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_DNS, name.to_lowercase().as_bytes());
    format!("d{}", id.simple())
}

/// The body with one member set by its JSON pointer; null removes it.
pub(crate) fn with(mut body: Value, pointer: &str, value: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = body.pointer_mut(parent).unwrap_or_else(|| panic!("no {pointer}"));
    match parent {
        Value::Object(members) if value.is_null() => drop(members.remove(name)),
        Value::Object(members) => drop(members.insert(name.to_owned(), value)),
        Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
        other => panic!("{other} has no members"),
    }
    body
}

impl TestServer {
    /// Registers the subscription and stores versions.
    pub(crate) async fn register(&self) {
        let subscription = json!({"state": "Registered", "properties": {"tenantId": "t"}});
        let reply = self.put(&format!("/subscriptions/{SUBSCRIPTION}?api-version=2.0"), &subscription).await;
        assert!(reply.status.is_success(), "{}", reply.text);
        frontend::seed_defaults(&self.store, &AuditContext::service("test")).await.unwrap();
        self.until_offered("4.20.3").await;
    }

    /// Waits until a version is listed; the server loads it after an event of the change feed.
    pub(crate) async fn until_offered(&self, version: &str) {
        let path = format!(
            "/subscriptions/{SUBSCRIPTION}/providers/Microsoft.RedHatOpenShift/locations/local/openShiftVersions/{version}?api-version={NEW}"
        );
        let offered = async {
            while self.get(&path).await.status != 200 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), offered).await.unwrap();
    }

    /// A server with one cluster in this state.
    pub(crate) async fn with_cluster(name: &str, state: ProvisioningState) -> TestServer {
        let server = TestServer::open().await;
        server.register().await;
        server.put(&at(name, NEW), &body(name)).await.expect(201);
        server.settle(name, state, None).await;
        server
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Reply {
        self.send(Method::PATCH, path, &[], Some(body.to_string().into())).await
    }

    pub(crate) async fn cluster(&self, name: &str) -> Cluster {
        self.store.clusters().find(&rid(name)).await.unwrap().unwrap().document
    }

    /// Completes an operation as a backend does.
    pub(crate) async fn settle(
        &self,
        name: &str,
        state: ProvisioningState,
        failed: Option<ProvisioningState>,
    ) {
        let by = AuditContext::service("test");
        let read = self.store.clusters().find(&rid(name)).await.unwrap().unwrap();
        let wanted = Cluster {
            provisioning_state: state,
            failed_provisioning_state: failed,
            operation: if state.is_terminal() { None } else { read.document.operation },
            ..read.document.clone()
        };
        if let Some(id) = read.document.operation.filter(|_| state.is_terminal()) {
            let operation = self.store.collection::<Operation>().get(id).await.unwrap().unwrap();
            let ended = Operation {
                status: state,
                end_time: Some(api::clock::Clock::now(&api::clock::SystemClock)),
                snapshot: Some(serde_json::to_value(&wanted).unwrap()),
                ..operation.document.clone()
            };
            self.store.collection::<Operation>().update(&operation, &ended, &by).await.unwrap();
        }
        self.store.clusters().update(&read, &wanted, &by).await.unwrap();
    }
}
