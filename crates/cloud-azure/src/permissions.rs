//! Evaluation of permissions: sets of actions with wildcards, and assignments that deny.

use cloud::ResourceId;
use serde_json::Value;

use crate::json::{items, text, texts};

/// The principal that stands for everybody in a deny assignment.
const EVERYBODY: &str = "00000000-0000-0000-0000-000000000000";

/// A set of actions: those that match, less those that are excepted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ActionSet {
    actions: Vec<String>,
    not_actions: Vec<String>,
    data_actions: Vec<String>,
    not_data_actions: Vec<String>,
}

impl ActionSet {
    pub(crate) fn read(value: &Value) -> ActionSet {
        ActionSet {
            actions: texts(value, "/actions"),
            not_actions: texts(value, "/notActions"),
            data_actions: texts(value, "/dataActions"),
            not_data_actions: texts(value, "/notDataActions"),
        }
    }

    pub(crate) fn contains(&self, action: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|it| matches(it, action));
        (any(&self.actions) && !any(&self.not_actions))
            || (any(&self.data_actions) && !any(&self.not_data_actions))
    }
}

/// The sets of a deny assignment when it applies to a principal.
pub(crate) fn denied_sets(assignment: &Value, principal: &str) -> Vec<ActionSet> {
    let names = |pointer: &str, id: &str| {
        items(assignment, pointer).iter().any(|it| text(it, "/id").eq_ignore_ascii_case(id))
    };
    let applies = names("/properties/principals", principal) || names("/properties/principals", EVERYBODY);
    if !applies || names("/properties/excludePrincipals", principal) {
        return Vec::new();
    }
    items(assignment, "/properties/permissions").iter().map(ActionSet::read).collect()
}

/// Whether a deny assignment is in force at a scope. Lists hold those below the scope too, which are not.
pub(crate) fn denies_at(assignment: &Value, scope: &ResourceId) -> bool {
    let at = text(assignment, "/properties/scope").to_lowercase();
    let (at, scope) = (at.trim_end_matches('/'), scope.key());
    let is_inherited =
        assignment.pointer("/properties/doNotApplyToChildScopes").and_then(Value::as_bool) != Some(true);
    scope == at || (is_inherited && scope.starts_with(&format!("{at}/")))
}

/// Whether a pattern matches an action: `*` stands for any run of characters, case does not count.
pub(crate) fn matches(pattern: &str, action: &str) -> bool {
    let (pattern, action) = (pattern.to_lowercase(), action.to_lowercase());
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = action.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wildcards_match_any_run_without_case() {
        for (pattern, action, expect) in [
            ("*", "Microsoft.Network/virtualNetworks/read", true),
            ("*/read", "Microsoft.Network/virtualNetworks/read", true),
            ("*/read", "Microsoft.Network/virtualNetworks/write", false),
            (
                "microsoft.network/*/JOIN/action",
                "Microsoft.Network/virtualNetworks/subnets/join/action",
                true,
            ),
            ("Microsoft.Network/virtualNetworks/read", "microsoft.network/virtualnetworks/READ", true),
            ("Microsoft.Network/virtualNetworks/read", "Microsoft.Network/virtualNetworks/readx", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, action), expect, "{pattern} {action}");
        }
    }

    #[test]
    fn an_excepted_action_is_not_in_the_set() {
        let set =
            ActionSet::read(&json!({"actions": ["*"], "notActions": ["Microsoft.Authorization/*/write"]}));
        assert!(set.contains("Microsoft.Network/virtualNetworks/write"));
        assert!(!set.contains("Microsoft.Authorization/roleAssignments/write"));
    }

    #[test]
    fn a_deny_assignment_is_in_force_at_its_scope_and_below() {
        let group = ResourceId::group("s", "G");
        let check = |scope: &str, is_alone: bool, expect: bool| {
            let deny = json!({"properties": {"scope": scope, "doNotApplyToChildScopes": is_alone}});
            assert_eq!(denies_at(&deny, &group), expect, "{scope}");
        };
        check("/subscriptions/S/resourcegroups/g", true, true);
        check("/subscriptions/s", false, true);
        check("/subscriptions/s", true, false);
        check("/", false, true);
        check(
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v",
            false,
            false,
        );
        check("/subscriptions/s/resourceGroups/gg", false, false);
    }

    #[test]
    fn a_deny_assignment_spares_the_excluded() {
        let deny = json!({"properties": {"permissions": [{"actions": ["*/write"]}],
            "principals": [{"id": EVERYBODY, "type": "SystemDefined"}], "excludePrincipals": [{"id": "ours"}]}});
        assert_eq!(denied_sets(&deny, "OURS"), []);
        assert!(denied_sets(&deny, "theirs")[0].contains("a/write"));
    }
}
