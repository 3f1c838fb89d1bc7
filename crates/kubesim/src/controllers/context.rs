//! What a controller works with: the locked state, and the verbs that requests use too.

use std::sync::{Arc, RwLockWriteGuard};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::work_items::WorkItem;
use crate::access::{AUTHENTICATED, MASTERS, User};
use crate::cluster::ClusterInner;
use crate::events::{self, EventReport, EventSource, Severity};
use crate::kinds::{self, Kind};
use crate::objects::{Object, object_key};
use crate::state::State;
use crate::status::{ApiResult, StatusError};
use crate::verbs::{self, Caller, DeleteOptions, Propagation, Target, WriteOptions};

/// The field manager of controllers.
const MANAGER: &str = "kube-controller-manager";

/// The state of a cluster, locked for one controller.
pub(super) struct ControllerContext<'a> {
    pub(super) cluster: &'a Arc<ClusterInner>,
    pub(super) state: RwLockWriteGuard<'a, State>,
    pub(super) now: Timestamp,
    /// Items to process again at a time, even if nothing changes until then.
    pub(super) later: Vec<(Timestamp, WorkItem)>,
}

impl<'a> ControllerContext<'a> {
    pub(super) fn new(cluster: &'a Arc<ClusterInner>) -> ControllerContext<'a> {
        ControllerContext { state: cluster.write(), now: cluster.clock.now(), cluster, later: Vec::new() }
    }

    /// Whether `span` seconds have passed since `start`. If not, the item is processed again when they have.
    pub(super) fn has_elapsed(&mut self, start: &Value, span: i64, then: WorkItem) -> bool {
        let start = start.as_str().and_then(|text| text.parse::<Timestamp>().ok());
        let Some(end) = start.and_then(|start| start.checked_add(SignedDuration::from_secs(span)).ok())
        else {
            return false;
        };
        if self.now >= end {
            return true;
        }
        self.later.push((end, then));
        false
    }

    pub(super) fn caller(&self) -> Caller {
        // Controllers are part of the cluster: nothing is forbidden to them.
        Caller::internal(User::new("system:kube-controller-manager", [MASTERS, AUTHENTICATED]), self.now)
    }

    /// Finds a built-in kind.
    pub(super) fn built_in_kind(group: &str, kind: &str) -> ApiResult<&'static Arc<Kind>> {
        kinds::find(group, kind).ok_or_else(StatusError::no_such_resource)
    }

    /// The object at a key, with `kind` and `apiVersion`.
    pub(super) fn read(&self, kind: &Kind, key: &str) -> Option<Value> {
        let mut value = kind.served(self.state.objects.get(kind.table(), key)?.value());
        kind.set_type_meta(&mut value);
        Some(value)
    }

    /// The objects of a kind that `uid` controls.
    pub(super) fn controlled_objects(&self, kind: &Kind, uid: &str) -> Vec<Arc<Object>> {
        let places =
            self.state.objects.dependents(uid).into_iter().filter(|(table, _)| table == kind.table());
        places
            .filter_map(|(table, key)| self.state.objects.get(&table, &key).cloned())
            .filter(|object| object.summary().controller_uid.as_deref() == Some(uid))
            .collect()
    }

    /// The objects of a kind that `uid` controls, parsed.
    pub(super) fn controlled(&self, kind: &Kind, uid: &str) -> Vec<Value> {
        let objects = self.controlled_objects(kind, uid);
        objects
            .iter()
            .map(|object| {
                let mut value = object.value();
                kind.set_type_meta(&mut value);
                value
            })
            .collect()
    }

    /// Creates an object.
    pub(super) fn create(
        &mut self,
        kind: &Arc<Kind>,
        namespace: &str,
        value: Value,
    ) -> ApiResult<Arc<Object>> {
        let target = target(kind, namespace, "", "");
        let caller = self.caller();
        verbs::create(&mut self.state, &target, value, &options(), &caller).map(|written| written.object)
    }

    /// Replaces an object.
    pub(super) fn update(&mut self, kind: &Arc<Kind>, value: Value) -> ApiResult<()> {
        self.replace(kind, value, "")
    }

