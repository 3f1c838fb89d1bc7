//! Operations of the cloud that fail, are refused, vanish or never end, under the operations of customers.

use std::time::Duration;

use api::doc::{Cluster, ProvisioningState, Verb};
use api::work::WorkState;
use backend::plan;
use cloud::{LockLevel, Properties, ResourceId};
use cloudsim::settings::Setting;
use cloudsim::{CloudFault, FaultRule, FaultTiming};
use steps::engine::Journal;

use crate::call_faults::CallFaultTest;
use crate::environment::{SUBSCRIPTION, TestEnvironment};
use crate::lifecycle::{operation_error, pair, put};
use crate::service::LOCATION;
use crate::step_faults::{IdentityKind, begin, immediate_timing};

/// Addresses in the managed group of a cluster, as fault rules match them.
fn addresses(name: &str) -> String {
    format!("aro-{name}/providers/Microsoft.Network/publicIPAddresses")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_ends_a_create_with_azures_code_and_leaves_nothing_behind() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    let allocation = CloudFault::ProvisioningFails {
        code: "AllocationFailed".to_owned(),
        message: "There is no capacity.".to_owned(),
    };
    let policy = CloudFault::Policy { name: "no-public-addresses".to_owned() };
    let quota = CloudFault::Quota { quota: "PublicIPAddresses".to_owned() };
    for (name, fault, code, detail, text) in [
        ("capacity", allocation, "DeploymentFailed", Some("AllocationFailed"), "no capacity"),
        ("policy", policy, "RequestDisallowedByPolicy", None, "no-public-addresses"),
        ("quota", quota, "ResourceQuotaExceeded", None, "PublicIPCountLimitReached"),
    ] {
        environment.faults.inject(FaultRule::new(fault).on("put").about(&addresses(name))).unwrap();
        let (id, made) = environment.create(name).await;
        let ended = environment.finished(made).await;
        let error = ended.error.unwrap();
        assert_eq!((ended.status, error.code.as_str()), (ProvisioningState::Failed, code), "{name}");
        assert_eq!(error.details.first().map(|it| it.code.as_str()), detail, "{name}");
        assert!(error.message.contains(text), "{name}: {}", error.message);
        environment.faults.clear();
        is_deleted(&environment, id, name).await;
    }
    // A lock of the customer on the group of the network.
    let lock =
        ResourceId::group(SUBSCRIPTION, "locked-rg").sibling("Microsoft.Authorization", "locks", "keep");
    let (document, secrets) =
        crate::customer::prepare(&environment.cloud, SUBSCRIPTION, "locked", environment.clock.now())
            .await
            .unwrap();
    put(&environment, &lock, Properties::Lock { level: LockLevel::ReadOnly, notes: None }).await;
    let (id, made) =
        crate::customer::create(&environment.store, &document, &secrets, &*environment.clock).await.unwrap();
    let error = environment.finished(made).await.error.unwrap();
    assert_eq!(error.code, "ScopeLocked", "{error:?}");
    is_deleted(&environment, id, "locked").await;
}

