//! `replace-machine` and `scale-machineset`, on the real API server and through every fault. The controllers of machines are played by
//! the simplest loop that does their work; what they do in earnest is tested where they are.

use std::time::Duration;

use api::crd::machine::{Machine, MachineSet, names};
use api::work::WorkState;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Resource as _, ResourceExt};
use kubelink::Link;
use planner::task::Catalogue;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::environment::{TestRun, eventually, real, run_builtin};
use crate::fault_runs::is;
use crate::sim::{FaultRun, WorldCheck};

const SET: &str = "workers";

fn sets(link: &Link, namespace: &str) -> Api<MachineSet> {
    Api::namespaced(link.client(), namespace)
}

async fn machines(link: &Link, namespace: &str) -> Vec<Machine> {
    Api::<Machine>::namespaced(link.client(), namespace).list(&ListParams::default()).await.unwrap().items
}

/// Defines the custom resources and creates a MachineSet with two machines.
pub(crate) async fn prepare(link: &Link, namespace: &str) {
    let definitions: Api<CustomResourceDefinition> = Api::all(link.client());
    for definition in api::crd::definitions() {
        let name = definition.name_any();
        match definitions.create(&PostParams::default(), &definition).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created.unwrap()),
        }
        // Not `eventually`: the future of a closure is not Send for every lifetime, which the fault harness demands.
        let established = async {
            loop {
                let found = definitions.get(&name).await.unwrap();
                let conditions = found.status.and_then(|it| it.conditions).unwrap_or_default();
                if conditions.iter().any(|it| it.type_ == "Established" && it.status == "True") {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), established)
            .await
            .expect("the definition is established");
    }
    let set: MachineSet = serde_json::from_value(json!({
        "metadata": { "name": SET },
        "spec": {
            "replicas": 2, "selector": { "matchLabels": { "set": SET } },
            "template": { "metadata": { "labels": { "set": SET } }, "spec": { "providerSpec": { "value": {} } } }
        }
    }))
    .unwrap();
    sets(link, namespace).create(&PostParams::default(), &set).await.unwrap();
}

