//! Policies that deny types of resources at a scope. They are settings of the simulator.

use cloud::ResourceId;
use http::StatusCode;
use serde_json::json;

use super::assignments::contains;
use super::error::ArmError;
use crate::call_context::CallContext;
use crate::database;
use crate::failure::Failure;
use crate::settings::Policy;

const POLICY: &str = "policy";

/// Sets a policy, or removes the one of this name.
pub(crate) fn set(cx: &CallContext<'_>, policy: &Policy) -> Result<(), Failure> {
    let key = format!("{} {}", policy.scope.to_lowercase(), policy.name.to_lowercase());
    match &policy.deny {
        Some(_) => database::write(cx.db, POLICY, &key, policy),
        None => database::delete(cx.db, POLICY, &key).map(drop),
    }
}

/// Rejects a write that a policy or a fault denies.
pub(crate) fn check(cx: &CallContext<'_>, id: &ResourceId, type_name: &str) -> Result<(), Failure> {
    if let Some(name) = &cx.effects.denying_policy {
        return Err(denied(id, name, id.as_str()).into());
    }
    let policies: Vec<Policy> = database::records(cx.db, POLICY)?;
    let denies = |it: &&Policy| {
        let is_denied =
            it.deny.as_deref().is_some_and(|denied| denied == "*" || denied.eq_ignore_ascii_case(type_name));
        is_denied && contains(&it.scope, id.as_str())
    };
    match policies.iter().find(denies) {
        Some(policy) => Err(denied(id, &policy.name, &policy.scope).into()),
        None => Ok(()),
    }
}

fn denied(id: &ResourceId, name: &str, scope: &str) -> ArmError {
    let message = format!(
        "Resource '{}' was disallowed by policy. Policy identifiers: '[{{\"policyAssignment\":{{\"name\":\"{name}\"}}}}]'.",
        id.name()
    );
    let mut error =
        ArmError::new(StatusCode::FORBIDDEN, "RequestDisallowedByPolicy", message).with_target(id.name());
    let assignment = format!("{scope}/providers/Microsoft.Authorization/policyAssignments/{name}");
    error.additional = Some(Box::new(json!({
        "type": "PolicyViolation",
        "info": {
            "policyDefinitionDisplayName": name,
            "policyDefinitionName": name,
            "policyDefinitionEffect": "deny",
            "policyAssignmentName": name,
            "policyAssignmentDisplayName": name,
            "policyAssignmentScope": scope,
            "policyAssignmentId": assignment,
        },
    })));
    error
}
