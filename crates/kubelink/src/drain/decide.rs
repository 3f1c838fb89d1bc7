//! ObjectSelection pods of a node a drain evicts, leaves, waits for or rejects, by kubectl's rules. Pure.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::drain::{DrainOptions, EmptyDirPolicy, UnmanagedPolicy};

/// Action for one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodAction {
    /// Evict it.
    Evict,
    /// It is being deleted; wait until it is gone.
    Await,
    /// A DaemonSet would recreate it at once, despite the cordon.
    LeaveToDaemonSet,
    /// The kubelet runs it from a file; the API server only mirrors it.
    LeaveMirror,
    /// It has data in an emptyDir, which would be lost, and that is not allowed.
    RefuseEmptyDir,
    /// It has no controller that would recreate it, and that is not allowed.
    RefuseUnmanaged,
}

pub(crate) fn pod_action(pod: &Pod, options: &DrainOptions) -> PodAction {
    let status = pod.status.as_ref();
    let finished = matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"));
    let controller = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
    let spec = pod.spec.as_ref();
    let volumes = spec.and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    if pod.annotations().contains_key("kubernetes.io/config.mirror") {
        PodAction::LeaveMirror
    } else if !finished && controller.is_some_and(|owner| owner.kind == "DaemonSet") {
        PodAction::LeaveToDaemonSet
    } else if pod.metadata.deletion_timestamp.is_some() {
        PodAction::Await
    } else if finished {
        PodAction::Evict
    } else if options.unmanaged == UnmanagedPolicy::Refuse && controller.is_none() {
        PodAction::RefuseUnmanaged
    } else if options.empty_dir == EmptyDirPolicy::Refuse
        && volumes.iter().any(|volume| volume.empty_dir.is_some())
    {
        PodAction::RefuseEmptyDir
    } else {
        PodAction::Evict
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::cordon::Holder;

    fn options(empty_dir: EmptyDirPolicy, unmanaged: UnmanagedPolicy) -> DrainOptions {
        DrainOptions {
            empty_dir,
            unmanaged,
            ..DrainOptions::new(Holder::new("h", "r"), Duration::from_secs(1))
        }
    }

    fn pod(owner: Option<&str>, empty_dir: bool, phase: &str, terminating: bool, mirror: bool) -> Pod {
        let owners = owner.map(
            |kind| json!([{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "controller": true}]),
        );
        let volumes = if empty_dir {
            json!([{"name": "v", "emptyDir": {}}])
        } else {
            json!([{"name": "v", "configMap": {}}])
        };
        let annotations = if mirror { json!({"kubernetes.io/config.mirror": "x"}) } else { json!({}) };
        let deleted = terminating.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({
            "metadata": {"name": "p", "ownerReferences": owners, "annotations": annotations, "deletionTimestamp": deleted},
            "spec": {"containers": [], "volumes": volumes},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn each_kind_of_pod_has_its_action() {
        let strict = options(EmptyDirPolicy::Refuse, UnmanagedPolicy::Refuse);
        let lax = options(EmptyDirPolicy::Delete, UnmanagedPolicy::Delete);
        let check = |given: &Pod, on_strict: PodAction, on_lax: PodAction| {
            assert_eq!(
                (pod_action(given, &strict), pod_action(given, &lax)),
                (on_strict, on_lax),
                "{given:?}"
            );
        };
        let replicated = Some("ReplicaSet");
        check(&pod(replicated, false, "Running", false, false), PodAction::Evict, PodAction::Evict);
        check(&pod(replicated, true, "Running", false, false), PodAction::RefuseEmptyDir, PodAction::Evict);
        check(&pod(None, false, "Running", false, false), PodAction::RefuseUnmanaged, PodAction::Evict);
        check(&pod(None, true, "Succeeded", false, false), PodAction::Evict, PodAction::Evict);
        check(&pod(None, true, "Failed", false, false), PodAction::Evict, PodAction::Evict);
        check(&pod(None, true, "Running", true, false), PodAction::Await, PodAction::Await);
        let daemon = Some("DaemonSet");
        check(
            &pod(daemon, true, "Running", false, false),
            PodAction::LeaveToDaemonSet,
            PodAction::LeaveToDaemonSet,
        );
        check(&pod(daemon, true, "Failed", false, false), PodAction::Evict, PodAction::Evict);
        check(&pod(None, true, "Running", false, true), PodAction::LeaveMirror, PodAction::LeaveMirror);
    }

    proptest! {
        #[test]
        fn a_pod_that_is_evicted_without_options_loses_no_data_and_comes_back(
            owner in proptest::option::of(prop_oneof![Just("ReplicaSet"), Just("DaemonSet"), Just("StatefulSet")]),
            empty_dir: bool, terminating: bool, mirror: bool,
            phase in prop_oneof![Just("Pending"), Just("Running"), Just("Succeeded"), Just("Failed"), Just("Unknown")],
        ) {
            let given = pod(owner, empty_dir, phase, terminating, mirror);
            let finished = phase == "Succeeded" || phase == "Failed";
            if pod_action(&given, &options(EmptyDirPolicy::Refuse, UnmanagedPolicy::Refuse)) == PodAction::Evict && !finished {
                prop_assert!(owner.is_some() && owner != Some("DaemonSet") && !empty_dir && !mirror && !terminating);
            }
        }
    }
}
