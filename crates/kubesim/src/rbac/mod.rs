//! Authorization by roles: who may do what, and who may grant it.

mod bootstrap;
mod escalation;
mod policy;
mod rule;

use crate::access::User;
use crate::state::State;
use crate::status::{ApiResult, StatusError};

pub(crate) use bootstrap::bootstrap_objects;
pub(crate) use escalation::{confirm_grant, confirm_signer};
pub(crate) use policy::{Policy, TABLES};
pub(crate) use rule::quoted_list;
pub use rule::{AccessTarget, Attributes, ResourceAttributes, Rule};

/// The answer to the question whether a user may do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is permitted.
    pub allowed: bool,
    /// Why, as the real server words it; empty if there is nothing to add.
    pub reason: String,
}

/// Whether a user may do something.
pub fn authorize(state: &State, user: &User, attributes: &Attributes<'_>) -> Decision {
    if user.is_master() {
        return Decision { allowed: true, reason: String::new() };
    }
    let mut reason = String::new();
    let (allowed, errors) =
        state.policy().visit(&state.objects, user, attributes.namespace(), |source, rule| {
            let permits = rule.permits(attributes);
            if permits {
                reason = format!("RBAC: allowed by {source}");
            }
            permits
        });
    if !allowed && !errors.is_empty() {
        reason = format!("rbac: RBAC: {}", aggregate(&errors));
    }
    Decision { allowed, reason }
}

/// Fails unless a user may do something.
pub fn expect(state: &State, user: &User, attributes: &Attributes<'_>) -> ApiResult<()> {
    let decision = authorize(state, user, attributes);
    if decision.allowed { Ok(()) } else { Err(forbidden(user, attributes, &decision.reason)) }
}

/// All rules that apply to a user in a namespace, and what could not be resolved.
pub(crate) fn rules_of(state: &State, user: &User, namespace: &str) -> (Vec<Rule>, Vec<String>) {
    let mut rules = Vec::new();
    let (_, errors) = state.policy().visit(&state.objects, user, namespace, |_, rule| {
        rules.push(rule.clone());
        false
    });
    (rules, errors)
}

/// 403, worded as the real server does.
pub(crate) fn forbidden(user: &User, attributes: &Attributes<'_>, reason: &str) -> StatusError {
    let Attributes { verb, target } = attributes;
    let (group, resource, name, what) = match target {
        AccessTarget::Path(path) => ("", "", "", format!("cannot {verb} path {path:?}")),
        AccessTarget::Resource(target) => {
            let resource = match target.subresource {
                "" => target.resource.to_owned(),
                subresource => format!("{}/{subresource}", target.resource),
            };
            let place = match target.namespace {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            let what = format!("cannot {verb} resource {resource:?} in API group {:?} {place}", target.group);
            (target.group, target.resource, target.name, what)
        }
    };
    let message = format!("User {:?} {what}", user.name);
    // The real server does the same, so that no browser takes the text for HTML.
    let mut message = message.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if !reason.is_empty() {
        message = format!("{message}: {reason}");
    }
    refusal(group, resource, name, &message)
}

/// 403 about an object, a resource or nothing in particular.
pub(crate) fn refusal(group: &str, resource: &str, name: &str, why: &str) -> StatusError {
    let qualified = match (group, resource) {
        ("", resource) => resource.to_owned(),
        (group, resource) => format!("{resource}.{group}"),
    };
    let message = match (qualified.as_str(), name) {
        ("", _) => format!("forbidden: {why}"),
        (qualified, "") => format!("{qualified} is forbidden: {why}"),
        (qualified, name) => format!("{qualified} {name:?} is forbidden: {why}"),
    };
    StatusError::new(403, "Forbidden", message).about(group, resource, name)
}

/// Several errors as one text.
fn aggregate(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}
