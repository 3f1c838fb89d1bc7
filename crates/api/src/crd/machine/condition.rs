//! Conditions of the machine API: those of Kubernetes with a severity in place of the observed generation.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::resource::open_enum;
use super::super::schema;

open_enum! {
    /// Status of a condition.
    ConditionStatus {
        /// It holds.
        True = "True",
        /// It does not hold.
        False = "False",
        /// It could not be found out.
        Unknown = "Unknown",
    }
}

open_enum! {
    /// Severity of a condition that is False.
    ConditionSeverity {
        /// Someone must act.
        Error = "Error",
        /// It should pass by itself.
        Warning = "Warning",
        /// It is meant to be so.
        Info = "Info",
    }
}

/// An observation of a resource of the machine API.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    #[schemars(with = "String")]
    pub status: ConditionStatus,
    /// Error, Warning or Info. Only a condition that is False has one.
    #[schemars(with = "Option<String>")]
    pub severity: Option<ConditionSeverity>,
    /// Reason for the last transition, in CamelCase.
    pub reason: Option<String>,
    /// Explanation for people.
    pub message: Option<String>,
    /// When status, reason, severity or message last changed.
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Time,
}

impl Condition {
    /// A condition that is True, without a reason.
    pub fn is_true(type_: impl Into<String>) -> Condition {
        Condition {
            type_: type_.into(),
            status: ConditionStatus::True,
            severity: None,
            reason: None,
            message: None,
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        }
    }

    /// A condition that is False.
    pub fn is_false(
        type_: impl Into<String>,
        reason: impl Into<String>,
        severity: ConditionSeverity,
        message: impl Into<String>,
    ) -> Condition {
        Condition {
            status: ConditionStatus::False,
            severity: Some(severity),
            reason: Some(reason.into()),
            message: Some(message.into()),
            ..Condition::is_true(type_)
        }
    }

    /// A condition that could not be found out.
    pub fn is_unknown(
        type_: impl Into<String>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Condition {
        Condition {
            status: ConditionStatus::Unknown,
            reason: Some(reason.into()),
            message: Some(message.into()),
            ..Condition::is_true(type_)
        }
    }

    /// The same condition with a reason and a message.
    #[must_use]
    pub fn because(self, reason: Option<&str>, message: Option<&str>) -> Condition {
        Condition { reason: reason.map(str::to_owned), message: message.map(str::to_owned), ..self }
    }

    fn has_state_of(&self, other: &Condition) -> bool {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        self.status == other.status
            && self.severity == other.severity
            && text(&self.reason) == text(&other.reason)
            && text(&self.message) == text(&other.message)
    }
}

/// The condition of a type.
pub fn find_condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of a type is True.
pub fn is_condition_true(conditions: &[Condition], type_: &str) -> bool {
    find_condition(conditions, type_).is_some_and(|condition| condition.status == ConditionStatus::True)
}

/// Sets a condition and returns whether the list changed. If its state is unchanged, the time of its transition stays. A change of
/// the message alone is a transition. The list is sorted by type.
pub fn set_condition(conditions: &mut Vec<Condition>, condition: Condition, now: Timestamp) -> bool {
    let found = conditions.iter_mut().find(|found| found.type_ == condition.type_);
    // What is written has whole seconds; the same instant must compare equal when it is read.
    let stamped = Condition { last_transition_time: whole_seconds(now), ..condition };
    match found {
        Some(found) if found.has_state_of(&stamped) => return false,
        Some(found) => *found = stamped,
        None => conditions.push(stamped),
    }
    conditions.sort_by(|one, other| one.type_.cmp(&other.type_));
    true
}

/// A time as it is written, in whole seconds.
pub fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn an_unchanged_condition_keeps_its_time_and_is_not_written() {
        let mut conditions = Vec::new();
        let blocked = || Condition::is_false("Drainable", "HookPresent", ConditionSeverity::Warning, "a");
        assert!(set_condition(&mut conditions, blocked(), at(10)));
        assert!(!set_condition(&mut conditions, blocked(), at(20)));
        assert_eq!(conditions[0].last_transition_time, Time(at(10)));
    }

    #[test]
    fn a_change_of_status_reason_severity_or_message_is_a_transition() {
        let first = Condition::is_false("Drained", "DrainError", ConditionSeverity::Warning, "a");
        let changes = [
            Condition::is_true("Drained"),
            Condition { reason: Some("Other".into()), ..first.clone() },
            Condition { severity: Some(ConditionSeverity::Info), ..first.clone() },
            Condition { message: Some("b".into()), ..first.clone() },
        ];
        for change in changes {
            let mut conditions = Vec::new();
            set_condition(&mut conditions, first.clone(), at(10));
            assert!(set_condition(&mut conditions, change.clone(), at(20)), "{change:?}");
            assert_eq!(conditions[0].last_transition_time, Time(at(20)), "{change:?}");
        }
    }

    #[test]
    fn times_are_whole_seconds_and_an_absent_reason_equals_an_empty_one() {
        let mut conditions = Vec::new();
        set_condition(
            &mut conditions,
            Condition::is_true("Drained"),
            Timestamp::from_millisecond(1_500).unwrap(),
        );
        assert_eq!(conditions[0].last_transition_time, Time(at(1)));
        let empty = Condition::is_true("Drained").because(Some(""), Some(""));
        assert!(!set_condition(&mut conditions, empty, at(9)));
    }

    #[test]
    fn the_list_is_sorted_by_type() {
        let mut conditions = Vec::new();
        for type_ in ["Terminable", "Drainable", "InstanceExists"] {
            set_condition(&mut conditions, Condition::is_true(type_), at(1));
        }
        let types: Vec<&str> = conditions.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(types, ["Drainable", "InstanceExists", "Terminable"]);
    }
}
