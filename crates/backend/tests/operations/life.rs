//! Clusters from order to removal.

use api::doc::{
    Cluster, Document as _, Identity, ProvisioningState, Switch, Verb, WorkerPool, WorkerPoolStatus, secrets,
};
use api::install::InstallStage;
use cloud::{Identities as _, Infrastructure as _, Properties, ResourceId, ResourceKind, ResourceRequest};
use cloudsim::settings::{Denial, Rights, Setting};
use cloudsim::{CloudFault, FaultRule, FaultTiming};
use steps::engine::{Journal, progress};
use steps::lifecycle::certificates::object;
use store::{Secrets, StoreError};
use uuid::Uuid;

use crate::customer;
use crate::service::LOCATION;
use crate::service::service;
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
    let count = machines.iter().filter(|it| it.properties.kind() == ResourceKind::Machine).count();
    assert_eq!(count, 6, "three masters, three workers and no bootstrap machine");
    let billing = format!("/billing/{id}");
    let billed = site.store.billing().find(&billing).await.unwrap().unwrap().document;
    assert_eq!((billed.cluster_path, billed.deletion_time), (cluster.path(), None));
    assert_eq!(
        (billed.managed_resource_group, billed.infra_id),
        (cluster.managed_resource_group, record.infra_id.clone())
    );
    // Nothing is offered whose images could not be pulled: no pull secret was brought.
    let life = site.life(id);
    let link = life.link().await.unwrap();
    let spec = async |version: &str, kind: &str| {
        let target = object(&link, version, kind, None, "cluster").await.unwrap();
        link.get(&target).await.unwrap().unwrap().data["spec"].clone()
    };
    assert_eq!(spec("samples.operator.openshift.io/v1", "Config").await["managementState"], "Removed");
    assert_eq!(spec("config.openshift.io/v1", "OperatorHub").await["sources"][1]["disabled"], true);
    assert_eq!(spec("operator.openshift.io/v1", "Console").await["customization"]["brand"], "azure");

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
    site.fail_installation("bad", InstallStage::ControlPlane).await;
    let (id, made) = site.create("bad").await;
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
        customer::bring(&site.cloud, SUBSCRIPTION, "natted", site.clock.now()).await.unwrap();
    let put = async |id: &ResourceId, properties| {
        let (location, id) = (LOCATION.to_owned(), id.clone());
        site.cloud
            .put(ResourceRequest { id, location, tags: [].into(), properties, token: None })
            .await
            .unwrap();
    };
    put(&gateway, Properties::NatGateway {}).await;
    let worker = network.child("subnets", "worker");
    let mut properties = site.cloud.get(&worker).await.unwrap().unwrap().properties;
    if let Properties::Subnet { nat_gateway, .. } = &mut properties {
        *nat_gateway = Some(gateway.clone());
    }
    put(&worker, properties).await;
    let action = "Microsoft.Network/natGateways/join/action".to_owned();
    site.cloud.deny(Denial { who: "service".to_owned(), action, scope: gateway, until: None }).await.unwrap();
    let (_, natted) = customer::create(&site.store, &natted, &secrets, &*site.clock).await.unwrap();
    // An identity of the cluster that is not there, and one of an operator that lets others in.
    let now = site.clock.now();
    let (mut nobody, none) =
        customer::bring_workload(&site.cloud, SUBSCRIPTION, "nobody", now).await.unwrap();
    if let Identity::Workload { resource_id, .. } = &mut nobody.provisioned.as_mut().unwrap().spec.identity {
        resource_id.push_str("-gone");
    }
    let (_, lost) = customer::create(&site.store, &nobody, &none, &*site.clock).await.unwrap();
    let (open, none) = customer::bring_workload(&site.cloud, SUBSCRIPTION, "open", now).await.unwrap();
    let identity = ResourceId::group(SUBSCRIPTION, "open-rg").sibling(
        "Microsoft.ManagedIdentity",
        "userAssignedIdentities",
        "image-registry",
    );
    let federated = [("https://oidc.elsewhere/them|image-registry".to_owned(), "subject".to_owned())].into();
    put(&identity, Properties::Identity { client_id: None, principal_id: None, tenant_id: None, federated })
        .await;
    let (_, shared) = customer::create(&site.store, &open, &none, &*site.clock).await.unwrap();
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

