//! The rotation of certificates on a cluster that the simulated cloud's own installer made, with the certificates of its vault.
//! What a new certificate comes to is the operators' business: they roll it out, and the cluster tells of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::clock::SystemClock;
use api::install::{InstallRequest, InstallStage, Installer as _, MachinePool};
use api::work::WorkState;
use cloud::{
    CertificateSpec, Infrastructure as _, IssuedCertificate, LoadBalancerFrontend, Properties, ResourceId,
    ResourceRequest, Vault as _,
};
use cloudsim::SimClient;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kubelink::Link;
use planner::task::Catalogue;
use serde_json::json;
use steps::ClusterContext;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::environment::{RunResult, TestRun, eventually, facts, link_to};
use crate::managed::{CLUSTER, certificate_of, managed_cluster_in, object};

const LOCATION: &str = "westeurope";

async fn put(cloud: &SimClient, id: &ResourceId, properties: Properties) {
    let request =
        ResourceRequest { id: id.clone(), location: LOCATION.to_owned(), tags: BTreeMap::new(), properties };
    cloud.azure().put(request).await.unwrap();
}

/// What a customer and the backend have made when the installer is called, and its order.
async fn prepared(cloud: &SimClient) -> InstallRequest {
    let group = |name: &str| ResourceId::group("11111111-1111-1111-1111-111111111111", name);
    let (around, managed) = (group("net"), group("harbour-managed"));
    put(cloud, &around, Properties::ResourceGroup { managed_by: None }).await;
    put(cloud, &managed, Properties::ResourceGroup { managed_by: Some("harbour".to_owned()) }).await;
    let network = around.sibling("Microsoft.Network", "virtualNetworks", "v");
    put(cloud, &network, Properties::VirtualNetwork { address_space: vec!["10.0.0.0/16".to_owned()] }).await;
    let subnet = network.child("subnets", "all");
    let of_network = Properties::Subnet {
        address_prefix: "10.0.0.0/23".to_owned(),
        security_group: None,
        route_table: None,
        nat_gateway: None,
        service_endpoints: Vec::new(),
        private_link_policies: true,
    };
    put(cloud, &subnet, of_network).await;
    let load_balancer = managed.sibling("Microsoft.Network", "loadBalancers", "harbour-internal");
    let frontend = LoadBalancerFrontend {
        name: "internal".to_owned(),
        public_ip: None,
        subnet: Some(subnet.clone()),
        address: None,
        ports: vec![6443],
    };
    let balanced =
        Properties::LoadBalancer { frontends: vec![frontend], backends: Vec::new(), outbound: Vec::new() };
    put(cloud, &load_balancer, balanced).await;
    let machines = |name: &str| MachinePool {
        name: name.to_owned(),
        count: 3,
        size: "Standard_D8s_v5".to_owned(),
        disk_size_gb: 128,
        subnet: subnet.clone(),
    };
    InstallRequest {
        cluster: CLUSTER,
        name: "harbour".to_owned(),
        infra_id: "harbour-x7k2p".to_owned(),
        location: LOCATION.to_owned(),
        version: "4.17.3".to_owned(),
        domain: "harbour.example.test".to_owned(),
        group: managed,
        zones: ["1", "2", "3"].map(str::to_owned).to_vec(),
        masters: machines("master"),
        workers: vec![machines("worker")],
        load_balancer,
    }
}

/// The newest version of a certificate, once it is not the one that is known.
async fn issued(cloud: &SimClient, name: &str, known: Option<&str>) -> IssuedCertificate {
    eventually("the vault has issued it", async || {
        let found = cloud.azure().certificate(name).await.unwrap()?;
        (found.certificate.version.as_deref() != known).then_some(found)
    })
    .await
}

/// Waits until an operator has rolled out a Secret as it is now, and has settled.
async fn until_rolled_out(link: &Link, operator: &str, namespace: &str, secret: &str) {
    eventually("the certificate is rolled out", async || {
        let secrets: Api<Secret> = Api::namespaced(link.client(), namespace);
        let version = secrets.get(secret).await.unwrap().metadata.resource_version.unwrap();
        let seen = object(link, "config.openshift.io/v1", "ClusterOperator", None, operator).await;
        let rolled_out = &seen["metadata"]["annotations"]["sim.shipshape.dev/rolled-out"];
        let conditions = seen["status"]["conditions"].as_array().unwrap();
        let settled = conditions.iter().any(|it| it["type"] == "Progressing" && it["status"] == "False");
        (settled && *rolled_out == format!("{secret}@{version}")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rotate_certificates_on_an_installed_cluster_is_rolled_out_by_its_operators() {
    let service = cloudsim::Service::open(cloudsim::Options::default()).await.unwrap();
    let cloud = service.client().unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(service.serve(CancellationToken::new()));
    let order = prepared(&cloud).await;
    let installer = cloud.installer();
    installer.install(&order).await.unwrap();
    eventually("the cluster is installed", async || {
        let found = installer.installation(CLUSTER).await.unwrap()?;
        assert_eq!(found.failure, None);
        (found.stage == InstallStage::Complete).then_some(())
    })
    .await;
    let link = link_to(installer.credentials(CLUSTER).await.unwrap().kubeconfig.expose());

    let (api, ingress) = (format!("{CLUSTER}-apiserver"), format!("{CLUSTER}-ingress"));
    for (name, dns) in [(&api, "api.harbour.example.test"), (&ingress, "*.apps.harbour.example.test")] {
        let request = CertificateSpec { name: name.clone(), dns_names: vec![dns.to_owned()] };
        cloud.azure().ensure_certificate(&request).await.unwrap();
    }
    let first = issued(&cloud, &api, None).await;
    issued(&cloud, &ingress, None).await;

    let test = TestRun::new().await;
    let ours = managed_cluster_in(
        &test.store,
        Arc::new(cloud.azure().clone()),
        Arc::new(cloud.azure().clone()),
        |_| {},
    )
    .await;
    let context =
        Arc::new(ClusterContext::new(link.clone(), facts(), Arc::new(SystemClock)).with_managed(ours));
    let rotate = async || -> RunResult {
        let catalogue = Catalogue::builtin();
        let task = catalogue.find("rotate-certificates").unwrap();
        let end = test.another().await.run_with(task, &json!({}), context.clone()).await;
        assert_eq!(end.state, WorkState::Completed, "{}", end.messages());
        end
    };
    let end = rotate().await;
    // That it is rolled out takes its time, and is not said before it is so.
    assert!(end.message().contains("its operator rolls it out"), "{}", end.message());
    until_rolled_out(&link, "kube-apiserver", "openshift-config", &api).await;
    until_rolled_out(&link, "ingress", "openshift-ingress", &ingress).await;

    cloud.azure().renew_certificate(&api, first.certificate.version.as_deref()).await.unwrap();
    let second = issued(&cloud, &api, first.certificate.version.as_deref()).await;
    let end = rotate().await;
    assert!(end.messages().contains(&format!("certificate {api} replaced")), "{}", end.messages());
    assert!(end.messages().contains(&format!("certificate {ingress} is up to date")), "{}", end.messages());
    assert_eq!(certificate_of(&link, "openshift-config", &api).await, Some(second.chain_pem));
    until_rolled_out(&link, "kube-apiserver", "openshift-config", &api).await;
    let record =
        test.store.clusters().get(CLUSTER).await.unwrap().unwrap().document.provisioned.unwrap().record;
    assert_eq!(record.api_certificate_expires, second.certificate.not_after);
    serving.shutdown().await;
}
