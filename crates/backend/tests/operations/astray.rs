//! Operations whose cluster does not answer, or is not understood.

use api::doc::{Cluster, Document, ProvisioningState, Verb};
use api::work::WorkState;
use cloud::{Machines as _, ResourceId};
use cloudsim::{CloudFault, FaultRule, FaultTiming};
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use steps::engine::{Journal, WaitingCode};
use store::{AuditContext, DesiredState, Transaction};
use uuid::Uuid;

use crate::removals::made;
use crate::site::{SUBSCRIPTION, Site, eventually};

/// Stops the machines of a cluster's control plane.
async fn stop_control_plane(site: &Site, name: &str) {
    let managed = ResourceId::group(SUBSCRIPTION, &format!("aro-{name}"));
    for machine in site.cloud.machines(&managed).await.unwrap() {
        if machine.id.name().contains("-master-") {
            site.cloud.stop_machine(&machine.id).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_whose_cluster_does_not_answer_is_failed_and_the_cluster_can_be_deleted() {
    let (site, clock, id) = made("silent").await;
    // It gets behind the step that waits for the API servers, and rests.
    let refuses = FaultRule::new(CloudFault::Unavailable { when: FaultTiming::Before }).on("certificate");
    site.cloud.inject(refuses).await.unwrap();
    let updated = site.change(id, Verb::Update, |_| ()).await;
    assert_eq!(site.attempted(updated, 1, &clock).await.len(), 1);
    let journal = Journal::read(site.store.work(updated).await.unwrap().unwrap().checkpoint.as_ref());
    assert!(journal.is_done("api-servers-ready") && journal.is_open("configure-certificates"));
    site.cloud.clear_faults().await.unwrap();
    stop_control_plane(&site, "silent").await;

    assert_eq!(site.attempted(updated, 100, &clock).await.len(), 3, "five attempts in all");
    let ended = site.ended(updated).await;
    assert_eq!(ended.status, ProvisioningState::Failed);
    let error = ended.error.unwrap();
    assert_eq!(error.code, "DeploymentFailed");
    assert!(error.message.contains("Kubernetes API of the cluster is unavailable"), "{error:?}");
    let cluster = site.cluster(id).await.unwrap().document;
    assert_eq!(cluster.failed_provisioning_state, Some(ProvisioningState::Updating));

    let removed = site.change(id, Verb::Delete, |_| ()).await;
    let (_stop, _backend) = site.backend();
    site.succeeds(removed).await;
}

/// A cluster's document as another release may have written it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Strange(Value);

impl Document for Strange {
    const KIND: &'static str = Cluster::KIND;

    fn path(&self) -> String {
        self.0["id"].as_str().unwrap().to_lowercase()
    }

    fn scope(&self) -> String {
        format!("/subscriptions/{}", self.0["subscriptionId"].as_str().unwrap().to_lowercase())
    }
}

async fn rewrite(site: &Site, id: Uuid, member: &str, value: Value) -> Value {
    let read = site.store.documents::<Strange>().get(id).await.unwrap().unwrap();
    let mut wanted = read.document.clone();
    let before = wanted.0[member].clone();
    wanted.0[member] = value;
    let write = Transaction::new()
        .update(&read, &wanted, DesiredState::Unchanged, &AuditContext::service("test"))
        .unwrap();
    site.store.commit(write).await.unwrap();
    before
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_this_release_does_not_understand_waits_for_one_that_does() {
    let (site, clock, id) = made("strange").await;
    let updated = site.change(id, Verb::Update, |_| ()).await;
    let known = rewrite(&site, id, "createdAt", json!("the third day")).await;
    let (_stop, _backend) = site.backend();
    let parked = eventually("it is set aside", async || {
        let work = site.store.work(updated).await.ok()??;
        Journal::read(work.checkpoint.as_ref()).waiting.is_some().then_some(work)
    })
    .await;
    assert_eq!((parked.state, parked.attempt), (WorkState::Pending, 0), "it costs nothing");
    let waiting = Journal::read(parked.checkpoint.as_ref()).waiting.unwrap();
    assert_eq!(waiting.code, WaitingCode::Precondition);
    assert!(waiting.message.contains("does not understand the cluster"), "{waiting:?}");
    let operation = site.store.operations().get(updated).await.unwrap().unwrap().document;
    assert_eq!((operation.status, operation.end_time), (ProvisioningState::Updating, None));

    rewrite(&site, id, "createdAt", known).await;
    clock.leap(SignedDuration::from_mins(2));
    site.succeeds(updated).await;
    let cluster = site.cluster(id).await.unwrap().document;
    assert_eq!((cluster.provisioning_state, cluster.operation), (ProvisioningState::Succeeded, None));
}
