//! Writes under a field manager, and the limits of a connection.

use controller::testing::{CrashPoint, Effect};
use controller::{FieldManager, ObjectKey, Precondition, connect};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::support::{informers, soon, world};

const MANAGER: FieldManager = FieldManager::new("controller-tests");
const OTHER: FieldManager = FieldManager::new("controller-tests-other");

#[tokio::test]
async fn what_is_as_it_shall_be_is_not_written() {
    let Some(world) = world("unchanged").await else { return };
    let counter = CrashPoint::at(usize::MAX, Effect::NotSent);
    let running = informers(&counter.client(&world.client));
    let budgets = running.informers.namespaced::<PodDisruptionBudget>(&world.namespace);
    let budget = json!({"metadata": {"name": "web", "namespace": world.namespace}, "spec": {"maxUnavailable": 1, "selector": {}}});
    let budget: PodDisruptionBudget = serde_json::from_value(budget).unwrap();
    let created = MANAGER.create(&budgets, &budget).await.unwrap();
    assert_eq!(counter.writes(), 1);

    let none = MANAGER.patch_status(&budgets, &created, &created, Precondition::Unchanged).await.unwrap();
    assert!(none.is_none());
    assert!(MANAGER.patch(&budgets, &created, &created, Precondition::None).await.unwrap().is_none());
    assert_eq!(counter.writes(), 1);

    // A status alone does not touch the rest, and the rest does not touch the status.
    let mut wanted = created.as_ref().clone();
    wanted.status.get_or_insert_default().expected_pods = Some(7);
    wanted.labels_mut().insert("a".to_owned(), "b".to_owned());
    let patched =
        MANAGER.patch_status(&budgets, &created, &wanted, Precondition::None).await.unwrap().unwrap();
    assert_eq!((patched.status.as_ref().unwrap().expected_pods, patched.labels().len()), (Some(7), 0));
    assert_eq!(counter.writes(), 2);
}

#[tokio::test]
async fn a_patch_with_a_precondition_is_refused_when_the_object_has_changed() {
    let Some(world) = world("stale").await else { return };
    let running = informers(&world.client);
    let all = running.informers.namespaced::<ConfigMap>(&world.namespace);
    let read = world.create(json!({"name": "a"})).await;
    let labelled = |value: &str| {
        let mut wanted = read.clone();
        wanted.labels_mut().insert("by".to_owned(), value.to_owned());
        wanted
    };
    MANAGER.patch(&all, &read, &labelled("one"), Precondition::Unchanged).await.unwrap();
    let error = MANAGER.patch(&all, &read, &labelled("two"), Precondition::Unchanged).await.unwrap_err();
    assert!(error.is_conflict() && !error.is_ambiguous(), "{error}");
    assert!(error.to_string().starts_with(&format!("failed to patch ConfigMap {}/a: ", world.namespace)));
    let patched = MANAGER.patch(&all, &read, &labelled("three"), Precondition::None).await.unwrap();
    assert_eq!(patched.unwrap().labels()["by"], "three");
}

#[tokio::test]
async fn two_managers_keep_their_own_fields_of_one_object() {
    let Some(world) = world("managers").await else { return };
    let running = informers(&world.client);
    let all = running.informers.namespaced::<ConfigMap>(&world.namespace);
    let object = |data: serde_json::Value| -> ConfigMap {
        let object = json!({"metadata": {"name": "both", "namespace": world.namespace}, "data": data});
        serde_json::from_value(object).unwrap()
    };
    MANAGER.apply(&all, &object(json!({"one": "1", "two": "2"}))).await.unwrap();
    OTHER.apply(&all, &object(json!({"other": "x"}))).await.unwrap();
    let applied = MANAGER.apply(&all, &object(json!({"one": "1"}))).await.unwrap();
    let data: Vec<&str> = applied.data.as_ref().unwrap().keys().map(String::as_str).collect();
    assert_eq!(data, ["one", "other"]);
}