/// Puts something of a customer's into the cloud.
async fn put(site: &Site, id: &ResourceId, properties: Properties) {
    let (location, id) = (LOCATION.to_owned(), id.clone());
    site.cloud.put(ResourceRequest { id, location, tags: [].into(), properties, token: None }).await.unwrap();
}

/// The network that a customer brought for a cluster of that name.
fn network(name: &str) -> ResourceId {
    let group = ResourceId::group(SUBSCRIPTION, &format!("{name}-rg"));
    group.sibling("Microsoft.Network", "virtualNetworks", "vnet")
}

/// What an operation was refused for: code and field.
async fn refusal(site: &Site, operation: Uuid) -> (String, String) {
    let error = site.ended(operation).await.error.unwrap();
    (error.code, error.target.unwrap_or_default())
}

fn pair(code: &str, target: &str) -> (String, String) {
    (code.to_owned(), target.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_named_beside_a_subnet_must_be_there_and_ranges_must_not_overlap() {
    let site = Site::new().await;
    let (_stop, _backend) = site.backend();
    let brought =
        async |name: &str| customer::bring(&site.cloud, SUBSCRIPTION, name, site.clock.now()).await.unwrap();
    let create = async |(cluster, secrets): (Cluster, Secrets)| {
        customer::create(&site.store, &cluster, &secrets, &*site.clock).await.unwrap().1
    };
    // A route table and a gateway that are on a subnet and have gone since: the cloud itself would not let them.
    let attached = async |name: &str, kind: &str| {
        let made = brought(name).await;
        let worker = network(name).child("subnets", "worker");
        let gone = network(name).sibling("Microsoft.Network", kind, "gone");
        let rule = FaultRule::new(CloudFault::DelayedVisibility { millis: 600_000 }).about(gone.as_str());
        site.cloud.inject(rule).await.unwrap();
        let is_table = kind == "routeTables";
        put(
            &site,
            &gone,
            if is_table { Properties::RouteTable { routes: [].into() } } else { Properties::NatGateway {} },
        )
        .await;
        let mut properties = site.cloud.get(&worker).await.unwrap().unwrap().properties;
        if let Properties::Subnet { route_table, nat_gateway, .. } = &mut properties {
            *(if is_table { route_table } else { nat_gateway }) = Some(gone.clone());
        }
        put(&site, &worker, properties).await;
        create(made).await
    };
    let table = attached("tabled", "routeTables").await;
    let gateway = attached("gated", "natGateways").await;
    site.cloud.clear_faults().await.unwrap();
    let mut keyed = brought("keyed").await;
    let set = network("keyed").sibling("Microsoft.Compute", "diskEncryptionSets", "gone");
    keyed.0.provisioned.as_mut().unwrap().spec.workers[0].disk_encryption_set_id = Some(set.to_string());
    let keyed = create(keyed).await;
    let mut ranges = brought("ranges").await;
    ranges.0.provisioned.as_mut().unwrap().spec.network.service_cidr = "10.130.0.0/16".to_owned();
    let ranges = create(ranges).await;
    // The cluster's own identity may not look after an operator's.
    let now = site.clock.now();
    let weak = customer::bring_workload(&site.cloud, SUBSCRIPTION, "weak", now).await.unwrap();
    let identities = |name: &str| {
        ResourceId::group(SUBSCRIPTION, "weak-rg").sibling(
            "Microsoft.ManagedIdentity",
            "userAssignedIdentities",
            name,
        )
    };
    let action =
        "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/write".to_owned();
    let (who, scope) = (identities("cluster").key(), identities("machine-api"));
    site.cloud.deny(Denial { who, action, scope, until: None }).await.unwrap();
    let weak = create(weak).await;

    let worker = "properties.workerProfiles[0]";
    assert_eq!(refusal(&site, table).await, pair("InvalidLinkedRouteTable", &format!("{worker}.subnetId")));
    assert_eq!(refusal(&site, gateway).await, pair("InvalidLinkedNatGateway", &format!("{worker}.subnetId")));
    let target = format!("{worker}.diskEncryptionSetId");
    assert_eq!(refusal(&site, keyed).await, pair("InvalidLinkedDiskEncryptionSet", &target));
    assert_eq!(refusal(&site, ranges).await, pair("InvalidLinkedVNet", "properties.networkProfile"));
    let operators = "properties.platformWorkloadIdentityProfile.platformWorkloadIdentities";
    let target = format!("{operators}.machine-api");
    assert_eq!(refusal(&site, weak).await, pair("InvalidClusterMSIPermissions", &target));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_subscription_cannot_have_is_refused_before_anything_is_made() {
    let site = Site::new().await;
    let (_stop, _backend) = site.backend();
    let feature = "Microsoft.Compute/EncryptionAtHost".to_owned();
    let location = || LOCATION.to_owned();
    // Each in a subscription of its own, which is arranged for it.
    let absent = |cluster: &mut Cluster| "Standard_Nowhere".clone_into(&mut worker(cluster).vm_size);
    let encrypted = |cluster: &mut Cluster| worker(cluster).encryption_at_host = Switch::Enabled;
    let plain = |cluster: &mut Cluster| {
        encrypted(cluster);
        "Standard_D2s_v3".clone_into(&mut worker(cluster).vm_size);
    };
    type Row<'a> =
        (&'a str, Box<dyn Fn(String) -> Option<Setting>>, &'a dyn Fn(&mut Cluster), &'a str, &'a str);
    let (size, registered) = ("properties.workerProfiles[0].VMSize", Some(false));
    let rows: [Row<'_>; 6] = [
        ("absent", Box::new(|_| None), &absent, "InvalidParameter", size),
        (
            "restricted",
            Box::new(move |subscription| {
                let (size, reason) = ("Standard_D4s_v5".to_owned(), Some("NotAvailable".to_owned()));
                Some(Setting::Restrict { subscription, location: location(), size, reason })
            }),
            &|_| (),
            "InvalidParameter",
            size,
        ),
        (
            "capability",
            Box::new(|_| None),
            &plain,
            "InvalidParameter",
            "properties.workerProfiles[0].encryptionAtHost",
        ),
        (
            "feature",
            Box::new(move |subscription| {
                Some(Setting::Feature { subscription, feature: feature.clone(), registered })
            }),
            &encrypted,
            "InvalidParameter",
            "",
        ),
        (
            "quota",
            Box::new(move |subscription| {
                let quota = "virtualMachines".to_owned();
                Some(Setting::Quota { subscription, location: location(), quota, limit: 6 })
            }),
            &|_| (),
            "ResourceQuotaExceeded",
            "",
        ),
        (
            "provider",
            Box::new(|subscription| {
                let namespace = "Microsoft.Storage".to_owned();
                Some(Setting::Provider { subscription, namespace, registered: false })
            }),
            &|_| (),
            "ResourceProviderNotRegistered",
            "",
        ),
    ];
    for (at, (name, setting, edit, code, target)) in rows.into_iter().enumerate() {
        let subscription = format!("44444444-4444-4444-4444-44444444444{at}");
        if let Some(setting) = setting(subscription.clone()) {
            site.cloud.arrange(setting).await.unwrap();
        }
        let (id, made) = site.create_as(&subscription, name, edit).await;
        assert_eq!(refusal(&site, made).await, pair(code, target), "{name}");
        assert_eq!(site.left_of(name, id, &subscription).await, Vec::<String>::new(), "{name}");
    }
}

fn worker(cluster: &mut Cluster) -> &mut WorkerPool {
    &mut cluster.provisioned.as_mut().unwrap().spec.workers[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_leads_to_another_cluster_is_neither_taken_nor_removed() {
    let site = Site::new().await;
    let (_stop, _backend) = site.backend();
    let (first, made) = site.create("quay").await;
    site.succeeds(made).await;
    let zone = service().zone_id("aro.example");
    let api = site.cloud.get(&zone.child("A", "api.quay")).await.unwrap().unwrap();
    // No two living clusters have the same name; of one that an earlier build took in, the store does not know its.
    let same = |cluster: &mut Cluster| {
        let provisioned = cluster.provisioned.as_mut().unwrap();
        "quay".clone_into(&mut provisioned.spec.domain);
        provisioned.managed_domain = Some("quay.aro.example".to_owned());
    };
    let (mut wanted, secrets) =
        customer::bring(&site.cloud, SUBSCRIPTION, "other", site.clock.now()).await.unwrap();
    same(&mut wanted);
    let taken = customer::create(&site.store, &wanted, &secrets, &*site.clock).await;
    assert!(matches!(taken, Err(StoreError::KeyTaken { key }) if key == "domain:quay.aro.example"));
    wanted.provisioned.as_mut().unwrap().managed_domain = None;
    let (second, made) = customer::create(&site.store, &wanted, &secrets, &*site.clock).await.unwrap();
    assert_eq!(refusal(&site, made).await, pair("DuplicateDomain", "properties.clusterProfile.domain"));
    let removed = site.change(second, Verb::Delete, |_| ()).await;
    site.succeeds(removed).await;
    assert_eq!(site.cloud.get(&zone.child("A", "api.quay")).await.unwrap(), Some(api));
    let removed = site.change(first, Verb::Delete, |_| ()).await;
    site.succeeds(removed).await;
    assert_eq!(site.left_of("quay", first, SUBSCRIPTION).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_name_in_our_own_zone_and_a_name_that_begins_with_a_digit_are_served_like_others() {
    let site = Site::new().await;
    let (_stop, _backend) = site.backend();
    let (whole, made_whole) = site
        .create_as(SUBSCRIPTION, "whole", |cluster| {
            cluster.provisioned.as_mut().unwrap().spec.domain = "whole.aro.example".to_owned();
        })
        .await;
    let (digit, made_digit) = site
        .create_as(SUBSCRIPTION, "1st", |cluster| {
            let provisioned = cluster.provisioned.as_mut().unwrap();
            provisioned.spec.domain = "first".to_owned();
            provisioned.managed_domain = Some("first.aro.example".to_owned());
        })
        .await;
    site.succeeds(made_whole).await;
    site.succeeds(made_digit).await;
    let zone = service().zone_id("aro.example");
    for record in ["api.whole", "*.apps.whole", "api.first"] {
        assert!(site.cloud.get(&zone.child("A", record)).await.unwrap().is_some(), "{record}");
    }
    let record = site.cluster(whole).await.unwrap().document.provisioned.unwrap().record;
    assert!(record.api_certificate_expires.is_some());
    let record = site.cluster(digit).await.unwrap().document.provisioned.unwrap().record;
    assert!(record.infra_id.unwrap().starts_with("c1st-"));
    let removed = site.change(whole, Verb::Delete, |_| ()).await;
    site.succeeds(removed).await;
    assert_eq!(site.left_of("whole", whole, SUBSCRIPTION).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_group_that_is_there_already_is_refused_and_left_alone() {
    let site = Site::new().await;
    let (_stop, _backend) = site.backend();
    let group = ResourceId::group(SUBSCRIPTION, "aro-held");
    put(&site, &group, Properties::ResourceGroup { managed_by: None }).await;
    let address = group.sibling("Microsoft.Network", "publicIPAddresses", "theirs");
    put(&site, &address, Properties::PublicIp { address: None }).await;
    let (id, made) = site.create("held").await;
    let target = "properties.clusterProfile.resourceGroupId";
    assert_eq!(refusal(&site, made).await, pair("ClusterResourceGroupAlreadyExists", target));
    let removed = site.change(id, Verb::Delete, |_| ()).await;
    site.succeeds(removed).await;
    assert!(
        site.cloud.get(&group).await.unwrap().is_some() && site.cloud.get(&address).await.unwrap().is_some()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_shows_the_workers_that_are_there_and_takes_the_rights_of_a_replaced_principal() {
    let site = Site::new().await;
    let (_stop, _backend) = site.backend();
    let (id, made) = site.create("fleet").await;
    site.succeeds(made).await;
    let before = site.cluster(id).await.unwrap().document.provisioned.unwrap();
    let counts = |workers: &[WorkerPoolStatus]| workers.iter().map(|it| it.count).sum::<u32>();
    assert_eq!((before.record.workers.len(), counts(&before.record.workers)), (3, 3), "one set in each zone");
    assert_eq!(before.record.workers[0].subnet_id.as_deref(), Some(&*before.spec.workers[0].subnet_id));
    // Somebody scales a set in the cluster.
    let link = site.connections().link(id).await.unwrap();
    let (resource, _) = link.resolve("machine.openshift.io/v1beta1", "MachineSet").await.unwrap();
    let name = before.record.workers[0].name.clone();
    let namespace = Some("openshift-machine-api".to_owned());
    let target = kubelink::Target { resource, namespace, name: name.clone() };
    let change = kubelink::patch::Change::Merge(serde_json::json!({"spec": {"replicas": 4}}));
    kubelink::patch::patch(&link, &target, &change, None).await.unwrap();

    let scope = ResourceId::group(SUBSCRIPTION, "aro-fleet");
    let principals = async || {
        let given = site.cloud.role_assignments(&scope).await.unwrap();
        given.into_iter().map(|it| it.principal).collect::<Vec<String>>()
    };
    assert_eq!(principals().await, [before.record.service_principal_object_id.unwrap()]);
    let other = site.cloud.create_principal("other", Rights::Everywhere).await.unwrap();
    let client_id = other.principal.client_id.clone();
    let secret = site.store.seal(id, secrets::CLIENT_SECRET, other.secret.expose().as_bytes()).unwrap();
    site.store.commit(store::Transaction::new().put_secret(secret)).await.unwrap();
    let changed = site
        .change(id, Verb::Update, |wanted| {
            wanted.credential = Some(client_id.clone());
            wanted.provisioned.as_mut().unwrap().spec.identity = Identity::ServicePrincipal { client_id };
        })
        .await;
    site.succeeds(changed).await;
    assert_eq!(principals().await, [other.principal.object_id]);
    let after = site.cluster(id).await.unwrap().document.provisioned.unwrap().record.workers;
    let scaled = after.iter().find(|it| it.name == name).unwrap();
    assert_eq!((scaled.count, counts(&after)), (4, 6));
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_that_a_failed_update_made_go_with_the_next_one() {
    let site = Site::new().await;
    let (_stop, _backend) = site.backend();
    let (id, made) = site.create("spread").await;
    site.succeeds(made).await;
    let ask = async |count: u32| {
        site.change(id, Verb::Update, |wanted| {
            wanted.provisioned.as_mut().unwrap().spec.network.managed_outbound_ips = Some(count);
        })
        .await
    };
    let held = async || {
        let all = site.cloud.list(&ResourceId::group(SUBSCRIPTION, "aro-spread")).await.unwrap();
        all.iter().filter(|it| it.id.name().contains("-outbound-pip-v4-")).count()
    };
    // The fourth of the further ones cannot be had.
    let full = FaultRule::new(CloudFault::Quota { quota: "PublicIPAddresses".to_owned() })
        .about("outbound-pip-v4-5");
    site.cloud.inject(full).await.unwrap();
    let failed = ask(5).await;
    assert_eq!(site.ended(failed).await.error.unwrap().code, "ResourceQuotaExceeded");
    assert_eq!(held().await, 3);
    site.cloud.clear_faults().await.unwrap();
    let back = ask(1).await;
    site.succeeds(back).await;
    assert_eq!(held().await, 0);
    let record = site.cluster(id).await.unwrap().document.provisioned.unwrap().record;
    assert_eq!(record.effective_outbound_ips.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn identities_speak_for_the_service_accounts_of_the_clusters_version_and_for_none_when_it_is_gone() {
    let site = Site::new().await;
    let (_stop, _backend) = site.backend();
    let (id, made) = site.create_workload("federal").await;
    site.succeeds(made).await;
    let subjects = async |operator: &str| {
        let group = ResourceId::group(SUBSCRIPTION, "federal-rg");
        let identity = group.sibling("Microsoft.ManagedIdentity", "userAssignedIdentities", operator);
        let Properties::Identity { federated, .. } =
            site.cloud.get(&identity).await.unwrap().unwrap().properties
        else {
            panic!("{operator} has no identity")
        };
        federated.into_values().collect::<Vec<String>>()
    };
    let account = |it: &str| format!("system:serviceaccount:{it}");
    let registry = "openshift-image-registry";
    assert_eq!(
        subjects("image-registry").await,
        [
            account(&format!("{registry}:cluster-image-registry-operator")),
            account(&format!("{registry}:registry"))
        ]
    );
    assert_eq!(subjects("machine-api").await, [account("openshift-machine-api:machine-api-controllers")]);
    // Each is in the cluster's group what its role set says, and keeps that when somebody takes it away.
    let Identity::Workload { platform, .. } =
        site.cluster(id).await.unwrap().document.provisioned.unwrap().spec.identity
    else {
        panic!("it works as managed identities")
    };
    let scope = ResourceId::group(SUBSCRIPTION, "aro-federal");
    let machines = platform["machine-api"].object_id.clone().unwrap();
    let roles = async || {
        let given = site.cloud.role_assignments(&scope).await.unwrap();
        given.into_iter().filter(|it| it.principal == machines).collect::<Vec<_>>()
    };
    let given = roles().await;
    assert_eq!(given.len(), 1, "{given:?}");
    assert_ne!(given[0].role, "Contributor");
    site.cloud.revoke_role(&given[0].scope, &given[0].name).await.unwrap();
    let changed = site.change(id, Verb::Update, |_| ()).await;
    site.succeeds(changed).await;
    assert_eq!(roles().await, given);
    let removed = site.change(id, Verb::Delete, |_| ()).await;
    site.succeeds(removed).await;
    for operator in ["image-registry", "machine-api"] {
        assert_eq!(subjects(operator).await, Vec::<String>::new(), "{operator}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_spread_late_are_waited_for_at_the_tempo_of_a_simulated_cloud() {
    let site = Site::new().await;
    let mut deps = site.deps();
    deps.config.operation_timing =
        backend::OperationTiming::with_poll_interval(std::time::Duration::from_millis(50));
    let (_stop, _backend) = site.backend_of(deps);
    let (cluster, secrets) =
        customer::bring(&site.cloud, SUBSCRIPTION, "late", site.clock.now()).await.unwrap();
    // Longer than what a test usually waits for rights.
    let until = site.clock.now().checked_add(jiff::SignedDuration::from_secs(5)).unwrap();
    let action = "Microsoft.Network/virtualNetworks/subnets/join/action".to_owned();
    let denial = Denial { who: "service".to_owned(), action, scope: network("late"), until: Some(until) };
    site.cloud.deny(denial).await.unwrap();
    let (_, made) = customer::create(&site.store, &cluster, &secrets, &*site.clock).await.unwrap();
    site.succeeds(made).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_that_hiccups_costs_patience_and_not_the_cluster() {
    let site = Site::new().await;
    let rules = [
        FaultRule::new(CloudFault::Throttled { after_seconds: 0 }).share(0.03),
        FaultRule::new(CloudFault::Unavailable { when: FaultTiming::After }).share(0.03),
        FaultRule::new(CloudFault::DelayedVisibility { millis: 100 }).share(0.1),
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
    site.cloud.inject(FaultRule::new(CloudFault::Denied {}).on("install")).await.unwrap();
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
