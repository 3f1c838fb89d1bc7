//! The conditions that the controllers set: their types, reasons and texts.

use api::crd::machine::{Condition, ConditionSeverity, LifecycleHook};

/// Type of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConditionType {
    InstanceExists,
    Drainable,
    Terminable,
    Drained,
    Paused,
    RemediationAllowed,
    ExternalRemediationTemplateAvailable,
    ExternalRemediationRequestAvailable,
}

impl ConditionType {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ConditionType::InstanceExists => "InstanceExists",
            ConditionType::Drainable => "Drainable",
            ConditionType::Terminable => "Terminable",
            ConditionType::Drained => "Drained",
            ConditionType::Paused => "Paused",
            ConditionType::RemediationAllowed => "RemediationAllowed",
            ConditionType::ExternalRemediationTemplateAvailable => "ExternalRemediationTemplateAvailable",
            ConditionType::ExternalRemediationRequestAvailable => "ExternalRemediationRequestAvailable",
        }
    }

    /// The condition of this type, True and without a reason.
    pub(crate) fn holds(self) -> Condition {
        Condition::is_true(self.as_str())
    }

    fn fails(
        self,
        reason: &'static str,
        severity: ConditionSeverity,
        message: impl Into<String>,
    ) -> Condition {
        Condition::is_false(self.as_str(), reason, severity, message)
    }
}

/// The instance was there and is gone.
pub(crate) fn instance_missing() -> Condition {
    let message = "The instance was not found at the provider";
    ConditionType::InstanceExists.fails("InstanceMissing", ConditionSeverity::Warning, message)
}

/// The instance is not created yet, or the last attempt failed with `error`.
pub(crate) fn instance_not_created(error: Option<&str>) -> Condition {
    let message = match error {
        None => "The instance has not been created".to_owned(),
        Some(error) => format!("The instance could not be created: {error}"),
    };
    ConditionType::InstanceExists.fails("InstanceNotCreated", ConditionSeverity::Warning, message)
}

/// The provider could not be asked.
pub(crate) fn instance_unknown(error: &str) -> Condition {
    let message = format!("The provider could not be asked for the instance: {error}");
    Condition::is_unknown(ConditionType::InstanceExists.as_str(), "ErrorCheckingProvider", message)
}

/// Whether hooks hold the drain.
pub(crate) fn drainable(hooks: &[LifecycleHook]) -> Condition {
    held(ConditionType::Drainable, "Drain", hooks)
}

/// Whether hooks hold the deletion of the instance.
pub(crate) fn terminable(hooks: &[LifecycleHook]) -> Condition {
    held(ConditionType::Terminable, "Terminate", hooks)
}

fn held(type_: ConditionType, operation: &str, hooks: &[LifecycleHook]) -> Condition {
    if hooks.is_empty() {
        return type_.holds();
    }
    let message = format!("{operation} operation currently blocked by: {}", hook_list(hooks));
    type_.fails("HookPresent", ConditionSeverity::Warning, message)
}

/// Hooks in the form in which OpenShift's controllers print them.
pub(crate) fn hook_list(hooks: &[LifecycleHook]) -> String {
    let hooks = hooks.iter().map(|hook| format!("{{Name:{} Owner:{}}}", hook.name, hook.owner));
    format!("[{}]", hooks.collect::<Vec<_>>().join(" "))
}

/// The drain is over, as `message` says.
pub(crate) fn drained(message: &str) -> Condition {
    ConditionType::Drained.holds().because(None, Some(message))
}

/// The drain is not over.
pub(crate) fn drain_error(message: impl Into<String>) -> Condition {
    ConditionType::Drained.fails("DrainError", ConditionSeverity::Warning, message)
}

/// Whether another API is authoritative, so that these controllers do nothing.
pub(crate) fn paused(paused: bool) -> Condition {
    if paused {
        let message = "The AuthoritativeAPI status is not MachineAPI";
        ConditionType::Paused.holds().because(Some("AuthoritativeAPINotMachineAPI"), Some(message))
    } else {
        let message = "The AuthoritativeAPI status is MachineAPI";
        ConditionType::Paused.fails("AuthoritativeAPIMachineAPI", ConditionSeverity::Info, message)
    }
}

/// Too many Machines are unhealthy.
pub(crate) fn too_many_unhealthy(message: impl Into<String>) -> Condition {
    ConditionType::RemediationAllowed.fails("TooManyUnhealthy", ConditionSeverity::Warning, message)
}

/// The template of remediation requests does not exist.
pub(crate) fn remediation_template_missing(message: impl Into<String>) -> Condition {
    let type_ = ConditionType::ExternalRemediationTemplateAvailable;
    type_.fails("ExternalRemediationTemplateNotFound", ConditionSeverity::Error, message)
}

/// A remediation request could not be created.
pub(crate) fn remediation_request_failed(message: impl Into<String>) -> Condition {
    let type_ = ConditionType::ExternalRemediationRequestAvailable;
    type_.fails("ExternalRemediationRequestCreationFailed", ConditionSeverity::Error, message)
}