#[tokio::test]
async fn a_delete_hides_what_is_gone_and_shows_what_waits_for_its_finalizers() {
    let Some(world) = world("delete").await else { return };
    let running = informers(&world.client);
    let all = running.informers.namespaced::<ConfigMap>(&world.namespace);
    soon("the listing", all.synced()).await;
    let held = world.create(json!({"name": "held", "finalizers": ["example.com/held"]})).await;
    MANAGER.delete(&all, &held).await.unwrap();
    let cached = all.get(&ObjectKey::of(&held)).unwrap();
    assert!(cached.metadata.deletion_timestamp.is_some());
    let mut free = cached.as_ref().clone();
    free.metadata.finalizers = None;
    MANAGER.patch(&all, &cached, &free, Precondition::Unchanged).await.unwrap();
    MANAGER.delete(&all, &held).await.unwrap();
    assert!(all.get(&ObjectKey::of(&held)).is_none());

    // A later object of the same name is another one.
    let later = world.create(json!({"name": "held"})).await;
    MANAGER.delete(&all, &held).await.unwrap();
    assert!(world.config_maps().get_opt("held").await.unwrap().is_some());
    MANAGER.delete(&all, &later).await.unwrap();
    assert!(world.config_maps().get_opt("held").await.unwrap().is_none());
}

#[tokio::test]
async fn an_object_is_created_in_its_namespace_by_an_informer_of_all() {
    let Some(world) = world("everywhere").await else { return };
    let running = informers(&world.client);
    let pods = running.informers.all::<Pod>();
    let pod = json!({"metadata": {"generateName": "p-", "namespace": world.namespace},
        "spec": {"containers": [{"name": "c", "image": "example.invalid/c"}]}});
    let pod = MANAGER.create(&pods, &serde_json::from_value(pod).unwrap()).await.unwrap();
    let api: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    assert_eq!(api.get(&pod.name_any()).await.unwrap().uid(), pod.uid());
    let unnamed: Pod = serde_json::from_value(json!({"metadata": {"namespace": world.namespace}})).unwrap();
    let error = api.create(&PostParams::default(), &unnamed).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(_)), "{error}");
}

#[tokio::test]
async fn a_command_outside_a_cluster_says_what_it_needs() {
    let error = connect(None, None).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no service account of a pod was found; outside a cluster, give --kubeconfig FILE"
    );
    let error = connect(Some(std::path::Path::new("/does/not/exist")), None).await.unwrap_err();
    assert_eq!(error.to_string(), "the kubeconfig /does/not/exist cannot be used");
}

#[tokio::test]
async fn two_managers_keep_their_own_conditions_of_one_object() {
    let Some(world) = world("conditions").await else { return };
    let counter = CrashPoint::at(usize::MAX, Effect::NotSent);
    let running = informers(&counter.client(&world.client));
    let budgets = running.informers.namespaced::<PodDisruptionBudget>(&world.namespace);
    let budget =
        json!({"metadata": {"name": "web", "namespace": world.namespace}, "spec": {"maxUnavailable": 1}});
    let budget = MANAGER.create(&budgets, &serde_json::from_value(budget).unwrap()).await.unwrap();
    let condition = |name: &str, status: &str| -> Condition {
        serde_json::from_value(json!({"type": name, "status": status, "reason": "Test", "message": "",
            "lastTransitionTime": "2026-11-18T00:00:00Z"}))
        .unwrap()
    };
    MANAGER.apply_conditions(&budgets, &budget, &[condition("One", "True")]).await.unwrap();
    let both =
        OTHER.apply_conditions(&budgets, &budget, &[condition("Other", "False")]).await.unwrap().unwrap();
    let statuses = |budget: &PodDisruptionBudget| -> Vec<String> {
        let conditions = budget.status.as_ref().unwrap().conditions.as_deref().unwrap_or_default();
        let mine = conditions.iter().filter(|it| it.reason == "Test");
        mine.map(|it| format!("{}={}", it.type_, it.status)).collect()
    };
    assert_eq!(statuses(&both), ["One=True", "Other=False"]);
    let writes = counter.writes();
    assert!(MANAGER.apply_conditions(&budgets, &both, &[condition("One", "True")]).await.unwrap().is_none());
    assert_eq!(counter.writes(), writes);
    let changed =
        MANAGER.apply_conditions(&budgets, &both, &[condition("One", "False")]).await.unwrap().unwrap();
    assert_eq!(statuses(&changed), ["One=False", "Other=False"]);
}
