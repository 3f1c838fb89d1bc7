//! Removals, which go on until they are done.

use std::sync::Arc;

use api::doc::{ProvisioningState, Subscription, SubscriptionState, Verb};
use cloud::{Infrastructure as _, Properties, ResourceId, ResourceRequest, ResourceState};
use cloudsim::settings::Setting;
use cloudsim::{CloudFault, FaultRule, FaultTiming};
use jiff::SignedDuration;
use store::AuditContext;
use uuid::Uuid;

use crate::service::LOCATION;
use crate::site::{LeapingClock, SUBSCRIPTION, Site};

/// A cluster that is made, on a site whose rests can be leapt over.
pub(crate) async fn made(name: &str) -> (Site, Arc<LeapingClock>, Uuid) {
    let clock = Arc::new(LeapingClock::default());
    let site = Site::by(clock.clone()).await;
    let (stop, backend) = site.backend();
    let (id, made) = site.create(name).await;
    site.succeeds(made).await;
    stop.cancel();
    backend.await.unwrap();
    (site, clock, id)
}

async fn lock(site: &Site, name: &str, locked: bool) {
    let id = ResourceId::group(SUBSCRIPTION, &format!("aro-{name}"));
    site.cloud.arrange(Setting::Lock { id, locked }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_goes_on_for_as_long_as_the_cloud_refuses() {
    let (site, clock, id) = made("stuck").await;
    let refuses = FaultRule::new(CloudFault::Unavailable { when: FaultTiming::Before }).on("delete");
    site.cloud.inject(refuses).await.unwrap();
    let removed = site.change(id, Verb::Delete, |_| ()).await;
    let rests = site.attempted(removed, 30, &clock).await;
    assert_eq!(rests.len(), 30, "it was given up");
    assert!(rests[0] < SignedDuration::from_mins(1), "{rests:?}");
    let longest = SignedDuration::from_mins(30);
    assert!(rests.iter().all(|rest| *rest <= longest), "{rests:?}");
    assert!(rests[10..].iter().all(|rest| *rest > SignedDuration::from_mins(20)), "{rests:?}");
    let operation = site.store.operations().get(removed).await.unwrap().unwrap().document;
    assert_eq!((operation.status, operation.end_time), (ProvisioningState::Deleting, None));
    let cluster = site.cluster(id).await.unwrap().document;
    assert_eq!(cluster.provisioning_state, ProvisioningState::Deleting);

    site.cloud.clear_faults().await.unwrap();
    let (_stop, _backend) = site.backend();
    site.succeeds(removed).await;
    assert!(site.cluster(id).await.is_none());
    assert_eq!(site.left_of("stuck", id, SUBSCRIPTION).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_in_the_way_of_a_removal_is_told_and_asks_again() {
    let (site, clock, id) = made("locked").await;
    lock(&site, "locked", true).await;
    let first = site.change(id, Verb::Delete, |_| ()).await;
    assert_eq!(site.attempted(first, 5, &clock).await, [], "a lock does not go by itself");
    let ended = site.ended(first).await;
    assert_eq!(
        (ended.status, ended.error.unwrap().code.as_str()),
        (ProvisioningState::Failed, "ScopeLocked")
    );
    let cluster = site.cluster(id).await.unwrap().document;
    assert_eq!(cluster.failed_provisioning_state, Some(ProvisioningState::Deleting));
    lock(&site, "locked", false).await;

    // Rights that are missing may be on their way; after five attempts they are not.
    site.cloud.inject(FaultRule::new(CloudFault::Denied {}).on("delete")).await.unwrap();
    let second = site.change(id, Verb::Delete, |_| ()).await;
    assert_eq!(site.attempted(second, 100, &clock).await.len(), 4);
    assert_eq!(site.ended(second).await.error.unwrap().code, "Forbidden");
    site.cloud.clear_faults().await.unwrap();

    let third = site.change(id, Verb::Delete, |_| ()).await;
    let (_stop, _backend) = site.backend();
    site.succeeds(third).await;
    assert_eq!(site.left_of("locked", id, SUBSCRIPTION).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_that_an_outage_cost_are_not_counted_against_the_customer() {
    let (site, clock, id) = made("outage").await;
    let refuses = FaultRule::new(CloudFault::Unavailable { when: FaultTiming::Before }).on("delete");
    site.cloud.inject(refuses).await.unwrap();
    let removed = site.change(id, Verb::Delete, |_| ()).await;
    assert_eq!(site.attempted(removed, 6, &clock).await.len(), 6);
    site.cloud.clear_faults().await.unwrap();
    site.cloud.inject(FaultRule::new(CloudFault::Denied {}).on("delete")).await.unwrap();
    assert_eq!(site.attempted(removed, 100, &clock).await.len(), 4, "five attempts of its own");
    assert_eq!(site.ended(removed).await.error.unwrap().code, "Forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_customer_still_uses_is_named_and_ends_the_removal() {
    let (site, clock, id) = made("used").await;
    let record = site.cluster(id).await.unwrap().document.provisioned.unwrap().record;
    let name = format!("{}-nsg", record.infra_id.unwrap());
    let group = ResourceId::group(SUBSCRIPTION, "aro-used").sibling(
        "Microsoft.Network",
        "networkSecurityGroups",
        &name,
    );
    let network =
        ResourceId::group(SUBSCRIPTION, "used-rg").sibling("Microsoft.Network", "virtualNetworks", "vnet");
    let third = network.child("subnets", "third");
    let put = async |id: &ResourceId, properties| {
        let (location, id) = (LOCATION.to_owned(), id.clone());
        site.cloud
            .put(ResourceRequest { id, location, tags: [].into(), properties, token: None })
            .await
            .unwrap();
    };
    let subnet = |security_group: Option<ResourceId>| Properties::Subnet {
        address_prefix: "10.1.0.0/24".to_owned(),
        security_group,
        route_table: None,
        nat_gateway: None,
        service_endpoints: Vec::new(),
        private_link_policies: true,
    };
    let space = vec!["10.0.0.0/22".to_owned(), "10.1.0.0/24".to_owned()];
    put(&network, Properties::VirtualNetwork { address_space: space }).await;
    put(&third, subnet(Some(group))).await;

    let first = site.change(id, Verb::Delete, |_| ()).await;
    assert_eq!(site.attempted(first, 100, &clock).await.len(), 4, "they may be about to make way");
    let error = site.ended(first).await.error.unwrap();
    assert_eq!((error.code.as_str(), error.details[0].code.as_str()), ("DeploymentFailed", "InUse"));
    assert!(error.message.contains(&name) && error.message.contains(third.as_str()), "{error:?}");
    let log = site.store.entries(first, None, 1000).await.unwrap();
    let told = log.iter().any(|(_, it)| it.message.as_ref().is_some_and(|it| it.contains(third.as_str())));
    assert!(told, "the operator reads who is in the way: {log:?}");

    put(&third, subnet(None)).await;
    let second = site.change(id, Verb::Delete, |_| ()).await;
    let (_stop, _backend) = site.backend();
    site.succeeds(second).await;
    assert_eq!(site.left_of("used", id, SUBSCRIPTION).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_deleted_subscription_even_what_is_locked_is_waited_for() {
    let (site, clock, id) = made("orphan").await;
    lock(&site, "orphan", true).await;
    let subscription = Subscription {
        subscription_id: SUBSCRIPTION.to_owned(),
        state: SubscriptionState::Deleted,
        tenant_id: None,
        registered_features: Vec::new(),
        body: serde_json::Value::Null,
    };
    let removed = site.change(id, Verb::Delete, |_| ()).await;
    site.store.subscriptions().put(&subscription, None, &AuditContext::service("test")).await.unwrap();
    assert_eq!(site.attempted(removed, 8, &clock).await.len(), 8, "nobody could ask again");
    lock(&site, "orphan", false).await;
    let (_stop, _backend) = site.backend();
    site.succeeds(removed).await;
    assert_eq!(site.left_of("orphan", id, SUBSCRIPTION).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cloud_does_not_show_yet_is_removed_too() {
    let site = Site::new().await;
    let (_stop, _backend) = site.backend();
    // An address cannot be had; what was made until then is shown only long after.
    let full = CloudFault::Quota { quota: "PublicIPAddresses".to_owned() };
    site.cloud.inject(FaultRule::new(full).about("-pip-v4")).await.unwrap();
    site.cloud
        .inject(FaultRule::new(CloudFault::DelayedVisibility { millis: 600_000 }).about("aro-hidden"))
        .await
        .unwrap();
    let (id, made) = site.create("hidden").await;
    assert_eq!(site.ended(made).await.error.unwrap().code, "ResourceQuotaExceeded");
    let group = ResourceId::group(SUBSCRIPTION, "aro-hidden");
    let is_there = async || {
        let groups = site.cloud.groups(SUBSCRIPTION).await.unwrap();
        groups.iter().any(|it| it.id == group && it.state != ResourceState::Deleting)
    };
    assert!(is_there().await && site.cloud.get(&group).await.unwrap().is_none());
    site.cloud.clear_faults().await.unwrap();
    let removed = site.change(id, Verb::Delete, |_| ()).await;
    site.succeeds(removed).await;
    assert!(!is_there().await, "the group is an orphan");
}
