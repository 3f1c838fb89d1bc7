//! Evaluation of permissions: sets of actions with wildcards, and assignments that deny.

use serde_json::Value;

use crate::json::{items, text, texts};

/// The principal that stands for everybody in a deny assignment.
const EVERYBODY: &str = "00000000-0000-0000-0000-000000000000";
/// Scopes above subscriptions, in lower case.
const MANAGEMENT_GROUPS: &str = "/providers/microsoft.management/managementgroups/";

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

/// The place of an assignment in relation to a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    At,
    Above,
    /// Below the scope, or beside it.
    Elsewhere,
}

impl Place {
    fn of(assignment: &Value, scope: &str) -> Place {
        let at = text(assignment, "/properties/scope").to_lowercase();
        let (at, scope) = (at.trim_end_matches('/'), scope.to_lowercase());
        // A subscription does not tell its management groups, but lists only the assignments of its own ones.
        if scope == at {
            Place::At
        } else if at.starts_with(MANAGEMENT_GROUPS) || scope.starts_with(&format!("{at}/")) {
            Place::Above
        } else {
            Place::Elsewhere
        }
    }
}

/// Whether a role assignment counts at a scope. Lists hold those below the scope too, which do not.
pub(crate) fn allows_at(assignment: &Value, scope: &str) -> bool {
    Place::of(assignment, scope) != Place::Elsewhere
}

/// Whether a deny assignment is in force at a scope. Lists hold those below the scope too, which are not.
pub(crate) fn denies_at(assignment: &Value, scope: &str) -> bool {
    let is_inherited =
        assignment.pointer("/properties/doNotApplyToChildScopes").and_then(Value::as_bool) != Some(true);
    match Place::of(assignment, scope) {
        Place::At => true,
        Place::Above => is_inherited,
        Place::Elsewhere => false,
    }
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
    use cloud::ResourceId;
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
            assert_eq!(denies_at(&deny, group.as_str()), expect, "{scope}");
        };
        check("/subscriptions/S/resourcegroups/g", true, true);
        check("/subscriptions/s", false, true);
        check("/subscriptions/s", true, false);
        check("/", false, true);
        check("/providers/Microsoft.Management/managementGroups/corp", false, true);
        check("/providers/Microsoft.Management/managementGroups/corp", true, false);
        check(
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v",
            false,
            false,
        );
        check("/subscriptions/s/resourceGroups/gg", false, false);
    }

    #[test]
    fn a_role_counts_at_its_scope_and_below() {
        let group = ResourceId::group("s", "G");
        for (scope, expect) in [
            ("/subscriptions/S/resourcegroups/g", true),
            ("/subscriptions/s", true),
            ("/", true),
            ("/providers/Microsoft.Management/managementGroups/corp", true),
            ("/subscriptions/s/resourceGroups/gg", false),
            ("/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v", false),
        ] {
            let assignment = json!({"properties": {"scope": scope}});
            assert_eq!(allows_at(&assignment, group.as_str()), expect, "{scope}");
        }
    }

    #[test]
    fn a_deny_assignment_spares_the_excluded() {
        let deny = json!({"properties": {"permissions": [{"actions": ["*/write"]}],
            "principals": [{"id": EVERYBODY, "type": "SystemDefined"}], "excludePrincipals": [{"id": "ours"}]}});
        assert_eq!(denied_sets(&deny, "OURS"), []);
        assert!(denied_sets(&deny, "theirs")[0].contains("a/write"));
    }
}
