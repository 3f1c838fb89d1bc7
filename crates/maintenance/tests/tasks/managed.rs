//! The tasks for clusters that we made: on a real API server with OpenShift's kinds, beside a vault and a registry in memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use api::clock::{Clock as _, ManualClock, SharedClock, SystemClock};
use api::doc::{
    Cluster, Identity, MasterPool, NetworkSpec, OutboundType, Provisioned, ProvisioningState, Record,
    RegistryToken, Spec, Switch, SystemData, Visibility,
};
use api::secret::Secret;
use api::work::WorkState;
use cloud::{
    CertificateSpec, CloudError, Credential, Identities, IssuedCertificate, Permission, Principal,
    ResourceId, RoleAssignment, VaultCertificate, VaultSecret,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::Api;
use kubelink::Link;
use kubelink::apply::{ApplyOptions, Documents, apply};
use planner::task::Catalogue;
use serde_json::{Value, json};
use steps::ClusterContext;
use steps::credentials::ManagedCluster;
use steps::lifecycle::ClusterRecords;
use store::{AuditContext, Store, Transaction};
use uuid::Uuid;

use crate::environment::{RunResult, TestRun, facts, real};
use crate::fault_runs::is;
use crate::secrets::pair;
use crate::sim::{FaultRun, WorldCheck};

/// OpenShift kinds that the tasks configure, with the objects of an installation.
pub(crate) const OPENSHIFT: &str = include_str!("openshift.yaml");

/// Cluster of every test; the names of its certificates contain its uuid.
pub(crate) const CLUSTER: Uuid = Uuid::from_u128(0x0e5);

/// Vault and identity service in memory.
#[derive(Debug, Default)]
pub(crate) struct Vault {
    certificates: Mutex<BTreeMap<String, IssuedCertificate>>,
    secrets: Mutex<BTreeMap<String, VaultSecret>>,
    clock: Mutex<Option<SharedClock>>,
    /// Whether every call fails.
    pub(crate) unavailable: AtomicBool,
}

impl Vault {
    fn at(clock: SharedClock) -> Vault {
        Vault { clock: Mutex::new(Some(clock)), ..Vault::default() }
    }

    fn now(&self) -> Timestamp {
        self.clock.lock().unwrap().as_ref().map_or_else(|| SystemClock.now(), |clock| clock.now())
    }

    fn here(&self, what: &str) -> Result<(), CloudError> {
        match self.unavailable.load(Ordering::SeqCst) {
            true => Err(CloudError::Unavailable { what: what.to_owned(), source: None }),
            false => Ok(()),
        }
    }

    /// Issues a version of a certificate.
    pub(crate) fn issue(&self, name: &str, dns_name: &str) -> String {
        let issued = self.issued(name, dns_name, 365);
        let chain = issued.chain_pem.clone();
        self.certificates.lock().unwrap().insert(name.to_owned(), issued);
        chain
    }

    fn issued(&self, name: &str, dns_name: &str, days: i64) -> IssuedCertificate {
        let (chain_pem, key) = pair(dns_name);
        let certificate = VaultCertificate {
            name: name.to_owned(),
            dns_names: vec![dns_name.to_owned()],
            version: Some(Uuid::new_v4().to_string()),
            not_before: Some(self.now()),
            not_after: Some(self.now() + SignedDuration::from_hours(24 * days)),
            issuing: false,
        };
        IssuedCertificate { certificate, chain_pem, key_pem: Secret::new(key) }
    }

    pub(crate) fn versions_of_secrets(&self) -> Vec<String> {
        self.secrets.lock().unwrap().values().map(|it| it.version.clone()).collect()
    }
}

fn unsupported<T>(call: &str) -> Result<T, CloudError> {
    Err(CloudError::Unavailable { what: format!("{call}, which no task needs"), source: None })
}

#[async_trait::async_trait]
impl cloud::Vault for Vault {
    async fn certificate(&self, name: &str) -> Result<Option<IssuedCertificate>, CloudError> {
        self.here("the vault")?;
        Ok(self.certificates.lock().unwrap().get(name).cloned())
    }

    async fn put_secret(
        &self,
        name: &str,
        value: &str,
        expires: Option<Timestamp>,
    ) -> Result<VaultSecret, CloudError> {
        self.here("the vault")?;
        let version = Uuid::new_v4().to_string();
        let secret =
            VaultSecret { name: name.to_owned(), version, expires, value: Secret::new(value.to_owned()) };
        self.secrets.lock().unwrap().insert(name.to_owned(), secret.clone());
        Ok(secret)
    }

    async fn secret(&self, name: &str) -> Result<Option<VaultSecret>, CloudError> {
        self.here("the vault")?;
        Ok(self.secrets.lock().unwrap().get(name).cloned())
    }

    async fn ensure_certificate(&self, _: &CertificateSpec) -> Result<VaultCertificate, CloudError> {
        unsupported("ensure_certificate")
    }
    async fn renew_certificate(&self, _: &str, _: Option<&str>) -> Result<VaultCertificate, CloudError> {
        unsupported("renew_certificate")
    }
    async fn delete_certificate(&self, _: &str) -> Result<(), CloudError> {
        unsupported("delete_certificate")
    }
    async fn delete_secret(&self, _: &str) -> Result<(), CloudError> {
        unsupported("delete_secret")
    }
}

#[async_trait::async_trait]
impl Identities for Vault {
    async fn identity_certificate(&self, identity: &ResourceId) -> Result<IssuedCertificate, CloudError> {
        self.here("the identity service")?;
        Ok(self.issued(identity.name(), "identity.example", 90))
    }

    async fn principal(&self, _: &Credential) -> Result<Principal, CloudError> {
        unsupported("principal")
    }
    async fn permissions(
        &self,
        _: &Credential,
        _: &ResourceId,
        _: &[&str],
    ) -> Result<Vec<Permission>, CloudError> {
        unsupported("permissions")
    }
    async fn assign_role(&self, _: &RoleAssignment) -> Result<(), CloudError> {
        unsupported("assign_role")
    }
    async fn role_assignments(&self, _: &ResourceId) -> Result<Vec<RoleAssignment>, CloudError> {
        unsupported("role_assignments")
    }
    async fn revoke_role(&self, _: &ResourceId, _: &str) -> Result<(), CloudError> {
        unsupported("revoke_role")
    }
}

const IDENTITY: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/g/providers/\
                        Microsoft.ManagedIdentity/userAssignedIdentities/one";

/// Document of a managed cluster.
fn document() -> Cluster {
    let group = "/subscriptions/00000000-0000-0000-0000-000000000000/resourcegroups/g";
    let spec = Spec {
        domain: "harbour".to_owned(),
        version: "4.17.3".to_owned(),
        resource_group_id: format!("{group}-managed"),
        fips: Switch::Disabled,
        identity: Identity::Workload {
            resource_id: IDENTITY.to_owned(),
            tenant_id: None,
            identity_url: None,
            platform: BTreeMap::new(),
            upgradeable_to: None,
        },
        network: NetworkSpec {
            pod_cidr: "10.128.0.0/14".to_owned(),
            service_cidr: "172.30.0.0/16".to_owned(),
            outbound_type: OutboundType::Loadbalancer,
            preconfigured_nsg: Switch::Disabled,
            managed_outbound_ips: Some(1),
        },
        master: MasterPool {
            vm_size: "Standard_D8s_v3".to_owned(),
            subnet_id: format!("{group}/subnet"),
            encryption_at_host: Switch::Disabled,
            disk_encryption_set_id: None,
        },
        workers: Vec::new(),
        api_visibility: Visibility::Public,
        ingress: Vec::new(),
    };
    let provisioned = Provisioned {
        tags: BTreeMap::new(),
        system_data: SystemData::default(),
        spec,
        managed_domain: None,
        record: Record::default(),
        created_by: String::new(),
        provisioned_by: String::new(),
        bucket: 0,
        last_admin_update_error: None,
    };
    Cluster {
        subscription_id: "00000000-0000-0000-0000-000000000000".to_owned(),
        name: "harbour".to_owned(),
        location: "here".to_owned(),
        provisioned: Some(Box::new(provisioned)),
        ..Cluster::new(
            format!("{group}/providers/Microsoft.RedHatOpenShift/openShiftClusters/harbour"),
            ProvisioningState::Succeeded,
            Timestamp::UNIX_EPOCH,
        )
    }
}

/// Stores a managed cluster, changed by `change`, with a vault that has its certificates.
async fn managed_cluster_with_vault(
    store: &Store,
    clock: SharedClock,
    change: impl FnOnce(&mut Provisioned),
) -> (ManagedCluster, Arc<Vault>) {
    let vault = Arc::new(Vault::at(clock));
    vault.issue(&format!("{CLUSTER}-apiserver"), "api.harbour.example");
    vault.issue(&format!("{CLUSTER}-ingress"), "*.apps.harbour.example");
    (managed_cluster_in(store, vault.clone(), vault.clone(), change).await, vault)
}

/// Stores a managed cluster with any vault and identity service.
pub(crate) async fn managed_cluster_in(
    store: &Store,
    vault: Arc<dyn cloud::Vault>,
    identities: Arc<dyn Identities>,
    change: impl FnOnce(&mut Provisioned),
) -> ManagedCluster {
    let mut cluster = document();
    change(cluster.provisioned.as_mut().unwrap());
    if store.clusters().get(CLUSTER).await.unwrap().is_none() {
        let write = Transaction::new().create(CLUSTER, &cluster, &AuditContext::service("test")).unwrap();
        store.commit(write).await.unwrap();
    }
    let provisioned = cluster.provisioned.unwrap();
    let records = ClusterRecords { store: store.clone(), cluster: CLUSTER, service: "test" };
    ManagedCluster { records, provisioned, vault, identities }
}

/// Stores a managed cluster with everything valid that a task checks.
pub(crate) async fn managed_cluster(store: &Store) -> ManagedCluster {
    let good = |it: &mut Provisioned| {
        it.record.registry_token = Some(RegistryToken {
            registry: "registry.example".to_owned(),
            name: "token-1".to_owned(),
            issued: Some(SystemClock.now()),
            expires: None,
        });
    };
    managed_cluster_with_vault(store, Arc::new(SystemClock), good).await.0
}

/// Managed cluster in a store of its own.
struct Site {
    test: TestRun,
    vault: Arc<Vault>,
    clock: Arc<ManualClock>,
    context: Arc<ClusterContext>,
}

impl Site {
    async fn new(link: Link, change: impl FnOnce(&mut Provisioned)) -> Site {
        let test = TestRun::new().await;
        let clock = ManualClock::at(SystemClock.now());
        let (ours, vault) = managed_cluster_with_vault(&test.store, clock.clone(), change).await;
        let context = ClusterContext::new(link, facts(), clock.clone()).with_managed(ours);
        Site { test, vault, clock, context: Arc::new(context) }
    }

    /// Runs a task once, as a manifest of its own.
    async fn run(&self, name: &str) -> RunResult {
        let test = self.test.another().await;
        let catalogue = Catalogue::builtin();
        test.run_with(catalogue.find(name).unwrap(), &json!({}), self.context.clone()).await
    }

    async fn record(&self) -> Record {
        let read = self.test.store.clusters().get(CLUSTER).await.unwrap().unwrap();
        read.document.provisioned.unwrap().record
    }
}

async fn apply_objects(link: &Link, objects: &str) {
    let documents = Documents::parse(objects).unwrap();
    apply(link, &documents, &ApplyOptions::default(), &kubelink::ProgressSink::disabled()).await.unwrap();
}

pub(crate) async fn object(
    link: &Link,
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
) -> Value {
    let (resource, _) = link.resolve(api_version, kind).await.unwrap();
    let target =
        kubelink::Target { resource, namespace: namespace.map(str::to_owned), name: name.to_owned() };
    serde_json::to_value(link.get(&target).await.unwrap().unwrap()).unwrap()
}

pub(crate) async fn certificate_of(link: &Link, namespace: &str, name: &str) -> Option<String> {
    let secrets: Api<KubeSecret> = Api::namespaced(link.client(), namespace);
    let data = secrets.get_opt(name).await.unwrap()?.data?;
    String::from_utf8(data["tls.crt"].0.clone()).ok()
}

/// Whether the cluster uses the certificates with its uuid.
async fn uses_certificates(link: &Link) -> Result<(), String> {
    let (api, ingress) = (format!("{CLUSTER}-apiserver"), format!("{CLUSTER}-ingress"));
    is(certificate_of(link, "openshift-config", &api).await.is_some(), "the API server's Secret is missing")?;
    is(
        certificate_of(link, "openshift-ingress", &ingress).await.is_some(),
        "the ingress's Secret is missing",
    )?;
    let server = object(link, "config.openshift.io/v1", "APIServer", None, "cluster").await;
    let named = &server["spec"]["servingCerts"]["namedCertificates"];
    let wanted = json!([{"names": ["api.harbour.example"], "servingCertificate": {"name": api}}]);
    is(*named == wanted, format!("{named}"))?;
    let place = Some("openshift-ingress-operator");
    let way = object(link, "operator.openshift.io/v1", "IngressController", place, "default").await;
    is(way["spec"]["defaultCertificate"]["name"] == ingress, format!("{way:#}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn rotate_certificates_copies_the_newest_ones_into_the_cluster_and_configures_them() {
    let Some(real) = real() else { return };
    let link = real.link();
    apply_objects(&link, OPENSHIFT).await;
    let site = Site::new(link.clone(), |_| {}).await;
    let end = site.run("9b741734-6505-447f-8510-85eb0ae561a2").await;
    assert_eq!(end.state, WorkState::Completed, "{}", end.messages());
    uses_certificates(&link).await.unwrap();
    let record = site.record().await;
    assert!(record.api_certificate_expires.is_some() && record.ingress_certificate_expires.is_some());

    let renewed = site.vault.issue(&format!("{CLUSTER}-apiserver"), "api.harbour.example");
    let end = site.run("rotate-certificates").await;
    let message = end.message();
    assert!(
        end.messages().contains("replaced")
            && end.messages().contains("is up to date")
            && message.contains("already"),
        "{message}"
    );
    let shown = certificate_of(&link, "openshift-config", &format!("{CLUSTER}-apiserver")).await;
    assert_eq!(shown.as_deref(), Some(renewed.as_str()));
    let all = format!("{:?} {:?} {:?}", end.work, end.entries, site.record().await);
    assert!(!all.contains("PRIVATE KEY"), "no key is shown");

    // For now: the vault does not answer. For good: what should be configured is not there. Nothing to do: the customer's own.
    site.vault.unavailable.store(true, Ordering::SeqCst);
    let end = site.run("rotate-certificates").await;
    assert_eq!(end.state, WorkState::Pending, "{}", end.messages());
    assert!(end.messages().matches("did not respond").count() >= 2, "both were tried: {}", end.messages());
    let own = Site::new(link.clone(), |it| {
        it.spec.domain = "shop.customer.example".to_owned();
    })
    .await;
    let end = own.run("rotate-certificates").await;
    assert_eq!(end.state, WorkState::Completed);
    assert!(
        end.message().contains("the customer manages the domain and its certificates"),
        "{}",
        end.message()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_openshift_kinds_is_a_terminal_error() {
    let sim = kubesim::SimulatedCluster::start("plain", kubesim::ClusterOptions::default()).await.unwrap();
    let link = Link::from_client("plain", sim.client(), Arc::new(SystemClock));
    apply_objects(&link, "apiVersion: v1\nkind: Namespace\nmetadata: {name: openshift-config}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: openshift-ingress}\n").await;
    let site = Site::new(link, |_| {}).await;
    let end = site.run("rotate-certificates").await;
    assert_eq!(end.state, WorkState::Failed, "{}", end.messages());
    assert!(end.message().contains("APIServer"), "{}", end.message());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_imported_cluster_is_rejected_with_a_message() {
    let sim = kubesim::SimulatedCluster::start("imported", kubesim::ClusterOptions::default()).await.unwrap();
    let link = Link::from_client("imported", sim.client(), Arc::new(SystemClock));
    for name in ["rotate-certificates", "check-registry-token", "renew-identity-certificate"] {
        let end = crate::environment::run_builtin(name, &json!({}), &link).await;
        assert_eq!((end.state, end.code().as_str()), (WorkState::Failed, "NotOurs"), "{name}");
        assert!(end.message().contains("was not provisioned by Shipshape"), "{name}: {}", end.message());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_registry_token_reports_the_validity_and_fails_when_rotation_is_due() {
    let sim = kubesim::SimulatedCluster::start("token", kubesim::ClusterOptions::default()).await.unwrap();
    let link = Link::from_client("token", sim.client(), Arc::new(SystemClock));
    let issued = SystemClock.now();
    let site = Site::new(link, |it| {
        it.record.registry_token = Some(RegistryToken {
            registry: "registry.example".to_owned(),
            name: "token-1".to_owned(),
            issued: Some(issued),
            expires: None,
        });
    })
    .await;
    let before = site.record().await;
    let end = site.run("082978ce-3700-4972-835f-53d48658d291").await;
    assert_eq!(end.state, WorkState::Completed, "{}", end.messages());
    assert!(end.message().contains("good for 180 more days"), "{}", end.message());
    for (days, code) in [(150, "RotationDue"), (50, "TokenExpired")] {
        site.clock.advance(SignedDuration::from_hours(24 * days));
        let end = site.run("check-registry-token").await;
        assert_eq!((end.state, end.code().as_str()), (WorkState::Failed, code), "{}", end.messages());
    }
    assert_eq!(site.record().await, before, "it only looks");
}

#[tokio::test(flavor = "multi_thread")]
async fn renew_identity_certificate_creates_verifies_and_renews() {
    let sim = kubesim::SimulatedCluster::start("identity", kubesim::ClusterOptions::default()).await.unwrap();
    let link = Link::from_client("identity", sim.client(), Arc::new(SystemClock));
    let site = Site::new(link.clone(), |_| {}).await;
    let run = async |word: &str| {
        let end = site.run("7c3f8e2d-9a4b-4f1e-8c5d-2b6a9e7f3d1c").await;
        assert_eq!(end.state, WorkState::Completed, "{}", end.messages());
        assert!(end.message().contains(word), "{word} in {}", end.message());
        assert!(!format!("{:?} {:?}", end.work, end.entries).contains("PRIVATE KEY"), "no key is shown");
        (site.vault.versions_of_secrets(), site.record().await.identity_certificate_expires.unwrap())
    };
    let created = run("was created").await;
    assert_eq!(run("was verified").await, created, "nothing is written again");
    site.clock.advance(SignedDuration::from_hours(24 * 46));
    let renewed = run("was renewed").await;
    assert!(renewed.0 != created.0 && renewed.1 > created.1);
    site.clock.advance(SignedDuration::from_hours(24 * 46));
    site.vault.unavailable.store(true, Ordering::SeqCst);
    assert_eq!(site.run("renew-identity-certificate").await.state, WorkState::Pending, "it may be back");

    let principal = Site::new(link, |it| {
        it.spec.identity = Identity::ServicePrincipal { client_id: "one".to_owned() };
    })
    .await;
    let end = principal.run("renew-identity-certificate").await;
    assert_eq!(end.state, WorkState::Completed);
    assert!(end.message().contains("service principal"), "{}", end.message());
    assert!(principal.vault.versions_of_secrets().is_empty());
}

/// Task on a managed cluster in a simulated world.
fn fault_run(name: &str, done: WorldCheck) -> FaultRun {
    let task = Catalogue::builtin().find(name).unwrap().clone();
    let undone = crate::fault_runs::nothing;
    FaultRun {
        task,
        parameters: json!({}),
        objects: OPENSHIFT.to_owned(),
        done,
        undone,
        ours: true,
        machines: false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rotate_certificates_survives_every_fault() {
    let done: WorldCheck = |link, _| Box::pin(async move { uses_certificates(&link).await });
    fault_run("rotate-certificates", done).all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_registry_token_survives_every_fault() {
    fault_run("check-registry-token", crate::fault_runs::nothing).all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renew_identity_certificate_survives_every_fault() {
    fault_run("renew-identity-certificate", crate::fault_runs::nothing).all().await;
}
