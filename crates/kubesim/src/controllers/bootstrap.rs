//! Objects that every cluster and every namespace has.

use std::sync::Arc;

use serde_json::{Value, json};

use super::context::ControllerContext;
use super::default_roles;
use crate::cluster::ClusterInner;
use crate::fields;
use crate::status::ApiResult;

/// The namespaces of a new cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// Description of the CA bundle in each namespace; the text of the real server.
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// Creates the objects that every cluster has.
pub(crate) fn bootstrap(cluster: &Arc<ClusterInner>) -> ApiResult<()> {
    let mut context = ControllerContext::new(cluster);
    for name in NAMESPACES {
        ensure(&mut context, "Namespace", "", name, json!({}))?;
        namespace(&mut context, name)?;
    }
    let service = json!({
        "metadata": {"labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.0.0.1",
            "ports": [{"name": "https", "port": 443, "targetPort": 6443, "protocol": "TCP"}],
        },
    });
    ensure(&mut context, "Service", "default", "kubernetes", service)?;
    default_roles::ensure(&mut context)
}

/// Creates the default service account and the CA bundle of a namespace.
pub(super) fn namespace(context: &mut ControllerContext<'_>, name: &str) -> ApiResult<()> {
    let Some(namespace) = context.read(ControllerContext::built_in_kind("", "Namespace")?, name) else {
        return Ok(());
    };
    if !namespace["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    ensure(context, "ServiceAccount", name, "default", json!({}))?;
    let authority = context.cluster.access.authority().to_owned();
    let map = json!({
        "metadata": {"annotations": {"kubernetes.io/description": DESCRIPTION}},
        "data": {"ca.crt": authority},
    });
    ensure(context, "ConfigMap", name, "kube-root-ca.crt", map)
}

/// Creates an object of the core group unless it exists.
fn ensure(
    context: &mut ControllerContext<'_>,
    kind: &str,
    namespace: &str,
    name: &str,
    mut object: Value,
) -> ApiResult<()> {
    let kind = ControllerContext::built_in_kind("", kind)?;
    if context.state.get(kind, namespace, name).is_some() {
        return Ok(());
    }
    fields::set(&mut object, &["metadata", "name"], json!(name));
    context.create(kind, namespace, object).map(drop)
}
