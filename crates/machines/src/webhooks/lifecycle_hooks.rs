//! The rule of lifecycle hooks: those of a Machine that is being deleted can be removed, not added or changed. The drain and the
//! termination that they hold up may have begun.

use serde_json::Value;

use super::field::FieldError;
use super::verdict::Verdict;

pub(super) fn validate(old: &Value, new: &Value, verdict: &mut Verdict) {
    for (field, name) in [("preDrain", "pre-drain"), ("preTerminate", "pre-terminate")] {
        let existing = hooks(old, field);
        let changed: Vec<String> = hooks(new, field)
            .iter()
            .filter(|hook| !existing.contains(hook))
            .map(|(name, owner)| format!("{{Name:{name} Owner:{owner}}}"))
            .collect();
        verdict.require(changed.is_empty(), || {
            let changed = changed.join(" ");
            let detail = format!(
                "{name} hooks are immutable when machine is marked for deletion: the following hooks are new or changed: [{changed}]"
            );
            FieldError::forbidden(format!("spec.lifecycleHooks.{field}"), detail)
        });
    }
}

/// The names and owners of the hooks of a Machine.
fn hooks<'a>(machine: &'a Value, field: &str) -> Vec<(&'a str, &'a str)> {
    let hooks = machine.get("spec").and_then(|it| it.get("lifecycleHooks")?.get(field)?.as_array());
    let text = |hook: &'a Value, field: &str| hook.get(field).and_then(Value::as_str).unwrap_or_default();
    hooks.into_iter().flatten().map(|hook| (text(hook, "name"), text(hook, "owner"))).collect()
}
