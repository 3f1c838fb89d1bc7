//! Server-side apply.

use api::error::{Class, Classify};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, ResourceExt};
use kubelink::apply::{
    ApplyError, ApplyOptions, ApplyReport, ApplySetName, Documents, Effect, Force, PART_OF, apply, apply_one,
};
use kubelink::{Failure, ProgressSink};
use serde_json::{Value, json};

use crate::support::{World, world};

fn options(world: &World, set: Option<&str>) -> ApplyOptions {
    let set = set.map(|name| ApplySetName { namespace: world.namespace.clone(), name: name.to_owned() });
    ApplyOptions { namespace: world.namespace.clone(), set, ..ApplyOptions::default() }
}

async fn applied(world: &World, objects: &[Value], set: Option<&str>) -> Result<ApplyReport, ApplyError> {
    let documents = Documents::from_values(objects.to_vec()).unwrap();
    apply(&world.link, &documents, &options(world, set), &ProgressSink::disabled()).await
}

fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
}

fn report_lines(applied: &ApplyReport) -> Vec<String> {
    applied
        .objects
        .iter()
        .map(|(target, effect)| format!("{} {} {effect}", target.resource.kind, target.name))
        .collect()
}

async fn maps(world: &World) -> Vec<(String, String)> {
    let params = ListParams::default().labels(PART_OF);
    let found = world.api::<ConfigMap>().list(&params).await.unwrap();
    let value =
        |map: &ConfigMap| map.data.as_ref().and_then(|data| data.get("key").cloned()).unwrap_or_default();
    found.items.iter().map(|map| (map.name_any(), value(map))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_object_is_reported_as_created_configured_unchanged_or_pruned() {
    let Some(world) = world("apply") else { return };
    let first = applied(&world, &[map("a", "1"), map("b", "1"), map("c", "1")], Some("set")).await.unwrap();
    assert_eq!(report_lines(&first), ["ConfigMap a created", "ConfigMap b created", "ConfigMap c created"]);
    let second = applied(&world, &[map("a", "1"), map("b", "2")], Some("set")).await.unwrap();
    assert_eq!(
        report_lines(&second),
        ["ConfigMap a unchanged", "ConfigMap b configured", "ConfigMap c pruned"]
    );
    let third = applied(&world, &[map("a", "1"), map("b", "2")], Some("set")).await.unwrap();
    assert_eq!(report_lines(&third), ["ConfigMap a unchanged", "ConfigMap b unchanged"]);
    assert_eq!(maps(&world).await, [("a".into(), "1".into()), ("b".into(), "2".into())]);
    let none = applied(&world, &[], Some("set")).await.unwrap();
    assert_eq!(report_lines(&none), ["ConfigMap a pruned", "ConfigMap b pruned"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_objects_named_and_owned_by_the_set_are_pruned() {
    let Some(world) = world("apply-prune") else { return };
    applied(&world, &[map("a", "1"), map("taken", "1")], Some("set")).await.unwrap();
    let id = options(&world, Some("set")).set.unwrap().id();
    // A copy with the label that was not applied, and a member that someone removed from the set.
    let copy = json!({"metadata": {"name": "copy", "labels": {PART_OF: id}}});
    let _: ConfigMap = world.create(world.api(), copy).await;
    let taken = json!({"metadata": {"labels": {PART_OF: null}}});
    world.api::<ConfigMap>().patch("taken", &PatchParams::default(), &Patch::Merge(taken)).await.unwrap();
    let done = applied(&world, &[], Some("set")).await.unwrap();
    assert_eq!(report_lines(&done), ["ConfigMap a pruned"]);
    for name in ["copy", "taken"] {
        world.api::<ConfigMap>().get(name).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_are_applied_before_their_objects_whatever_the_order_of_the_documents() {
    let Some(world) = world("apply-crd") else { return };
    let plural = format!("things{}", world.namespace.rsplit('-').next().unwrap());
    let group = "apply.example.dev";
    let thing = json!({"apiVersion": format!("{group}/v1"), "kind": format!("T{plural}"), "metadata": {"name": "one"}, "spec": {"size": 1}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")}, "spec": {"group": group, "scope": "Namespaced",
        "names": {"kind": format!("T{plural}"), "plural": plural, "singular": plural.trim_end_matches('s')},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}}]}});
    let space = format!("{}-inner", world.namespace);
    let mut inside = map("inside", "1");
    inside["metadata"]["namespace"] = json!(space);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}});
    let all = [inside, thing, definition, namespace];
    let done = applied(&world, &all, Some("set")).await.unwrap();
    let kinds: Vec<_> = done.objects.iter().map(|(target, _)| target.resource.kind.clone()).collect();
    assert_eq!(
        kinds,
        ["Namespace".to_owned(), "CustomResourceDefinition".into(), "ConfigMap".into(), format!("T{plural}")]
    );
    assert!(done.objects.iter().all(|(_, effect)| *effect == Effect::Created), "{:?}", report_lines(&done));
    let again = applied(&world, &all, Some("set")).await.unwrap();
    assert!(
        again.objects.iter().all(|(_, effect)| *effect == Effect::Unchanged),
        "{:?}",
        report_lines(&again)
    );
    let gone = applied(&world, &[], Some("set")).await.unwrap();
    let kinds: Vec<_> = gone.objects.iter().map(|(target, _)| target.resource.kind.clone()).collect();
    assert_eq!(kinds.len(), 4);
    assert_eq!(kinds.last().map(String::as_str), Some("Namespace"), "{kinds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_when_any_document_would_be_rejected() {
    let Some(world) = world("apply-check") else { return };
    let count = async || world.api::<ConfigMap>().list(&ListParams::default()).await.unwrap().items.len();
    let before = count().await;

    let unknown = json!({"apiVersion": "none.example.dev/v1", "kind": "Thing", "metadata": {"name": "x"}});
    let error = applied(&world, &[map("a", "1"), unknown], Some("set")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "nothing was applied: the cluster does not serve Thing of none.example.dev/v1"
    );

    let mut typo = map("b", "1");
    typo["daata"] = json!({});
    let mut wrong = map("c", "1");
    wrong["data"]["key"] = json!([1]);
    let error = applied(&world, &[map("a", "1"), typo, wrong], Some("set")).await.unwrap_err();
    let ApplyError::Refused { failures } = &error else { panic!("{error}") };
    assert_eq!(failures.len(), 2, "{error}");
    assert!(error.to_string().contains("daata"), "{error}");
    assert_eq!(error.class(), Class::Terminal);

    let cluster_wide =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "namespace": "x"}});
    let error = applied(&world, &[cluster_wide], None).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "nothing was applied: v1 Namespace x/n names a namespace, but Namespace has none"
    );
    assert_eq!(count().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_another_manager_are_taken_over_only_by_force() {
    let Some(world) = world("apply-force") else { return };
    let theirs: ConfigMap = serde_json::from_value(map("a", "theirs")).unwrap();
    let maps: Api<ConfigMap> = world.api();
    maps.patch("a", &PatchParams::apply("someone"), &Patch::Apply(&theirs)).await.unwrap();
    let error = applied(&world, &[map("a", "ours")], None).await.unwrap_err();
    let ApplyError::Refused { failures } = &error else { panic!("{error}") };
    assert!(matches!(failures[0].failure, Failure::FieldConflict { .. }), "{error}");
    let forced = ApplyOptions { force: Force::Yes, ..options(&world, None) };
    let documents = Documents::from_values(vec![map("a", "ours")]).unwrap();
    let done = apply(&world.link, &documents, &forced, &ProgressSink::disabled()).await.unwrap();
    assert_eq!(report_lines(&done), ["ConfigMap a configured"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_of_another_set_is_not_taken_over() {
    let Some(world) = world("apply-theirs") else { return };
    applied(&world, &[map("a", "1")], Some("first")).await.unwrap();
    let error = applied(&world, &[map("a", "2")], Some("second")).await.unwrap_err();
    assert!(error.to_string().contains("it belongs to another apply-set"), "{error}");
    assert_eq!(maps(&world).await, [("a".into(), "1".into())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_value_of_a_secret_shows_in_an_error() {
    let Some(world) = world("apply-secret") else { return };
    let secret =
        |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": data});
    for data in [
        json!({"key": ["hunter2"]}),
        json!({"key": "hunter2!"}),
        json!("hunter2"),
        json!({"key": {"hunter2": 1}}),
    ] {
        let error = applied(&world, &[secret(data)], None).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        assert_eq!(error.class(), Class::Terminal, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_that_is_not_a_set_is_rejected() {
    let Some(world) = world("apply-set") else { return };
    let _: ConfigMap =
        world.create(world.api(), json!({"metadata": {"name": "set"}, "data": {"precious": "1"}})).await;
    let error = applied(&world, &[map("a", "1")], Some("set")).await.unwrap_err();
    assert!(error.to_string().contains("is not an apply-set"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_interrupted_at_any_request_fails_and_a_repeat_finishes_it() {
    let Some(world) = world("apply-cut") else { return };
    let old = [map("a", "1"), map("gone-1", "1"), map("gone-2", "1")];
    let new = [map("a", "2"), map("b", "2")];
    let expect = vec![("a".to_owned(), "2".to_owned()), ("b".to_owned(), "2".to_owned())];
    // The number of requests of an apply without faults.
    applied(&world, &old, Some("set")).await.unwrap();
    world.tap.clear();
    applied(&world, &new, Some("set")).await.unwrap();
    let whole = world.tap.requests().len();
    assert!(whole > 8, "{:?}", world.tap.requests());
    for n in 1..=whole {
        for lose_only_the_answer in [false, true] {
            world.tap.mend();
            applied(&world, &old, Some("set")).await.unwrap();
            if lose_only_the_answer {
                world.tap.cut_after(n);
            } else {
                world.tap.cut_before(n);
            }
            let cut = applied(&world, &new, Some("set")).await;
            let requests = world.tap.requests();
            let error =
                cut.expect_err(&format!("cut at request {n} of {whole} was a success: {requests:#?}"));
            assert_eq!(error.class(), Class::Transient, "{error}");
            world.tap.mend();
            applied(&world, &new, Some("set")).await.unwrap();
            assert_eq!(
                maps(&world).await,
                expect,
                "after a cut at request {n}, {lose_only_the_answer}: {requests:#?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_concurrent_applies_of_one_set_keep_each_others_members() {
    let Some(world) = world("apply-two") else { return };
    let (left, right) = ([map("a", "1")], [map("b", "1")]);
    let (one, two) = tokio::join!(applied(&world, &left, Some("set")), applied(&world, &right, Some("set")));
    for end in [&one, &two] {
        if let Err(error) = end {
            assert!(error.to_string().contains("409"), "{error}");
        }
    }
    applied(&world, &[], Some("set")).await.unwrap();
    assert_eq!(maps(&world).await, [], "something was left that no set names");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_typed_object_is_applied() {
    let Some(world) = world("apply-typed") else { return };
    let api: Api<ConfigMap> = world.api();
    let link_api: Api<ConfigMap> = Api::namespaced(world.link.client(), &world.namespace);
    let object = |value: &str| -> ConfigMap { serde_json::from_value(map("a", value)).unwrap() };
    for (value, expect) in [("1", Effect::Created), ("1", Effect::Unchanged), ("2", Effect::Configured)] {
        let (_, effect) = apply_one(&world.link, &link_api, &object(value), Force::No).await.unwrap();
        assert_eq!(effect, expect);
    }
    let managers = api.get("a").await.unwrap().metadata.managed_fields.unwrap();
    assert_eq!(managers[0].manager.as_deref(), Some("shipshape"));
}
