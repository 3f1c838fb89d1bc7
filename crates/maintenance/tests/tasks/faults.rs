//! What every kind of step makes of a cluster that does not answer, or answers that it cannot.

use std::sync::Arc;
use std::time::Duration;

use api::clock::SystemClock;
use api::work::WorkState;
use kubelink::{AllowedRisks, Kubeconfig, Link, Timeouts};
use kubesim::faults::Fault;
use planner::task::{Definition, check, from_value};
use serde_json::{Value, json};
use steps::engine::WaitingCode;
use steps::engine::fault_harness::waiting_code;

use crate::environment::TestRun;

fn every_kind() -> Vec<Value> {
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "web"});
    let with = |more: Value| {
        let mut all = web.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    vec![
        json!({"uses": "assert", "with": {"that": "nodes.size() > 0"}}),
        json!({"uses": "kubernetes/apply", "with": {"manifests": [map], "prune": "a=b"}}),
        json!({"uses": "kubernetes/patch", "with": with(json!({"patch": {"spec": {"replicas": 1}}}))}),
        json!({"uses": "kubernetes/delete", "with": with(json!({}))}),
        json!({"uses": "kubernetes/wait", "with": with(json!({"until": "true"}))}),
        json!({"uses": "kubernetes/restart", "with": {"kind": "Deployment", "namespace": "default", "name": "web"}}),
        json!({"uses": "kubernetes/job", "with": {"namespace": "default", "image": "example.invalid/job"}}),
        json!({"uses": "node/cordon", "with": {"node": "node-1"}}),
        json!({"uses": "node/uncordon", "with": {"selector": "a"}}),
        json!({"uses": "node/drain", "with": {"node": "node-1"}}),
    ]
}

fn task(step: Value) -> Definition {
    check(&from_value(json!({"name": "one", "title": "One step", "steps": [step]})).unwrap()).unwrap()
}

async fn world() -> (kubesim::SimulatedCluster, Link) {
    let cluster = kubesim::SimulatedCluster::start("sim", kubesim::ClusterOptions::default()).await.unwrap();
    let kubeconfig = Kubeconfig::parse(&cluster.kubeconfig(), None, &AllowedRisks::nothing()).unwrap();
    let timeouts = Timeouts { connect: Duration::from_secs(5), request: Duration::from_secs(5) };
    let link = Link::open("sim", &kubeconfig, timeouts, Arc::new(SystemClock)).unwrap();
    (cluster, link)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_does_not_answer_parks_the_work_whatever_its_step() {
    let (cluster, link) = world().await;
    cluster.faults().always(Fault::Unreachable);
    for step in every_kind() {
        let end = TestRun::new().await.run(&task(step.clone()), &json!({}), &link).await;
        assert_eq!(end.state, WorkState::Pending, "{step}: {}", end.messages());
        assert_eq!(waiting_code(&end.work), Some(WaitingCode::Unreachable), "{step}: {}", end.messages());
        assert_eq!(end.work.attempt, 0, "{step}: no attempt is spent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_fails_costs_an_attempt_and_another_follows() {
    let (cluster, link) = world().await;
    cluster.faults().always(Fault::InternalError);
    for step in every_kind() {
        let end = TestRun::new().await.run(&task(step.clone()), &json!({}), &link).await;
        assert_eq!(waiting_code(&end.work), Some(WaitingCode::BackingOff), "{step}: {}", end.messages());
        assert_eq!(end.work.attempt, 1, "{step}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_ends_the_work() {
    let (_cluster, link) = world().await;
    let gone = ["kubernetes/patch", "kubernetes/restart", "node/cordon", "node/uncordon", "node/drain"];
    for step in every_kind() {
        let uses = step["uses"].as_str().unwrap().to_owned();
        if !gone.contains(&uses.as_str()) {
            continue;
        }
        let end = TestRun::new().await.run(&task(step), &json!({}), &link).await;
        assert_eq!(end.state, WorkState::Failed, "{uses}: {}", end.messages());
        assert!(["NotFound", "NoNodes"].contains(&end.code().as_str()), "{uses}: {}", end.code());
    }
}
