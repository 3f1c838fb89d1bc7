//! Nobody grants what he does not hold: the checks of roles and bindings before they are written, and of decisions
//! about certificate signing requests.

use serde_json::Value;

use super::policy::RoleRef;
use super::{Attributes, ResourceAttributes, Rule, authorize, quoted_list, refusal, rules_of};
use crate::access::User;
use crate::kinds::Kind;
use crate::state::State;
use crate::status::{ApiResult, StatusError};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Fails if writing `new` would grant permissions that the user does not hold; other kinds pass. `name` is that of
/// the request's path, which a create does not have.
pub(crate) fn confirm_grant(
    state: &State,
    user: &User,
    kind: &Kind,
    name: &str,
    old: Option<&Value>,
    new: &Value,
) -> ApiResult<()> {
    if kind.group() != GROUP || user.is_master() || old.is_some_and(|old| changes_owners_only(old, new)) {
        return Ok(());
    }
    let namespace = new["metadata"]["namespace"].as_str().unwrap_or_default();
    let confirm = |rules: &[Rule]| confirm_rules(state, user, kind, namespace, new, rules);
    match kind.kind() {
        "Role" | "ClusterRole" => {
            let escalate = ResourceAttributes {
                namespace,
                group: GROUP,
                resource: kind.plural(),
                subresource: "",
                name,
            };
            if authorize(state, user, &Attributes::on("escalate", escalate)).allowed {
                return Ok(());
            }
            confirm(&Rule::all_of(new))?;
            if has_aggregation(new) || old.is_some_and(has_aggregation) {
                let (owned, _) = rules_of(state, user, namespace);
                if !Rule::uncovered(&owned, &full_authority()).is_empty() {
                    let why = "must have cluster-admin privileges to use the aggregationRule";
                    return Err(refused(kind, new, why));
                }
            }
            Ok(())
        }
        _ => {
            let role = RoleRef::of(new);
            let bind = ResourceAttributes {
                namespace,
                group: GROUP,
                resource: if &*role.kind == "Role" { "roles" } else { "clusterroles" },
                subresource: "",
                name: &role.name,
            };
            if authorize(state, user, &Attributes::on("bind", bind)).allowed {
                return Ok(());
            }
            match state.policy().rules(&state.objects, namespace, &role) {
                Ok(rules) => confirm(&rules),
                // The real server names the kind of the binding here.
                Err(_) => Err(StatusError::not_found(kind, &role.name)),
            }
        }
    }
}

fn confirm_rules(
    state: &State,
    user: &User,
    kind: &Kind,
    namespace: &str,
    object: &Value,
    rules: &[Rule],
) -> ApiResult<()> {
    let (owned, errors) = rules_of(state, user, namespace);
    let missing = Rule::uncovered(&owned, rules);
    if missing.is_empty() {
        return Ok(());
    }
    let mut shown: Vec<String> = compacted(missing).iter().map(ToString::to_string).collect();
    shown.sort();
    shown.dedup();
    let mut why = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted_list(&user.groups),
        shown.join("\n")
    );
    if !errors.is_empty() {
        why = format!("{why}; resolution errors: [{}]", super::aggregate(&errors));
    }
    Err(refused(kind, object, &why))
}

fn refused(kind: &Kind, object: &Value, why: &str) -> StatusError {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    refusal(GROUP, kind.plural(), name, why)
}

/// Rules that differ in their verbs only become one, as messages show them.
fn compacted(rules: Vec<Rule>) -> Vec<Rule> {
    let mut compact: Vec<Rule> = Vec::new();
    for rule in rules {
        let is_plain = !rule.resources.is_empty();
        let same = |one: &&mut Rule| {
            is_plain
                && one.groups == rule.groups
                && one.resources == rule.resources
                && one.names == rule.names
        };
        match compact.iter_mut().find(same) {
            Some(found) => {
                let verbs = found.verbs.iter().chain(&rule.verbs).cloned().collect();
                found.verbs = verbs;
            }
            None => compact.push(rule),
        }
    }
    compact
}

fn has_aggregation(role: &Value) -> bool {
    role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|selectors| !selectors.is_empty())
}

fn full_authority() -> [Rule; 2] {
    let all = || -> Box<[Box<str>]> { Box::new(["*".into()]) };
    [
        Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), paths: all(), ..Rule::default() },
    ]
}

/// Whether an update only does what garbage collection needs.
fn changes_owners_only(old: &Value, new: &Value) -> bool {
    let rest = |value: &Value| {
        let mut rest = value.clone();
        if let Some(metadata) = rest["metadata"].as_object_mut() {
            for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                metadata.remove(field);
            }
        }
        rest
    };
    rest(old) == rest(new)
}

/// Fails unless the user may `approve` or `sign` requests for this signer.
pub(crate) fn confirm_signer(
    state: &State,
    user: &User,
    verb: &str,
    request: &Value,
    why: &str,
) -> ApiResult<()> {
    let signer = request["spec"]["signerName"].as_str().unwrap_or_default();
    let any = signer.split_once('/').map(|(domain, _)| format!("{domain}/*")).unwrap_or_default();
    let permitted = [signer, &any].into_iter().any(|name| {
        let target = ResourceAttributes {
            group: "certificates.k8s.io",
            resource: "signers",
            name,
            ..Default::default()
        };
        authorize(state, user, &Attributes::on(verb, target)).allowed
    });
    if permitted {
        return Ok(());
    }
    let name = request["metadata"]["name"].as_str().unwrap_or_default();
    let why = format!("{why} {signer:?}");
    Err(refusal("certificates.k8s.io", "certificatesigningrequests", name, &why))
}
