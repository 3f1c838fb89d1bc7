//! Termination of a namespace: its contents are deleted first, then the namespace.

use serde_json::{Value, json};

use super::context::ControllerContext;
use crate::objects::{Change, object_key};
use crate::state::time;
use crate::status::ApiResult;
use crate::verbs::Propagation;

pub(super) fn reconcile(context: &mut ControllerContext<'_>, name: &str) -> ApiResult<()> {
    let kind = ControllerContext::built_in_kind("", "Namespace")?;
    let Some(mut namespace) = context.read(kind, name) else { return Ok(()) };
    if namespace["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let prefix = format!("{name}/");
    let contents: Vec<_> = context
        .state
        .kinds
        .all()
        .filter(|kind| kind.is_namespaced() && kind.verbs().contains(&"list"))
        .flat_map(|kind| {
            let keys = context.state.objects.range(kind.table(), &prefix, "");
            keys.map(|(key, _)| (kind.clone(), key.clone())).collect::<Vec<_>>()
        })
        .collect();
    for (kind, key) in &contents {
        let is_terminating =
            context.read(kind, key).is_none_or(|object| !object["metadata"]["deletionTimestamp"].is_null());
        if !is_terminating {
            context.delete(kind, key, Propagation::Background)?;
        }
    }
    let remaining: Vec<_> = contents
        .iter()
        .filter(|(kind, key)| context.state.objects.get(kind.table(), key).is_some())
        .collect();
    if remaining.is_empty() {
        return finish(context, namespace);
    }
    set_remaining_conditions(&mut namespace, remaining.len(), &time(context.now));
    context.update_status(kind, namespace)
}

/// Removes the `kubernetes` finalizer from the spec; other finalizers may still keep the namespace.
fn finish(context: &mut ControllerContext<'_>, mut namespace: Value) -> ApiResult<()> {
    let kind = ControllerContext::built_in_kind("", "Namespace")?;
    let finalizers = namespace["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    let others: Vec<Value> = finalizers.into_iter().filter(|finalizer| finalizer != "kubernetes").collect();
    let has_finalizers = !others.is_empty()
        || namespace["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    let name = namespace["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if !has_finalizers {
        return context
            .state
            .commit(vec![Change::Remove(kind.table().clone(), object_key("", &name).into())])
            .map(drop);
    }
    let spec = if others.is_empty() { json!({}) } else { json!({"finalizers": others}) };
    if namespace["spec"] == spec {
        return Ok(());
    }
    namespace["spec"] = spec;
    context.state.put(kind, namespace).map(drop)
}

fn set_remaining_conditions(namespace: &mut Value, count: usize, now: &str) {
    let mut put_condition = |kind: &str, status: &str, reason: &str, message: &str| {
        let condition = json!({
            "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
        });
        crate::verbs::set_condition(namespace, condition);
    };
    put_condition(
        "NamespaceDeletionDiscoveryFailure",
        "False",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    );
    put_condition(
        "NamespaceDeletionGroupVersionParsingFailure",
        "False",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    );
    put_condition(
        "NamespaceDeletionContentFailure",
        "False",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    );
    let remaining = format!("Some resources are remaining: {count} resource instances");
    put_condition("NamespaceContentRemaining", "True", "SomeResourcesRemain", &remaining);
}