    /// Replaces the status of an object. An unchanged status is not written.
    pub(super) fn update_status(&mut self, kind: &Arc<Kind>, value: Value) -> ApiResult<()> {
        self.replace(kind, value, "status")
    }

    fn replace(&mut self, kind: &Arc<Kind>, value: Value, subresource: &str) -> ApiResult<()> {
        let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default().to_owned();
        let target = target(kind, &text("namespace"), &text("name"), subresource);
        let caller = self.caller();
        verbs::update(&mut self.state, &target, value, &options(), &caller).map(drop)
    }

    /// Deletes an object; it is no error if the object is gone already.
    pub(super) fn delete(&mut self, kind: &Arc<Kind>, key: &str, propagation: Propagation) -> ApiResult<()> {
        self.delete_with(
            kind,
            key,
            DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() },
        )
    }

    pub(super) fn delete_with(
        &mut self,
        kind: &Arc<Kind>,
        key: &str,
        options: DeleteOptions,
    ) -> ApiResult<()> {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let target = target(kind, namespace, name, "");
        let caller = self.caller();
        match verbs::delete(&mut self.state, &target, &options, &caller) {
            Err(failure) if failure.code != 404 => Err(failure),
            _ => Ok(()),
        }
    }

    /// Records an event about an object, which has `kind` and `apiVersion`.
    pub(super) fn record(
        &mut self,
        source: EventSource<'_>,
        object: &Value,
        severity: Severity,
        reason: &str,
        message: &str,
    ) {
        let report = EventReport { source, object, field_path: "", severity, reason, message };
        events::record(&mut self.state, &mut self.cluster.events(), &report, self.now);
    }

    /// Creates a pod and records that its owner did.
    pub(super) fn create_pod(
        &mut self,
        source: &'static str,
        owner: &Value,
        pod: Value,
    ) -> ApiResult<Arc<Object>> {
        let kind = ControllerContext::built_in_kind("", "Pod")?;
        let namespace = owner["metadata"]["namespace"].as_str().unwrap_or_default();
        let source = EventSource::Controller(source);
        match self.create(kind, namespace, pod) {
            Ok(pod) => {
                let message = format!("Created pod: {}", pod.name());
                self.record(source, owner, Severity::Normal, "SuccessfulCreate", &message);
                Ok(pod)
            }
            Err(failure) => {
                let message = format!("Error creating: {}", failure.message);
                self.record(source, owner, Severity::Warning, "FailedCreate", &message);
                Err(failure)
            }
        }
    }

    /// Deletes a pod and records that its owner did.
    pub(super) fn delete_pod(&mut self, source: &'static str, owner: &Value, key: &str) -> ApiResult<()> {
        let kind = ControllerContext::built_in_kind("", "Pod")?;
        self.delete(kind, key, Propagation::Background)?;
        let message = format!("Deleted pod: {}", key.split_once('/').map_or(key, |(_, name)| name));
        self.record(EventSource::Controller(source), owner, Severity::Normal, "SuccessfulDelete", &message);
        Ok(())
    }

    /// Binds a pod to a node.
    pub(super) fn bind(&mut self, pod: &Value, node: &str) -> ApiResult<()> {
        let kind = ControllerContext::built_in_kind("", "Pod")?;
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        let target = target(kind, text("namespace"), text("name"), "binding");
        let binding = serde_json::json!({"target": {"kind": "Node", "name": node}});
        let caller = self.caller();
        verbs::bind(&mut self.state, &target, &binding, &options(), &caller)?;
        let mut object = pod.clone();
        kind.set_type_meta(&mut object);
        let message = format!("Successfully assigned {} to {node}", key(pod));
        let source = EventSource::Scheduler { action: "Binding" };
        self.record(source, &object, Severity::Normal, "Scheduled", &message);
        Ok(())
    }
}

fn options() -> WriteOptions {
    WriteOptions { manager: MANAGER.to_owned(), ..WriteOptions::default() }
}

pub(super) fn target(kind: &Arc<Kind>, namespace: &str, name: &str, subresource: &str) -> Target {
    Target {
        kind: kind.clone(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: subresource.to_owned(),
    }
}

/// The key of an object.
pub(super) fn key(value: &Value) -> String {
    let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default();
    object_key(text("namespace"), text("name"))
}
