//! Clusters from order to removal.

use api::doc::{Document as _, Identity, ProvisioningState, Verb, secrets};
use backend::installer::FAIL_AT_TAG;
use backend::trial;
use cloud::sim::{Denial, FaultRule, Moment, Trouble};
use cloud::{Cloud as _, Kind, Put, ResourceId, Shape};
use steps::engine::{Journal, progress};

use crate::site::{SUBSCRIPTION, Site, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_made_changed_and_removed_and_nothing_of_it_is_left() {
    let site = Site::new().await;
    let (_stop, _backend) = site.backend();
    let (id, made) = site.create("one").await;
    site.succeeds(made).await;
    let cluster = site.cluster(id).await.unwrap().document;
    assert_eq!((cluster.provisioning_state, cluster.operation), (ProvisioningState::Succeeded, None));
    let record = cluster.provisioned.as_ref().unwrap().record.clone();
    assert!(record.infra_id.is_some() && record.api_ip.is_some() && record.private_endpoint_ip.is_some());
    assert_eq!(record.running_version.as_deref(), Some("4.17.3"));
    assert_eq!(record.effective_outbound_ips.len(), 1);
    assert!(record.api_certificate_expires.is_some() && record.ingress_certificate_expires.is_some());
    for name in [secrets::KUBECONFIG, secrets::CUSTOMER_KUBECONFIG, secrets::KUBEADMIN_PASSWORD] {
        assert!(site.store.secret(id, name).await.unwrap().is_some(), "{name}");
    }
    let managed = ResourceId::group(SUBSCRIPTION, "aro-one");
    let machines = site.cloud.list(&managed).await.unwrap();
    let count = machines.iter().filter(|it| it.shape.kind() == Kind::Machine).count();
    assert_eq!(count, 6, "three masters, three workers and no bootstrap machine");
    let billing = format!("/billing/{id}");
    let billed = site.store.billing().find(&billing).await.unwrap().unwrap().document;
    assert_eq!((billed.cluster_path, billed.deletion_time), (cluster.path(), None));

    let changed = site
        .change(id, Verb::Update, |wanted| {
            wanted.provisioned.as_mut().unwrap().spec.network.managed_outbound_ips = Some(3);
        })
        .await;
    site.succeeds(changed).await;
    let after = site.cluster(id).await.unwrap().document.provisioned.unwrap().record;
    assert_eq!(after.effective_outbound_ips.len(), 3);
    assert_eq!(after.infra_id, record.infra_id);

    let removed = site.change(id, Verb::Delete, |_| ()).await;
    site.succeeds(removed).await;
    assert!(site.cluster(id).await.is_none());
    assert_eq!(site.left_of("one", id, SUBSCRIPTION).await, Vec::<String>::new());
    assert!(site.store.billing().find(&billing).await.unwrap().unwrap().document.deletion_time.is_some());
    // The customer's own network stays, as it was brought.
    let subnet = site.cloud.list(&ResourceId::group(SUBSCRIPTION, "one-rg")).await.unwrap();
    assert!(!subnet.is_empty());
    let gone = site.ended(removed).await;
    assert_eq!((gone.status, gone.snapshot), (ProvisioningState::Succeeded, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_installation_is_told_truthfully_and_can_be_deleted() {
    let site = Site::new().await;
    let (_stop, _backend) = site.backend();
    let (id, made) = site
        .create_as(SUBSCRIPTION, "bad", |cluster| {
            let tags = &mut cluster.provisioned.as_mut().unwrap().tags;
            tags.insert(FAIL_AT_TAG.to_owned(), "controlPlane".to_owned());
        })
        .await;
    let ended = site.ended(made).await;
    assert_eq!(ended.status, ProvisioningState::Failed);
    let error = ended.error.unwrap();
    assert_eq!(
        (error.code.as_str(), error.details[0].code.as_str()),
        ("DeploymentFailed", "ZonalAllocationFailed")
    );
    let cluster = site.cluster(id).await.unwrap().document;
    assert_eq!(cluster.provisioning_state, ProvisioningState::Failed);
    assert_eq!(cluster.failed_provisioning_state, Some(ProvisioningState::Creating));
    assert!(site.store.billing().find(&format!("/billing/{id}")).await.unwrap().is_none());
    let removed = site.change(id, Verb::Delete, |_| ()).await;
    site.succeeds(removed).await;
    assert_eq!(site.left_of("bad", id, SUBSCRIPTION).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_customer_can_mend_is_told_with_its_code_and_field() {
    let site = Site::new().await;
    let (_stop, _backend) = site.backend();
    let (_, missing) = site
        .create_as(SUBSCRIPTION, "lost", |cluster| {
            cluster.provisioned.as_mut().unwrap().spec.master.subnet_id.push_str("-elsewhere");
        })
        .await;
    let (_, overlapping) = site
        .create_as(SUBSCRIPTION, "overlap", |cluster| {
            cluster.provisioned.as_mut().unwrap().spec.network.pod_cidr = "10.0.0.0/16".to_owned();
        })
        .await;
    let check = async |operation, code: &str, target: &str| {
        let error = site.ended(operation).await.error.unwrap();
        assert_eq!((error.code.as_str(), error.target.as_deref()), (code, Some(target)));
    };
    // A gateway that the service may not use.
    let network =
        ResourceId::group(SUBSCRIPTION, "natted-rg").sibling("Microsoft.Network", "virtualNetworks", "vnet");
    let gateway = network.sibling("Microsoft.Network", "natGateways", "way-out");
    let (natted, secrets) =
        trial::bring(&site.cloud, SUBSCRIPTION, "natted", site.clock.now()).await.unwrap();
    let put = async |id: &ResourceId, shape| {
        let (location, id) = (trial::LOCATION.to_owned(), id.clone());
        site.cloud.put(Put { id, location, tags: [].into(), shape, token: None }).await.unwrap();
    };
    put(&gateway, Shape::NatGateway {}).await;
    let worker = network.child("subnets", "worker");
    let mut shape = site.cloud.get(&worker).await.unwrap().unwrap().shape;
    if let Shape::Subnet { nat_gateway, .. } = &mut shape {
        *nat_gateway = Some(gateway.clone());
    }
    put(&worker, shape).await;
    let action = "Microsoft.Network/natGateways/join/action".to_owned();
    site.cloud.deny(Denial { who: "service".to_owned(), action, scope: gateway, until: None }).await.unwrap();
    let (_, natted) = trial::create(&site.store, &natted, &secrets, &*site.clock).await.unwrap();
    // An identity of the cluster that is not there, and one of an operator that lets others in.
    let now = site.clock.now();
    let (mut nobody, none) = trial::bring_workload(&site.cloud, SUBSCRIPTION, "nobody", now).await.unwrap();
    if let Identity::Workload { resource_id, .. } = &mut nobody.provisioned.as_mut().unwrap().spec.identity {
        resource_id.push_str("-gone");
    }
    let (_, lost) = trial::create(&site.store, &nobody, &none, &*site.clock).await.unwrap();
    let (open, none) = trial::bring_workload(&site.cloud, SUBSCRIPTION, "open", now).await.unwrap();
    let identity = ResourceId::group(SUBSCRIPTION, "open-rg").sibling(
        "Microsoft.ManagedIdentity",
        "userAssignedIdentities",
        "image-registry",
    );
    let federated = [("https://oidc.elsewhere/them|image-registry".to_owned(), "subject".to_owned())].into();
    put(&identity, Shape::Identity { client_id: None, principal_id: None, tenant_id: None, federated }).await;
    let (_, shared) = trial::create(&site.store, &open, &none, &*site.clock).await.unwrap();
    let operators = "properties.platformWorkloadIdentityProfile.platformWorkloadIdentities";
    check(lost, "InvalidClusterMSICount", "identity").await;
    check(
        shared,
        "PlatformWorkloadIdentityContainsInvalidCredential",
        &format!("{operators}.image-registry"),
    )
    .await;
    check(natted, "InvalidResourceProviderPermissions", "properties.workerProfiles[0].subnetId").await;
    check(missing, "InvalidLinkedSubnet", "properties.masterProfile.subnetId").await;
    check(overlapping, "InvalidLinkedVNet", "properties.masterProfile.subnetId").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_that_hiccups_costs_patience_and_not_the_cluster() {
    let site = Site::new().await;
    let rules = [
        FaultRule::of(Trouble::Throttled { after_seconds: 0 }).share(0.03),
        FaultRule::of(Trouble::Unavailable { when: Moment::After }).share(0.03),
        FaultRule::of(Trouble::Unseen { millis: 100 }).share(0.1),
    ];
    let (_stop, _backend) = site.backend();
    let brought = site.create("rough").await;
    for rule in rules {
        site.cloud.inject(rule).await.unwrap();
    }
    site.succeeds(brought.1).await;
    site.cloud.clear_faults().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_names_the_step_and_grows_and_a_shutdown_hands_back() {
    let site = Site::new().await;
    // Nothing is put: the work stays in its first steps until the fault is cleared.
    site.cloud.inject(FaultRule::of(Trouble::Denied {}).on("order")).await.unwrap();
    let (stop, backend) = site.backend();
    let (_, made) = site.create("slow").await;
    eventually("it has got somewhere", async || {
        let work = site.store.work(made).await.ok()??;
        progress(&Journal::read(work.checkpoint.as_ref())).filter(|it| it.percent() > 10)
    })
    .await;
    stop.cancel();
    backend.await.unwrap();
    let work = site.store.work(made).await.unwrap().unwrap();
    assert_eq!(work.state, api::work::WorkState::Pending, "handed back");
    site.cloud.clear_faults().await.unwrap();
    let (_stop, _backend) = site.backend();
    // A failed attempt may have left it resting; the next backend takes it when that is over.
    site.store.commit(store::Transaction::new().expedite(made)).await.ok();
    site.succeeds(made).await;
}
