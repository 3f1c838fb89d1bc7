//! Clusters that nobody changes.

use std::sync::Arc;

use api::doc::Verb;
use cloudsim::{CloudFault, FaultRule, FaultTiming};
use maintenance::actuator;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::environment::TestEnvironment;

/// An actuator with the built-in tasks, beside the backend.
fn actuator(environment: &TestEnvironment) -> actuator::Deps<actuator::TaskCatalog> {
    let deps = environment.deps();
    let provider = actuator::Provider {
        vault: deps.cloud.vault,
        identities: deps.cloud.identities,
        store: deps.store.clone(),
    };
    let connections = steps::ClusterConnections::new(
        deps.store.reader(),
        kubelink::LinksLimits::default(),
        kubelink::kubeconfig::AllowedRisks::default(),
        deps.clock.clone(),
    );
    let tasks = actuator::TaskCatalog::new(deps.store.reader(), connections, deps.clock.clone());
    actuator::Deps {
        store: deps.store,
        tasks: Arc::new(tasks.with_provider(provider)),
        clock: deps.clock,
        metrics: actuator::Metrics::default(),
        config: actuator::Config { slots: 8, timing: deps.config.timing },
        owner: Uuid::new_v4(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_cluster_causes_no_calls_to_the_cloud() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    let shutdown = CancellationToken::new();
    let stops = shutdown.clone().drop_guard();
    let deps = actuator(&environment);
    let mut actuator = tokio::task::JoinSet::new();
    actuator.spawn(actuator::run(deps, shutdown));
    let (idle, created) = environment.create("quiet").await;
    environment.succeeds(created).await;

    // Rules without harm, which the first call about the cluster would use up: its groups, records, certificates and token.
    let record = environment.cluster(idle).await.unwrap().document.provisioned.unwrap().record;
    let subjects = ["quiet".to_owned(), idle.to_string(), record.registry_token.unwrap().name];
    let watch = |subject: &String| {
        let nothing = CloudFault::Delayed { millis: 0, when: FaultTiming::Before };
        environment.faults.inject(FaultRule::new(nothing).about(subject).times(1)).unwrap();
    };
    subjects.iter().for_each(watch);
    let watching = environment.faults.present();
    // For as long as another cluster lives, with thousands of polls of everything.
    let (busy, created) = environment.create("busy").await;
    environment.succeeds(created).await;
    let updated = environment
        .change(busy, Verb::Update, |wanted| {
            wanted.provisioned.as_mut().unwrap().spec.network.managed_outbound_ips = Some(2);
        })
        .await;
    environment.succeeds(updated).await;
    let deleted = environment.change(busy, Verb::Delete, |_| ()).await;
    environment.succeeds(deleted).await;
    assert_eq!(environment.faults.present(), watching, "a call was about the idle cluster");

    // The rules do see calls: those of an update.
    let updated = environment.change(idle, Verb::AdminUpdate, |_| ()).await;
    environment.succeeds(updated).await;
    assert_ne!(environment.faults.present(), watching);
    drop(stops);
    while let Some(ended) = actuator.join_next().await {
        ended.unwrap().unwrap();
    }
}
