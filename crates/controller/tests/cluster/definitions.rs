//! Controllers that start and stop as their custom resource definition comes and goes.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::{informers, soon, world};

#[tokio::test]
async fn work_runs_while_its_definition_is_established_and_again_when_it_comes_back() {
    let Some(world) = world("definition").await else { return };
    let (name, definition) = definition(&world.namespace);
    let api: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let running = informers(&world.client);
    let (happened, mut seen) = mpsc::unbounded_channel();
    let (shutdown, mut tasks) = (CancellationToken::new(), JoinSet::new());
    let (informers, stop) = (running.informers.clone(), shutdown.clone());
    tasks.spawn(async move {
        let work = |cancel: CancellationToken| {
            let happened = happened.clone();
            async move {
                happened.send("started").unwrap();
                cancel.cancelled().await;
                happened.send("cancelled").unwrap();
            }
        };
        informers.run_while_served(&[&name], stop, work).await
    });
    for _ in 0..2 {
        assert!(seen.try_recv().is_err(), "nothing runs without the definition");
        api.create(&PostParams::default(), &definition).await.unwrap();
        assert_eq!(soon("the start", seen.recv()).await, Some("started"));
        api.delete(&definition.metadata.name.clone().unwrap(), &DeleteParams::default()).await.unwrap();
        assert_eq!(soon("the end", seen.recv()).await, Some("cancelled"));
        let gone = |definition: Option<&CustomResourceDefinition>| definition.is_none();
        let name = definition.metadata.name.clone().unwrap();
        soon("the deletion", kube::runtime::wait::await_condition(api.clone(), &name, gone)).await.unwrap();
    }
    shutdown.cancel();
    assert_eq!(soon("the shutdown", tasks.join_next()).await.unwrap().unwrap(), None);
}

/// The name of a definition, and the definition.
fn definition(namespace: &str) -> (String, CustomResourceDefinition) {
    let group = format!("{namespace}.example.com");
    let name = format!("samples.{group}");
    let definition = json!({
        "metadata": {"name": name},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": "Sample", "plural": "samples"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    (name, serde_json::from_value(definition).unwrap())
}

#[tokio::test]
async fn work_that_can_do_without_a_definition_starts_again_when_it_comes_and_goes() {
    let Some(world) = world("optional").await else { return };
    let (name, definition) = definition(&world.namespace);
    let name: &'static str = name.leak();
    let api: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let running = informers(&world.client);
    let (happened, mut seen) = mpsc::unbounded_channel();
    let (shutdown, mut tasks) = (CancellationToken::new(), JoinSet::new());
    let (informers, stop) = (running.informers.clone(), shutdown.clone());
    tasks.spawn(async move {
        let work = |served: std::collections::BTreeSet<&'static str>, cancel: CancellationToken| {
            let happened = happened.clone();
            async move {
                happened.send(served.len()).unwrap();
                cancel.cancelled().await;
            }
        };
        informers.run_with_served(&[name], stop, work).await
    });
    assert_eq!(soon("the start without it", seen.recv()).await, Some(0));
    api.create(&PostParams::default(), &definition).await.unwrap();
    assert_eq!(soon("the start with it", seen.recv()).await, Some(1));
    api.delete(name, &DeleteParams::default()).await.unwrap();
    assert_eq!(soon("another start without it", seen.recv()).await, Some(0));
    shutdown.cancel();
    assert_eq!(soon("the shutdown", tasks.join_next()).await.unwrap().unwrap(), None);
}
