//! Removals, which are retried until they are complete.

use std::sync::Arc;

use api::doc::{ProvisioningState, Subscription, SubscriptionState, Verb};
use cloud::{Infrastructure as _, Properties, ResourceId, ResourceRequest, ResourceState};
use cloudsim::settings::Setting;
use cloudsim::{CloudFault, FaultRule, FaultTiming};
use jiff::SignedDuration;
use store::AuditContext;
use uuid::Uuid;

use crate::environment::{AdvancingClock, SUBSCRIPTION, TestEnvironment};
use crate::service::LOCATION;

/// A created cluster, in an environment whose clock can be advanced over retry delays.
pub(crate) async fn created(name: &str) -> (TestEnvironment, Arc<AdvancingClock>, Uuid) {
    let clock = Arc::new(AdvancingClock::default());
    let environment = TestEnvironment::with_clock(clock.clone()).await;
    let (stop, backend) = environment.backend();
    let (id, made) = environment.create(name).await;
    environment.succeeds(made).await;
    stop.cancel();
    backend.await.unwrap();
    (environment, clock, id)
}

async fn lock(environment: &TestEnvironment, name: &str, locked: bool) {
    let id = ResourceId::group(SUBSCRIPTION, &format!("aro-{name}"));
    environment.cloud.arrange(Setting::Lock { id, locked }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_is_retried_while_the_cloud_is_unavailable() {
    let (environment, clock, id) = created("stuck").await;
    let unavailable = FaultRule::new(CloudFault::Unavailable { when: FaultTiming::Before }).on("delete");
    environment.cloud.inject(unavailable).await.unwrap();
    let removed = environment.change(id, Verb::Delete, |_| ()).await;
    let delays = environment.run_attempts(removed, 30, &clock).await;
    assert_eq!(delays.len(), 30, "it was given up");
    assert!(delays[0] < SignedDuration::from_mins(1), "{delays:?}");
    let longest = SignedDuration::from_mins(30);
    assert!(delays.iter().all(|delay| *delay <= longest), "{delays:?}");
    assert!(delays[10..].iter().all(|delay| *delay > SignedDuration::from_mins(20)), "{delays:?}");
    let operation = environment.store.operations().get(removed).await.unwrap().unwrap().document;
    assert_eq!((operation.status, operation.end_time), (ProvisioningState::Deleting, None));
    let cluster = environment.cluster(id).await.unwrap().document;
    assert_eq!(cluster.provisioning_state, ProvisioningState::Deleting);

    environment.cloud.clear_faults().await.unwrap();
    let (_stop, _backend) = environment.backend();
    environment.succeeds(removed).await;
    assert!(environment.cluster(id).await.is_none());
    assert_eq!(environment.remaining_resources("stuck", id, SUBSCRIPTION).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_its_customer_blocks_fails_and_can_be_requested_again() {
    let (environment, clock, id) = created("locked").await;
    lock(&environment, "locked", true).await;
    let first = environment.change(id, Verb::Delete, |_| ()).await;
    assert_eq!(environment.run_attempts(first, 5, &clock).await, [], "a lock does not disappear by itself");
    let ended = environment.finished(first).await;
    assert_eq!(
        (ended.status, ended.error.unwrap().code.as_str()),
        (ProvisioningState::Failed, "ScopeLocked")
    );
    let cluster = environment.cluster(id).await.unwrap().document;
    assert_eq!(cluster.failed_provisioning_state, Some(ProvisioningState::Deleting));
    lock(&environment, "locked", false).await;

    // Missing permissions may still propagate; after five attempts they count as missing.
    environment.cloud.inject(FaultRule::new(CloudFault::Denied {}).on("delete")).await.unwrap();
    let second = environment.change(id, Verb::Delete, |_| ()).await;
    assert_eq!(environment.run_attempts(second, 100, &clock).await.len(), 4);
    assert_eq!(environment.finished(second).await.error.unwrap().code, "Forbidden");
    environment.cloud.clear_faults().await.unwrap();

    let third = environment.change(id, Verb::Delete, |_| ()).await;
    let (_stop, _backend) = environment.backend();
    environment.succeeds(third).await;
    assert_eq!(environment.remaining_resources("locked", id, SUBSCRIPTION).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_that_an_outage_cost_are_not_counted_against_the_customer() {
    let (environment, clock, id) = created("outage").await;
    let unavailable = FaultRule::new(CloudFault::Unavailable { when: FaultTiming::Before }).on("delete");
    environment.cloud.inject(unavailable).await.unwrap();
    let removed = environment.change(id, Verb::Delete, |_| ()).await;
    assert_eq!(environment.run_attempts(removed, 6, &clock).await.len(), 6);
    environment.cloud.clear_faults().await.unwrap();
    environment.cloud.inject(FaultRule::new(CloudFault::Denied {}).on("delete")).await.unwrap();
    assert_eq!(environment.run_attempts(removed, 100, &clock).await.len(), 4, "five attempts of its own");
    assert_eq!(environment.finished(removed).await.error.unwrap().code, "Forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_fails_and_names_the_resource_that_a_customer_still_uses() {
    let (environment, clock, id) = created("used").await;
    let record = environment.cluster(id).await.unwrap().document.provisioned.unwrap().record;
    let name = format!("{}-nsg", record.infra_id.unwrap());
    let group = ResourceId::group(SUBSCRIPTION, "aro-used").sibling(
        "Microsoft.Network",
        "networkSecurityGroups",
        &name,
    );
    // Another network of the customer.
    let network =
        ResourceId::group(SUBSCRIPTION, "used-rg").sibling("Microsoft.Network", "virtualNetworks", "other");
    let third = network.child("subnets", "third");
    let put = async |id: &ResourceId, properties| {
        let (location, id) = (LOCATION.to_owned(), id.clone());
        environment
            .cloud
            .azure()
            .put(ResourceRequest { id, location, tags: [].into(), properties })
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
    let space = vec!["10.1.0.0/24".to_owned()];
    put(&network, Properties::VirtualNetwork { address_space: space }).await;
    put(&third, subnet(Some(group))).await;

    let first = environment.change(id, Verb::Delete, |_| ()).await;
    assert_eq!(
        environment.run_attempts(first, 100, &clock).await.len(),
        4,
        "the customer may remove the reference in time"
    );
    let error = environment.finished(first).await.error.unwrap();
    assert_eq!((error.code.as_str(), error.details[0].code.as_str()), ("DeploymentFailed", "InUse"));
    assert!(error.message.contains(&name) && error.message.contains(third.as_str()), "{error:?}");
    let log = environment.store.entries(first, None, 1000).await.unwrap();
    let is_logged =
        log.iter().any(|(_, it)| it.message.as_ref().is_some_and(|it| it.contains(third.as_str())));
    assert!(is_logged, "the log names the blocking resource: {log:?}");

    put(&third, subnet(None)).await;
    let second = environment.change(id, Verb::Delete, |_| ()).await;
    let (_stop, _backend) = environment.backend();
    environment.succeeds(second).await;
    assert_eq!(environment.remaining_resources("used", id, SUBSCRIPTION).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn removals_of_a_deleted_subscription_wait_even_for_locks() {
    let (environment, clock, id) = created("orphan").await;
    lock(&environment, "orphan", true).await;
    let subscription = Subscription {
        subscription_id: SUBSCRIPTION.to_owned(),
        state: SubscriptionState::Deleted,
        tenant_id: None,
        registered_features: Vec::new(),
        body: serde_json::Value::Null,
    };
    let removed = environment.change(id, Verb::Delete, |_| ()).await;
    environment.store.subscriptions().put(&subscription, None, &AuditContext::service("test")).await.unwrap();
    assert_eq!(
        environment.run_attempts(removed, 8, &clock).await.len(),
        8,
        "nobody could request the removal again"
    );
    lock(&environment, "orphan", false).await;
    let (_stop, _backend) = environment.backend();
    environment.succeeds(removed).await;
    assert_eq!(environment.remaining_resources("orphan", id, SUBSCRIPTION).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_that_the_cloud_does_not_list_yet_are_removed() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    // The quota for addresses is exceeded; the resources created before become visible much later.
    let full = CloudFault::Quota { quota: "PublicIPAddresses".to_owned() };
    environment.cloud.inject(FaultRule::new(full).about("-pip-v4")).await.unwrap();
    let unseen = CloudFault::DelayedVisibility { millis: 600_000 };
    environment.cloud.inject(FaultRule::new(unseen).about("aro-hidden/providers")).await.unwrap();
    let (id, made) = environment.create("hidden").await;
    let error = environment.finished(made).await.error.unwrap();
    let work = environment.store.work(made).await.unwrap();
    assert_eq!(error.code, "ResourceQuotaExceeded", "{work:?}");
    let group = ResourceId::group(SUBSCRIPTION, "aro-hidden");
    let exists = async || {
        let groups = environment.cloud.azure().groups(SUBSCRIPTION).await.unwrap();
        groups.iter().any(|it| it.id == group && it.state != ResourceState::Deleting)
    };
    assert!(exists().await);
    assert_eq!(environment.cloud.azure().list(&group).await.unwrap(), []);
    environment.cloud.clear_faults().await.unwrap();
    let removed = environment.change(id, Verb::Delete, |_| ()).await;
    environment.succeeds(removed).await;
    assert!(!exists().await, "the group is an orphan");
}
