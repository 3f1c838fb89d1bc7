//! Aggregated cluster roles: their rules are those of the roles that their selectors select.

use std::sync::Arc;

use serde_json::{Value, json};

use super::context::ControllerContext;
use crate::objects::Object;
use crate::selector::LabelSelector;
use crate::status::ApiResult;
use crate::verbs::{self, PatchType};

/// The field manager of the rules.
const MANAGER: &str = "clusterrole-aggregation-controller";
const TABLE: &str = "rbac.authorization.k8s.io/clusterroles";

/// Collects the rules of all aggregated roles. A role may be part of several others, so that this repeats until
/// nothing changes.
pub(super) fn reconcile(context: &mut ControllerContext<'_>) -> ApiResult<()> {
    loop {
        let roles: Vec<Arc<Object>> =
            context.state.objects.range(TABLE, "", "").map(|(_, role)| role.clone()).collect();
        let aggregated: Vec<Value> =
            roles.iter().map(|role| role.value()).filter(|role| !role["aggregationRule"].is_null()).collect();
        let mut is_settled = true;
        for role in aggregated {
            let rules = collected(&role, &roles);
            let present = role["rules"].as_array().cloned().unwrap_or_default();
            if rules == present {
                continue;
            }
            is_settled = false;
            let name = role["metadata"]["name"].as_str().unwrap_or_default();
            apply_rules(context, name, &rules)?;
        }
        if is_settled {
            return Ok(());
        }
    }
}

fn collected(role: &Value, roles: &[Arc<Object>]) -> Vec<Value> {
    let mut rules: Vec<Value> = Vec::new();
    for selector in role["aggregationRule"]["clusterRoleSelectors"].as_array().into_iter().flatten() {
        let Some(selector) = LabelSelector::from_object(Some(selector)) else { continue };
        let selected = roles
            .iter()
            .filter(|one| role["metadata"]["name"] != *one.name() && selector.matches(|key| one.label(key)));
        for one in selected {
            for rule in one.value()["rules"].as_array().into_iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    rules
}

fn apply_rules(context: &mut ControllerContext<'_>, name: &str, rules: &[Value]) -> ApiResult<()> {
    let kind = ControllerContext::built_in_kind("rbac.authorization.k8s.io", "ClusterRole")?;
    let mut config = json!({"metadata": {"name": name}, "rules": rules});
    kind.set_type_meta(&mut config);
    let target = super::context::target(kind, "", name, "");
    let options = verbs::WriteOptions {
        manager: MANAGER.to_owned(),
        force: Some(true),
        ..verbs::WriteOptions::default()
    };
    let caller = context.caller();
    verbs::patch(&mut context.state, &target, PatchType::Apply, &config, &options, &caller).map(drop)
}
