//! The end of a namespace: its contents go first, then itself.

use serde_json::{Value, json};

use super::desk::Desk;
use crate::objects::{Change, key_of};
use crate::state::time;
use crate::status::Outcome;
use crate::verbs::Propagation;

pub(super) fn reconcile(desk: &mut Desk<'_>, name: &str) -> Outcome<()> {
    let kind = Desk::kind("", "Namespace")?;
    let Some(mut namespace) = desk.read(kind, name) else { return Ok(()) };
    if namespace["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let prefix = format!("{name}/");
    let contents: Vec<_> = desk
        .state
        .kinds
        .all()
        .filter(|kind| kind.is_namespaced() && kind.verbs().contains(&"list"))
        .flat_map(|kind| {
            let keys = desk.state.objects.range(kind.table(), &prefix, "");
            keys.map(|(key, _)| (kind.clone(), key.clone())).collect::<Vec<_>>()
        })
        .collect();
    for (kind, key) in &contents {
        let ending =
            desk.read(kind, key).is_none_or(|object| !object["metadata"]["deletionTimestamp"].is_null());
        if !ending {
            desk.delete(kind, key, Propagation::Background)?;
        }
    }
    let left: Vec<_> =
        contents.iter().filter(|(kind, key)| desk.state.objects.get(kind.table(), key).is_some()).collect();
    if left.is_empty() {
        return finish(desk, namespace);
    }
    say_what_remains(&mut namespace, left.len(), &time(desk.now));
    desk.update_status(kind, namespace)
}

/// Takes the namespace's own finalizer away; others may still keep it.
fn finish(desk: &mut Desk<'_>, mut namespace: Value) -> Outcome<()> {
    let kind = Desk::kind("", "Namespace")?;
    let finalizers = namespace["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    let others: Vec<Value> = finalizers.into_iter().filter(|finalizer| finalizer != "kubernetes").collect();
    let kept = !others.is_empty()
        || namespace["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    let name = namespace["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if !kept {
        return desk
            .state
            .commit(vec![Change::Remove(kind.table().clone(), key_of("", &name).into())])
            .map(drop);
    }
    let spec = if others.is_empty() { json!({}) } else { json!({"finalizers": others}) };
    if namespace["spec"] == spec {
        return Ok(());
    }
    namespace["spec"] = spec;
    desk.state.put(kind, namespace).map(drop)
}

fn say_what_remains(namespace: &mut Value, count: usize, now: &str) {
    let mut say = |kind: &str, status: &str, reason: &str, message: &str| {
        let condition = json!({
            "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
        });
        crate::verbs::set_condition(namespace, condition);
    };
    say(
        "NamespaceDeletionDiscoveryFailure",
        "False",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    );
    say(
        "NamespaceDeletionGroupVersionParsingFailure",
        "False",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    );
    say(
        "NamespaceDeletionContentFailure",
        "False",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    );
    let remaining = format!("Some resources are remaining: {count} resource instances");
    say("NamespaceContentRemaining", "True", "SomeResourcesRemain", &remaining);
}
