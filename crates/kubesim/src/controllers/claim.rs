//! Persistent volume claims: a deleted claim is released when no pod that is bound to a node uses it.

use serde_json::Value;

use super::context::ControllerContext;
use crate::status::ApiResult;

/// The finalizer that the server adds to every claim.
const PROTECTION: &str = "kubernetes.io/pvc-protection";

pub(super) fn reconcile(context: &mut ControllerContext<'_>, at: &str) -> ApiResult<()> {
    let kind = ControllerContext::built_in_kind("", "PersistentVolumeClaim")?;
    let Some(mut claim) = context.read(kind, at) else { return Ok(()) };
    if claim["metadata"]["deletionTimestamp"].is_null() || is_used(context, at)? {
        return Ok(());
    }
    let Some(finalizers) = claim["metadata"]["finalizers"].as_array_mut() else { return Ok(()) };
    let count = finalizers.len();
    finalizers.retain(|finalizer| finalizer != PROTECTION);
    if finalizers.len() == count {
        return Ok(());
    }
    context.update(kind, claim)
}

/// Whether a pod uses the claim. A pod without a node does not: no kubelet starts a pod with a claim that is being
/// deleted.
fn is_used(context: &ControllerContext<'_>, at: &str) -> ApiResult<bool> {
    let kind = ControllerContext::built_in_kind("", "Pod")?;
    let (namespace, claim) = at.split_once('/').unwrap_or(("", at));
    let prefix = format!("{namespace}/");
    let mut bound = context
        .state
        .objects
        .range(kind.table(), &prefix, "")
        .filter(|(_, pod)| pod.summary().node_name.is_some());
    Ok(bound.any(|(_, pod)| names_claim(&pod.value(), claim)))
}

fn names_claim(pod: &Value, claim: &str) -> bool {
    let volumes = pod["spec"]["volumes"].as_array();
    volumes.into_iter().flatten().any(|volume| volume["persistentVolumeClaim"]["claimName"] == claim)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_is_used_by_the_pods_that_name_it() {
        let pod =
            json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}});
        assert!(names_claim(&pod, "data"));
        assert!(!names_claim(&pod, "other"));
        assert!(!names_claim(&json!({"spec": {}}), "data"));
    }
}