/// Deletes a cluster, and expects that nothing of it is left.
async fn is_deleted(environment: &TestEnvironment, id: uuid::Uuid, name: &str) {
    let removed = environment.change(id, Verb::Delete, |_| ()).await;
    environment.succeeds(removed).await;
    assert_eq!(environment.remaining_resources(name, id, SUBSCRIPTION).await, Vec::<String>::new(), "{name}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_lack_of_capacity_is_reported_though_a_later_read_fails() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    let absent = |cluster: &mut Cluster| {
        let pool = &mut cluster.provisioned.as_mut().unwrap().spec.workers[0];
        "Standard_Nowhere".clone_into(&mut pool.vm_size);
    };
    let subscription = "44444444-4444-4444-4444-444444444449";
    environment.faults.inject(FaultRule::new(CloudFault::Denied {}).on("usages")).unwrap();
    environment.faults.inject(FaultRule::new(CloudFault::Denied {}).on("providers")).unwrap();
    let (_, made) = environment.create_as(subscription, "absent", absent).await;
    let size = "properties.workerProfiles[0].VMSize";
    assert_eq!(operation_error(&environment, made).await, pair("InvalidParameter", size));
    environment.faults.clear();
    environment.faults.inject(FaultRule::new(CloudFault::Denied {}).on("providers")).unwrap();
    let (location, quota) = (LOCATION.to_owned(), "virtualMachines".to_owned());
    let full = Setting::Quota { subscription: subscription.to_owned(), location, quota, limit: 6 };
    environment.cloud.arrange(full).await.unwrap();
    let (_, made) = environment.create_as(subscription, "full", |_| ()).await;
    assert_eq!(operation_error(&environment, made).await, pair("ResourceQuotaExceeded", ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_survives_lost_operations_revoked_tokens_broken_connections_and_failed_handshakes() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    let (id, made) = environment.create("stormy").await;
    let storm = [
        FaultRule::new(CloudFault::OperationLost {}).on("put").share(0.5),
        FaultRule::new(CloudFault::OperationLost {}).on("delete").share(0.5),
        FaultRule::new(CloudFault::TokenExpires {}).share(0.05),
        FaultRule::new(CloudFault::Claims {}).share(0.05),
        FaultRule::new(CloudFault::Reset { when: FaultTiming::Before }).share(0.02),
        FaultRule::new(CloudFault::Reset { when: FaultTiming::After }).share(0.02),
        // Broken connections are followed by handshakes.
        FaultRule::new(CloudFault::HandshakeFails {}).share(0.3),
        FaultRule::new(CloudFault::Conflict { after_seconds: 1 }).share(0.02),
        FaultRule::new(CloudFault::DelayedPropagation { millis: 300 }),
    ];
    for rule in storm {
        environment.faults.inject(rule).unwrap();
    }
    environment.succeeds(made).await;
    let updated = environment
        .change(id, Verb::Update, |wanted| {
            wanted.provisioned.as_mut().unwrap().spec.network.managed_outbound_ips = Some(2);
        })
        .await;
    environment.succeeds(updated).await;
    let removed = environment.change(id, Verb::Delete, |_| ()).await;
    environment.succeeds(removed).await;
    environment.faults.clear();
    assert_eq!(environment.remaining_resources("stormy", id, SUBSCRIPTION).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_never_ends_is_given_up_and_what_it_made_is_removed() {
    let test = CallFaultTest::new().await;
    let world = begin(&test.environment, &test.store, Verb::Create, IdentityKind::Principal, 0).await;
    let hang = FaultRule::new(CloudFault::OperationHangs {}).on("put").about(&addresses(&world.name));
    test.environment.faults.inject(hang).unwrap();
    let prepare = async |_: &Journal| {
        let cluster = test.cluster(&world).await;
        let mut timing = immediate_timing();
        timing.tries = 1;
        let mut plan = plan::for_verb(Verb::Create, &cluster, timing);
        // Half an hour, in production.
        for step in &mut plan.steps {
            if step.name.as_str() == "deploy-base-resource-template" {
                step.timeout = Duration::from_secs(3);
            }
        }
        (plan, test.context(world.cluster))
    };
    let (_, work) = test.run(None, async || {}, prepare).await;
    assert_eq!(work.state, WorkState::RetriesExceeded, "{:?}", work.result);
    let result = work.result.unwrap();
    assert!(result.has_code(&api::doc::ResultCode::STEP_TIMEOUT), "{result:?}");
    assert_eq!(result.step.as_deref(), Some("deploy-base-resource-template"), "{result:?}");
    test.environment.faults.clear();
    let delete = async |_: &Journal| {
        let cluster = test.cluster(&world).await;
        (plan::for_verb(Verb::Delete, &cluster, immediate_timing()), test.context(world.cluster))
    };
    let (_, work) = test.run(None, async || {}, delete).await;
    assert_eq!(work.state, WorkState::Completed, "{:?}", work.result);
    let left = test.environment.remaining_resources(&world.name, world.cluster, SUBSCRIPTION).await;
    assert_eq!(left, Vec::<String>::new());
}
