//! What every cluster and every namespace has.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::cluster::Shared;
use crate::kinds;
use crate::state::State;
use crate::status::{Failure, Outcome};
use crate::verbs::{self, Caller, Target, WriteOptions};

/// The namespaces of a new cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Writes what every cluster has.
pub(crate) fn furnish(cluster: &Arc<Shared>) -> Outcome<()> {
    let mut state = cluster.write();
    for name in NAMESPACES {
        ensure(cluster, &mut state, "Namespace", "", name, json!({}), "kube-apiserver")?;
    }
    let service = json!({
        "metadata": {"labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.0.0.1",
            "ports": [{"name": "https", "port": 443, "targetPort": 6443, "protocol": "TCP"}],
        },
    });
    ensure(cluster, &mut state, "Service", "default", "kubernetes", service, "kube-apiserver")?;
    drop(state);
    round(cluster);
    Ok(())
}

/// Gives every namespace its service account and the certificate of the authority.
pub(super) fn round(cluster: &Arc<Shared>) {
    let (Some(namespaces), Some(accounts), Some(maps)) =
        (kinds::of("", "Namespace"), kinds::of("", "ServiceAccount"), kinds::of("", "ConfigMap"))
    else {
        return;
    };
    let missing: Vec<String> = {
        let state = cluster.read();
        state
            .objects
            .range(namespaces.table(), "", "")
            .filter(|(name, _)| {
                state.get(accounts, name, "default").is_none()
                    || state.get(maps, name, "kube-root-ca.crt").is_none()
            })
            .filter(|(_, namespace)| namespace.value()["metadata"]["deletionTimestamp"].is_null())
            .map(|(name, _)| name.to_string())
            .collect()
    };
    for namespace in missing {
        let mut state = cluster.write();
        let map = json!({
            "metadata": {"annotations": {"kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."}},
            "data": {"ca.crt": cluster.access.authority()},
        });
        let written = ensure(
            cluster,
            &mut state,
            "ServiceAccount",
            &namespace,
            "default",
            json!({}),
            "kube-controller-manager",
        )
        .and_then(|()| {
            ensure(
                cluster,
                &mut state,
                "ConfigMap",
                &namespace,
                "kube-root-ca.crt",
                map,
                "kube-controller-manager",
            )
        });
        if let Err(failure) = written {
            tracing::warn!(
                cluster.id = cluster.name,
                "Namespace {namespace} could not be furnished: {}",
                failure.message
            );
        }
    }
}

/// Creates an object of the core group unless it is there.
fn ensure(
    cluster: &Shared,
    state: &mut State,
    kind: &str,
    namespace: &str,
    name: &str,
    mut object: Value,
    manager: &str,
) -> Outcome<()> {
    let kind = kinds::of("", kind).ok_or_else(Failure::no_such_resource)?;
    if state.get(kind, namespace, name).is_some() {
        return Ok(());
    }
    object["metadata"]["name"] = json!(name);
    let target = Target {
        kind: kind.clone(),
        namespace: namespace.to_owned(),
        name: String::new(),
        subresource: String::new(),
    };
    let options = WriteOptions { manager: manager.to_owned(), ..WriteOptions::default() };
    verbs::create(state, &target, object, &options, &caller(cluster)).map(drop)
}

/// The controllers, as callers.
pub(super) fn caller(cluster: &Shared) -> Caller {
    Caller {
        user: "system:kube-controller-manager".into(),
        groups: vec!["system:authenticated".to_owned()].into(),
        now: cluster.clock.now(),
    }
}