/// Makes the machines of the MachineSet what its spec says, until it is dropped.
pub(crate) async fn control(link: Link, namespace: String) {
    loop {
        // Conflicts and objects that are gone are looked at again.
        let _ = reconcile(&link, &namespace).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn reconcile(link: &Link, namespace: &str) -> kube::Result<()> {
    let machines: Api<Machine> = Api::namespaced(link.client(), namespace);
    for set in sets(link, namespace).list(&ListParams::default()).await?.items {
        let mut found =
            machines.list(&ListParams::default().labels(&format!("set={}", set.name_any()))).await?.items;
        let wanted = usize::try_from(set.spec.replicas.unwrap_or(1)).unwrap_or(0);
        for _ in found.len()..wanted {
            let machine = Machine {
                metadata: ObjectMeta {
                    generate_name: Some(format!("{SET}-")),
                    labels: Some([("set".to_owned(), SET.to_owned())].into()),
                    owner_references: set.controller_owner_ref(&()).map(|it| vec![it]),
                    ..ObjectMeta::default()
                },
                spec: set.spec.template.spec.clone().unwrap_or_default(),
                status: None,
            };
            found.push(machines.create(&PostParams::default(), &machine).await?);
        }
        for surplus in found.split_off(wanted.min(found.len())) {
            machines.delete(&surplus.name_any(), &DeleteParams::default()).await?;
        }
        for machine in found.iter().filter(|it| it.status.is_none()) {
            let status = Patch::Merge(json!({ "status": { "phase": "Running" } }));
            machines.patch_status(&machine.name_any(), &PatchParams::default(), &status).await?;
        }
        let count = found.len();
        let status = json!({ "status": {
            "replicas": count, "readyReplicas": count, "observedGeneration": set.metadata.generation, "labelSelector": format!("set={SET}")
        } });
        sets(link, namespace)
            .patch_status(&set.name_any(), &PatchParams::default(), &Patch::Merge(status))
            .await?;
    }
    Ok(())
}

/// The MachineSet with its two machines, ready.
async fn ready(link: &Link, namespace: &str) -> Vec<String> {
    eventually("two machines are ready", async || {
        let status = sets(link, namespace).get(SET).await.unwrap().status?;
        (status.ready_replicas == Some(2)).then_some(())
    })
    .await;
    machines(link, namespace).await.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_replaced_by_its_set_and_only_then() {
    let Some(real) = real() else { return };
    let (link, namespace) = (real.link(), real.cluster.namespace("replace").unwrap());
    prepare(&link, &namespace).await;
    let run = async |machine: &str| {
        run_builtin("replace-machine", &json!({ "machine": machine, "namespace": namespace }), &link).await
    };
    let mut controllers = JoinSet::new();
    controllers.spawn(control(link.clone(), namespace.clone()));
    let before = ready(&link, &namespace).await;
    let end = run(&before[0]).await;
    assert_eq!(end.state, WorkState::Completed, "{}", end.message());
    let after: Vec<String> = machines(&link, &namespace).await.iter().map(ResourceExt::name_any).collect();
    assert_eq!(after.len(), 2);
    assert!(!after.contains(&before[0]) && after.contains(&before[1]), "{before:?} {after:?}");

    let end = run("absent").await;
    assert_eq!((end.state, end.code().as_str()), (WorkState::Failed, "NotFound"));
    controllers.shutdown().await;
    let alone: Machine =
        serde_json::from_value(json!({ "metadata": { "name": "alone" }, "spec": {} })).unwrap();
    Api::namespaced(link.client(), &namespace).create(&PostParams::default(), &alone).await.unwrap();
    let end = run("alone").await;
    assert_eq!((end.state, end.code().as_str()), (WorkState::Failed, "NoMachineSet"));
    assert!(end.message().contains("nothing would replace it"), "{}", end.message());
    assert_eq!(machines(&link, &namespace).await.len(), 3, "nothing was deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_is_scaled_within_its_limits_and_scaled_back_on_cancellation() {
    let Some(real) = real() else { return };
    let (link, namespace) = (real.link(), real.cluster.namespace("scale").unwrap());
    prepare(&link, &namespace).await;
    let parameters =
        |replicas: i32| json!({ "machineSet": SET, "replicas": replicas, "namespace": namespace });
    let mut controllers = JoinSet::new();
    controllers.spawn(control(link.clone(), namespace.clone()));
    ready(&link, &namespace).await;
    for replicas in [3, 1, 2] {
        let end = run_builtin("scale-machineset", &parameters(replicas), &link).await;
        assert_eq!(end.state, WorkState::Completed, "{}", end.message());
        assert_eq!(machines(&link, &namespace).await.len(), usize::try_from(replicas).unwrap());
    }
    let limits = json!({ names::AUTOSCALER_MIN_SIZE: "1", names::AUTOSCALER_MAX_SIZE: "4" });
    let annotate = Patch::Merge(json!({ "metadata": { "annotations": limits } }));
    sets(&link, &namespace).patch(SET, &PatchParams::default(), &annotate).await.unwrap();
    let end = run_builtin("scale-machineset", &parameters(5), &link).await;
    assert_eq!((end.state, end.code().as_str()), (WorkState::Failed, "OutsideAutoscalerLimits"));
    controllers.shutdown().await;

    // Without controllers no machine comes; a cancel restores the number.
    let test = TestRun::new().await;
    let catalogue = Catalogue::builtin();
    let (task, wanted) = (catalogue.find("scale-machineset").unwrap(), parameters(4));
    let work = test.run(task, &wanted, &link);
    let cancel = async {
        eventually("the step says what it waits for", async || {
            let work = test.store.work(test.work).await.unwrap().unwrap();
            let step = steps::engine::Journal::read(work.checkpoint.as_ref()).step?;
            step.message.contains("has not been reconciled yet").then_some(())
        })
        .await;
        test.control.cancel.cancel();
    };
    let (end, ()) = tokio::join!(work, cancel);
    assert_eq!(end.state, WorkState::Cancelled, "{}", end.message());
    assert_eq!(sets(&link, &namespace).get(SET).await.unwrap().spec.replicas, Some(2));
}

fn fault_run(name: &str, parameters: Value, done: WorldCheck, undone: WorldCheck) -> FaultRun {
    let task = Catalogue::builtin().find(name).unwrap().clone();
    FaultRun { task, parameters, objects: String::new(), done, undone, ours: false, machines: true }
}

async fn replicas(link: &Link, expected: i32) -> Result<(), String> {
    let set = sets(link, "default").get(SET).await.unwrap();
    is(set.spec.replicas == Some(expected), format!("{:?} replicas", set.spec.replicas))
}

#[tokio::test(flavor = "multi_thread")]
async fn scale_machineset_survives_every_fault_and_restores_the_number() {
    let done: WorldCheck = |link, _| {
        Box::pin(async move {
            replicas(&link, 3).await?;
            is(machines(&link, "default").await.len() == 3, "there are not three machines")
        })
    };
    let undone: WorldCheck = |link, _| Box::pin(async move { replicas(&link, 2).await });
    let parameters = json!({ "machineSet": SET, "replicas": 3, "namespace": "default" });
    fault_run("scale-machineset", parameters, done, undone).all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replace_machine_survives_every_fault_and_deletes_one_machine_at_most() {
    let survivors: WorldCheck = |link, _| {
        Box::pin(async move {
            let names: Vec<String> =
                machines(&link, "default").await.iter().map(ResourceExt::name_any).collect();
            is(names.iter().any(|it| it == "kept"), format!("another machine was deleted: {names:?}"))
        })
    };
    let parameters = json!({ "machine": "replaced", "namespace": "default" });
    fault_run("replace-machine", parameters, survivors, survivors).all().await;
}

/// Machines of the MachineSet with known names, before the controllers make others.
pub(crate) async fn named(link: &Link, namespace: &str) {
    let set = sets(link, namespace).get(SET).await.unwrap();
    for name in ["kept", "replaced"] {
        let machine = Machine {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some([("set".to_owned(), SET.to_owned())].into()),
                owner_references: set.controller_owner_ref(&()).map(|it| vec![it]),
                ..ObjectMeta::default()
            },
            spec: set.spec.template.spec.clone().unwrap_or_default(),
            status: None,
        };
        Api::namespaced(link.client(), namespace).create(&PostParams::default(), &machine).await.unwrap();
    }
}
