//! The roles and bindings that every cluster has from its start. The first cluster of a process creates them like any
//! other object; clusters after it get copies of those, which halves the time of their start.

use std::sync::OnceLock;

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::cluster_role;
use super::context::{ControllerContext, target};
use crate::kinds;
use crate::objects::{Change, TableName};
use crate::random;
use crate::rbac;
use crate::state::time;
use crate::status::ApiResult;
use crate::verbs::{self, WriteOptions};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The objects of the first new cluster, as they are stored.
static CREATED: OnceLock<Box<[(TableName, Bytes)]>> = OnceLock::new();

/// Creates the roles and bindings that are missing. Those that somebody changed stay as they are.
pub(super) fn ensure(context: &mut ControllerContext<'_>) -> ApiResult<()> {
    let is_new = tables().all(|table| context.state.objects.count(table) == 0);
    if is_new && let Some(created) = CREATED.get() {
        return copy(context, created);
    }
    create(context)?;
    cluster_role::reconcile(context)?;
    if is_new {
        let objects = &context.state.objects;
        let stored = tables().flat_map(|table| {
            objects.range(table, "", "").map(|(_, object)| (table.clone(), object.json().clone()))
        });
        // Another cluster may have been first meanwhile; its objects are the same.
        let _ = CREATED.set(stored.collect());
    }
    Ok(())
}

fn tables() -> impl Iterator<Item = &'static TableName> {
    kinds::built_in().iter().filter(|kind| kind.group() == GROUP).map(|kind| kind.table())
}

fn create(context: &mut ControllerContext<'_>) -> ApiResult<()> {
    let options = WriteOptions { manager: "kube-apiserver".to_owned(), ..WriteOptions::default() };
    let caller = context.caller();
    for mut object in rbac::bootstrap_objects() {
        let word = object["kind"].as_str().unwrap_or_default().to_owned();
        let kind = ControllerContext::built_in_kind(GROUP, &word)?;
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace").to_owned(), text("name").to_owned());
        if context.state.get(kind, &namespace, &name).is_some() {
            continue;
        }
        kind.set_type_meta(&mut object);
        let target = target(kind, &namespace, "", "");
        verbs::create(&mut context.state, &target, object, &options, &caller)?;
    }
    Ok(())
}

fn copy(context: &mut ControllerContext<'_>, created: &[(TableName, Bytes)]) -> ApiResult<()> {
    let now = json!(time(context.now));
    let changes = created.iter().map(|(table, text)| {
        let mut object: Value = serde_json::from_slice(text).unwrap_or_default();
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(random::uid());
        metadata["creationTimestamp"] = now.clone();
        for manager in metadata["managedFields"].as_array_mut().into_iter().flatten() {
            manager["time"] = now.clone();
        }
        Change::Put(table.clone(), object)
    });
    let changes = changes.collect();
    context.state.commit(changes).map(drop)
}
