//! Deleting a subscription removes its clusters in any state.

use std::sync::Arc;

use api::doc::{ProvisioningState, Subscription, SubscriptionState, Verb};
use api::install::InstallStage;
use api::work::WorkState;
use cloudsim::{CloudFault, FaultRule, FaultTiming};
use jiff::SignedDuration;
use steps::engine::{Journal, progress};
use store::{AuditContext, ListOptions};
use uuid::Uuid;

use crate::environment::{AdvancingClock, TestEnvironment, eventually};

const DELETED_SUBSCRIPTION: &str = "22222222-2222-2222-2222-222222222222";

async fn state(environment: &TestEnvironment, id: Uuid) -> (ProvisioningState, Option<ProvisioningState>) {
    let cluster = environment.cluster(id).await.unwrap().document;
    (cluster.provisioning_state, cluster.failed_provisioning_state)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_subscription_removes_its_clusters_in_any_state() {
    use ProvisioningState::{Creating, Failed, Succeeded};
    let clock = Arc::new(AdvancingClock::default());
    let environment = TestEnvironment::with_clock(clock.clone()).await;
    let mut all: Vec<(String, Uuid)> = Vec::new();

    // A create that failed after all attempts: the cloud rejected every resource in its group.
    let unavailable =
        FaultRule::new(CloudFault::Unavailable { when: FaultTiming::Before }).on("put").about("aro-spent");
    let (spent, operation) = environment.create_as(DELETED_SUBSCRIPTION, "spent", |_| ()).await;
    environment.cloud.inject(unavailable).await.unwrap();
    assert_eq!(environment.run_attempts(operation, 100, &clock).await.len(), 4);
    assert_eq!(environment.store.work(operation).await.unwrap().unwrap().state, WorkState::RetriesExceeded);
    assert_eq!(state(&environment, spent).await, (Failed, Some(Creating)));
    environment.cloud.clear_faults().await.unwrap();
    all.push(("spent".to_owned(), spent));

    // Five that succeeded, and six whose installation failed, each at another stage.
    let (stop, backend) = environment.backend();
    let mut operations = Vec::new();
    for index in 0..5 {
        let name = format!("good{index}");
        let (id, made) = environment.create_as(DELETED_SUBSCRIPTION, &name, |_| ()).await;
        all.push((name, id));
        operations.push(made);
    }
    for stage in [
        InstallStage::Accepted,
        InstallStage::Bootstrap,
        InstallStage::ControlPlane,
        InstallStage::ApiServer,
        InstallStage::Workers,
        InstallStage::Operators,
    ] {
        let name = format!("bad-{}", stage.as_str().to_lowercase());
        environment.fail_installation(&name, stage).await;
        let (id, made) = environment.create_as(DELETED_SUBSCRIPTION, &name, |_| ()).await;
        all.push((name, id));
        operations.push(made);
    }
    for operation in operations {
        environment.finished(operation).await;
    }
    for (name, id) in &all[1..] {
        let expect = if name.starts_with("good") { (Succeeded, None) } else { (Failed, Some(Creating)) };
        assert_eq!(state(&environment, *id).await, expect, "{name}");
    }

    // Three whose creation is interrupted by the end of their backend.
    environment
        .cloud
        .inject(
            FaultRule::new(CloudFault::Delayed { millis: 60_000, when: FaultTiming::Before }).on("install"),
        )
        .await
        .unwrap();
    for index in 0..3 {
        let name = format!("half{index}");
        let (id, made) = environment.create_as(DELETED_SUBSCRIPTION, &name, |_| ()).await;
        eventually("the create is half done", async || {
            let work = environment.store.work(made).await.ok()??;
            progress(&Journal::read(work.checkpoint.as_ref())).filter(|it| it.percent() > 40)
        })
        .await;
        all.push((name, id));
    }
    backend.abort();
    drop(stop);
    environment.cloud.clear_faults().await.unwrap();
    clock.advance(SignedDuration::from_secs(10));

    // A pending update, a pending delete and five pending creates.
    for (index, verb) in [(1, Verb::Update), (2, Verb::Delete)] {
        environment.change(all[index].1, verb, |_| ()).await;
    }
    for index in 0..5 {
        let name = format!("new{index}");
        let (id, _) = environment.create_as(DELETED_SUBSCRIPTION, &name, |_| ()).await;
        all.push((name, id));
    }
    assert_eq!(all.len(), 20);
    for (name, id) in all.iter().filter(|(name, _)| name.starts_with("half") || name.starts_with("new")) {
        assert_eq!(state(&environment, *id).await, (Creating, None), "{name}");
    }

    let subscription = Subscription {
        subscription_id: DELETED_SUBSCRIPTION.to_owned(),
        state: SubscriptionState::Deleted,
        tenant_id: None,
        registered_features: Vec::new(),
        body: serde_json::Value::Null,
    };
    environment.store.subscriptions().put(&subscription, None, &AuditContext::service("test")).await.unwrap();
    let (_stop, _backend) = environment.backend();
    eventually("no clusters are left", async || {
        let scope = Some(format!("/subscriptions/{DELETED_SUBSCRIPTION}"));
        let left = environment
            .store
            .clusters()
            .list(ListOptions { scope, limit: 100, ..ListOptions::default() })
            .await;
        left.ok().filter(|it| it.items.is_empty()).map(drop)
    })
    .await;
    for (name, id) in &all {
        assert_eq!(
            environment.remaining_resources(name, *id, DELETED_SUBSCRIPTION).await,
            Vec::<String>::new(),
            "{name}"
        );
    }
}
