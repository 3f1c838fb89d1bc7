//! A subscription that is deleted takes its clusters along, in whatever state they are.

use std::sync::Arc;

use api::doc::{ProvisioningState, Subscription, SubscriptionState, Verb};
use api::install::InstallStage;
use api::work::WorkState;
use cloudsim::{CloudFault, FaultRule, FaultTiming};
use jiff::SignedDuration;
use steps::engine::{Journal, progress};
use store::{AuditContext, ListOptions};
use uuid::Uuid;

use crate::site::{LeapingClock, Site, eventually};

const DOOMED: &str = "22222222-2222-2222-2222-222222222222";

async fn state(site: &Site, id: Uuid) -> (ProvisioningState, Option<ProvisioningState>) {
    let cluster = site.cluster(id).await.unwrap().document;
    (cluster.provisioning_state, cluster.failed_provisioning_state)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_subscription_removes_its_clusters_in_whatever_state_they_are() {
    use ProvisioningState::{Creating, Failed, Succeeded};
    let clock = Arc::new(LeapingClock::default());
    let site = Site::by(clock.clone()).await;
    let mut all: Vec<(String, Uuid)> = Vec::new();

    // One that was given up after all its attempts: the cloud never let anything be made in its group.
    let refuses =
        FaultRule::new(CloudFault::Unavailable { when: FaultTiming::Before }).on("put").about("aro-spent");
    let (spent, operation) = site.create_as(DOOMED, "spent", |_| ()).await;
    site.cloud.inject(refuses).await.unwrap();
    assert_eq!(site.attempted(operation, 100, &clock).await.len(), 4);
    assert_eq!(site.store.work(operation).await.unwrap().unwrap().state, WorkState::RetriesExceeded);
    assert_eq!(state(&site, spent).await, (Failed, Some(Creating)));
    site.cloud.clear_faults().await.unwrap();
    all.push(("spent".to_owned(), spent));

    // Five that are well, and six whose installation failed, each at another stage.
    let (stop, backend) = site.backend();
    let mut operations = Vec::new();
    for index in 0..5 {
        let name = format!("good{index}");
        let (id, made) = site.create_as(DOOMED, &name, |_| ()).await;
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
        site.fail_installation(&name, stage).await;
        let (id, made) = site.create_as(DOOMED, &name, |_| ()).await;
        all.push((name, id));
        operations.push(made);
    }
    for operation in operations {
        site.ended(operation).await;
    }
    for (name, id) in &all[1..] {
        let expect = if name.starts_with("good") { (Succeeded, None) } else { (Failed, Some(Creating)) };
        assert_eq!(state(&site, *id).await, expect, "{name}");
    }

    // Three that are half made, and whose backend dies over it.
    site.cloud
        .inject(
            FaultRule::new(CloudFault::Delayed { millis: 60_000, when: FaultTiming::Before }).on("install"),
        )
        .await
        .unwrap();
    for index in 0..3 {
        let name = format!("half{index}");
        let (id, made) = site.create_as(DOOMED, &name, |_| ()).await;
        eventually("it is half made", async || {
            let work = site.store.work(made).await.ok()??;
            progress(&Journal::read(work.checkpoint.as_ref())).filter(|it| it.percent() > 40)
        })
        .await;
        all.push((name, id));
    }
    backend.abort();
    drop(stop);
    site.cloud.clear_faults().await.unwrap();
    clock.leap(SignedDuration::from_secs(10));

    // One that is to be changed, one that is to be removed, and five that were just ordered: nothing of that is begun.
    for (index, verb) in [(1, Verb::Update), (2, Verb::Delete)] {
        site.change(all[index].1, verb, |_| ()).await;
    }
    for index in 0..5 {
        let name = format!("new{index}");
        let (id, _) = site.create_as(DOOMED, &name, |_| ()).await;
        all.push((name, id));
    }
    assert_eq!(all.len(), 20);
    for (name, id) in all.iter().filter(|(name, _)| name.starts_with("half") || name.starts_with("new")) {
        assert_eq!(state(&site, *id).await, (Creating, None), "{name}");
    }

    let subscription = Subscription {
        subscription_id: DOOMED.to_owned(),
        state: SubscriptionState::Deleted,
        tenant_id: None,
        registered_features: Vec::new(),
        body: serde_json::Value::Null,
    };
    site.store.subscriptions().put(&subscription, None, &AuditContext::service("test")).await.unwrap();
    let (_stop, _backend) = site.backend();
    eventually("no clusters are left", async || {
        let scope = Some(format!("/subscriptions/{DOOMED}"));
        let left =
            site.store.clusters().list(ListOptions { scope, limit: 100, ..ListOptions::default() }).await;
        left.ok().filter(|it| it.items.is_empty()).map(drop)
    })
    .await;
    for (name, id) in &all {
        assert_eq!(site.left_of(name, *id, DOOMED).await, Vec::<String>::new(), "{name}");
    }
}
