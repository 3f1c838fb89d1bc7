//! Conditions of tasks on a simulated cluster: what they look at stays there, and none holds up anybody.

use std::sync::Arc;

use api::clock::SystemClock;
use api::work::WorkState;
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kubelink::Link;
use planner::task::{Definition, check, from_value};
use serde_json::{Value, json};

use crate::effects::create;
use crate::environment::{RunResult, TestRun};

const SECRET: &str = "correct-horse-battery";
const SECRET_BASE64: &str = "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5";

fn task(step: Value) -> Definition {
    check(&from_value(json!({"name": "one", "title": "One step", "steps": [step]})).unwrap()).unwrap()
}

fn waiting(until: &str) -> Definition {
    task(json!({"uses": "kubernetes/wait", "timeout": "90s", "with": {"apiVersion": "v1", "kind": "Secret",
        "namespace": "default", "name": "key", "until": until}}))
}

/// A cluster with a Secret.
async fn world() -> (kubesim::SimulatedCluster, Link) {
    let cluster = kubesim::SimulatedCluster::start("sim", kubesim::ClusterOptions::default()).await.unwrap();
    let link = Link::from_client("sim", cluster.client(), Arc::new(SystemClock));
    let api: Api<Secret> = Api::namespaced(cluster.client(), "default");
    create(&api, json!({"metadata": {"name": "key"}, "data": {"password": SECRET_BASE64}})).await;
    (cluster, link)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_expression_says_of_a_secret_is_not_its_value() {
    let (_cluster, link) = world().await;
    let ends = [
        "object.data.password > 1",
        "object.data.password + 1 == 2",
        "int(object.data.password) == 1",
        "timestamp(object.data.password) > timestamp(0)",
        "duration(object.data.password) > duration('1s')",
        "'a'.matches(object.data.password + '(')",
        "object.data[object.data.password] == ''",
        "object.data.all(k, object.data[k] > 1)",
        "object.data in object.data",
        "object.data - 1 == 1",
        "object.data.password",
        "object.data.other == object.data.password",
        "object.data.password == 'guess'",
    ]
    .map(|until| {
        let link = &link;
        async move {
            let test = TestRun::new().await;
            (until, test.run(&waiting(until), &json!({}), link).await, test)
        }
    });
    for (until, end, test) in join_all(ends).await {
        let RunResult { work, entries, .. } = &end;
        assert_ne!(end.state, WorkState::Completed, "{until}");
        let text = format!("{work:?} {entries:?} {}", json!(entries));
        assert!(text.contains(until) || text.contains(&until.replace('\'', "\\'")), "{until}: {text}");
        let stored = std::fs::read(test.database()).unwrap();
        for value in [SECRET, SECRET_BASE64] {
            assert!(!text.contains(value), "{until}: {text}");
            assert!(!stored.windows(value.len()).any(|window| window == value.as_bytes()), "{until}");
        }
    }
}

#[tokio::test]
async fn a_condition_that_goes_beyond_a_limit_ends_the_step_with_its_name() {
    let (_cluster, link) = world().await;
    let list = "[0,1,2,3,4,5,6,7,8,9]";
    let plus = vec!["x"; 20].join(" + ");
    let grow = format!(".map(x, {plus})").repeat(6);
    for (until, limit) in [
        (format!("size(['x']{grow}) == 0"), "its values take more than 32 MiB"),
        (
            format!("{list}.all(a, {list}.all(b, !'a'.matches('[a-z]{{5' + string(a) + string(b) + '}}')))"),
            "it takes more than 20000000 units of work",
        ),
    ] {
        let end = TestRun::new().await.run(&waiting(&until), &json!({}), &link).await;
        assert_eq!(end.state, WorkState::Failed, "{}", end.messages());
        assert!(end.message().contains(&format!("{until}: {limit}")), "{}", end.message());
        let asserted = task(json!({"uses": "assert", "with": {"that": until}}));
        let end = TestRun::new().await.run(&asserted, &json!({}), &link).await;
        assert_eq!((end.state, end.code().as_str()), (WorkState::Failed, "AssertFailed"));
        assert!(end.message().contains(limit), "{}", end.message());
    }
}
