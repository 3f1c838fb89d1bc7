//! Operations on clusters that are unreachable, or whose document this release cannot read.

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

use crate::environment::{SUBSCRIPTION, TestEnvironment, eventually};
use crate::removals::created;

/// Stops the machines of a cluster's control plane.
async fn stop_control_plane(environment: &TestEnvironment, name: &str) {
    let managed = ResourceId::group(SUBSCRIPTION, &format!("aro-{name}"));
    for machine in environment.cloud.azure().machines(&managed).await.unwrap() {
        if machine.id.name().contains("-master-") {
            environment.cloud.azure().stop_machine(&machine.id).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_of_an_unreachable_cluster_fails_and_the_cluster_can_be_deleted() {
    let (environment, clock, id) = created("silent").await;
    // The first attempt fails after the step that waits for the API servers.
    let unavailable = FaultRule::new(CloudFault::Unavailable { when: FaultTiming::Before }).on("certificate");
    environment.cloud.inject(unavailable).await.unwrap();
    let updated = environment.change(id, Verb::Update, |_| ()).await;
    assert_eq!(environment.run_attempts(updated, 1, &clock).await.len(), 1);
    let journal = Journal::read(environment.store.work(updated).await.unwrap().unwrap().checkpoint.as_ref());
    assert!(journal.is_done("api-servers-ready") && journal.is_open("configure-certificates"));
    environment.cloud.clear_faults().await.unwrap();
    stop_control_plane(&environment, "silent").await;

    assert_eq!(environment.run_attempts(updated, 100, &clock).await.len(), 3, "five attempts in all");
    let ended = environment.finished(updated).await;
    assert_eq!(ended.status, ProvisioningState::Failed);
    let error = ended.error.unwrap();
    assert_eq!(error.code, "DeploymentFailed");
    assert!(error.message.contains("Kubernetes API of the cluster is unavailable"), "{error:?}");
    let cluster = environment.cluster(id).await.unwrap().document;
    assert_eq!(cluster.failed_provisioning_state, Some(ProvisioningState::Updating));

    let removed = environment.change(id, Verb::Delete, |_| ()).await;
    let (_stop, _backend) = environment.backend();
    environment.succeeds(removed).await;
}

/// A cluster's document as another release could have written it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ForeignCluster(Value);

impl Document for ForeignCluster {
    const KIND: &'static str = Cluster::KIND;

    fn path(&self) -> String {
        self.0["id"].as_str().unwrap().to_lowercase()
    }

    fn scope(&self) -> String {
        format!("/subscriptions/{}", self.0["subscriptionId"].as_str().unwrap().to_lowercase())
    }
}

async fn rewrite(environment: &TestEnvironment, id: Uuid, member: &str, value: Value) -> Value {
    let read = environment.store.documents::<ForeignCluster>().get(id).await.unwrap().unwrap();
    let mut wanted = read.document.clone();
    let before = wanted.0[member].clone();
    wanted.0[member] = value;
    let write = Transaction::new()
        .update(&read, &wanted, DesiredState::Unchanged, &AuditContext::service("test"))
        .unwrap();
    environment.store.commit(write).await.unwrap();
    before
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_on_an_unreadable_cluster_waits_for_a_release_that_can_read_it() {
    let (environment, clock, id) = created("strange").await;
    let updated = environment.change(id, Verb::Update, |_| ()).await;
    let original = rewrite(&environment, id, "createdAt", json!("the third day")).await;
    let (_stop, _backend) = environment.backend();
    let parked = eventually("the operation is parked", async || {
        let work = environment.store.work(updated).await.ok()??;
        Journal::read(work.checkpoint.as_ref()).waiting.is_some().then_some(work)
    })
    .await;
    assert_eq!((parked.state, parked.attempt), (WorkState::Pending, 0), "waiting costs no attempt");
    let waiting = Journal::read(parked.checkpoint.as_ref()).waiting.unwrap();
    assert_eq!(waiting.code, WaitingCode::Precondition);
    assert!(waiting.message.contains("this release cannot read the cluster"), "{waiting:?}");
    let operation = environment.store.operations().get(updated).await.unwrap().unwrap().document;
    assert_eq!((operation.status, operation.end_time), (ProvisioningState::Updating, None));

    rewrite(&environment, id, "createdAt", original).await;
    clock.advance(SignedDuration::from_mins(2));
    environment.succeeds(updated).await;
    let cluster = environment.cluster(id).await.unwrap().document;
    assert_eq!((cluster.provisioning_state, cluster.operation), (ProvisioningState::Succeeded, None));
}
