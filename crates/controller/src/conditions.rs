//! Conditions in the status of an object: written only when they change, with the time of their last transition.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// A condition of some API, by the rules of that API.
pub trait StatusCondition: Clone {
    /// Its type, of which an object has one condition.
    fn condition_type(&self) -> &str;

    /// Whether nothing but the time differs.
    fn is_same(&self, other: &Self) -> bool;

    /// Whether the change from `before` to this is a transition, which has a time of its own.
    fn is_transition(&self, before: &Self) -> bool;

    /// The time of the last transition.
    fn transition_time(&self) -> Timestamp;

    /// Sets the time of the last transition.
    fn set_transition_time(&mut self, time: Timestamp);
}

/// Sets a condition in a list, which stays sorted by type. An unchanged one keeps its time; a transition gets `now`, in whole seconds,
/// because that is what the API server keeps. Returns whether the list changed.
pub fn set<C: StatusCondition>(conditions: &mut Vec<C>, mut condition: C, now: Timestamp) -> bool {
    let found = conditions.iter().position(|it| it.condition_type() == condition.condition_type());
    let time = match found.map(|at| &conditions[at]) {
        Some(before) if before.is_same(&condition) => return sort(conditions),
        Some(before) if !condition.is_transition(before) => before.transition_time(),
        _ => Timestamp::from_second(now.as_second()).unwrap_or(now),
    };
    condition.set_transition_time(time);
    match found {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    sort(conditions);
    true
}

/// Removes the condition of a type. Returns whether there was one.
pub fn remove<C: StatusCondition>(conditions: &mut Vec<C>, condition_type: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|it| it.condition_type() != condition_type);
    conditions.len() != before
}

/// The condition of a type.
pub fn get<'a, C: StatusCondition>(conditions: &'a [C], condition_type: &str) -> Option<&'a C> {
    conditions.iter().find(|it| it.condition_type() == condition_type)
}

/// Returns whether the list was not sorted.
fn sort<C: StatusCondition>(conditions: &mut [C]) -> bool {
    let was_sorted = conditions.is_sorted_by(|one, other| one.condition_type() <= other.condition_type());
    conditions.sort_by(|one, other| one.condition_type().cmp(other.condition_type()));
    !was_sorted
}

/// Kubernetes' own: a transition is a change of the status alone.
impl StatusCondition for Condition {
    fn condition_type(&self) -> &str {
        &self.type_
    }

    fn is_same(&self, other: &Condition) -> bool {
        (&self.status, &self.reason, &self.message, self.observed_generation)
            == (&other.status, &other.reason, &other.message, other.observed_generation)
    }

    fn is_transition(&self, before: &Condition) -> bool {
        self.status != before.status
    }

    fn transition_time(&self) -> Timestamp {
        self.last_transition_time.0
    }

    fn set_transition_time(&mut self, time: Timestamp) {
        self.last_transition_time = Time(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(type_: &str, status: &str, message: &str) -> Condition {
        Condition {
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
            message: message.to_owned(),
            observed_generation: None,
            reason: "AsExpected".to_owned(),
            status: status.to_owned(),
            type_: type_.to_owned(),
        }
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    #[test]
    fn an_unchanged_condition_keeps_its_time_and_is_no_change() {
        let mut list = Vec::new();
        assert!(set(&mut list, condition("Ready", "True", "all is well"), at(5_700)));
        assert_eq!(list[0].last_transition_time.0, at(5_000));
        assert!(!set(&mut list, condition("Ready", "True", "all is well"), at(9_000)));
        assert_eq!(list[0].last_transition_time.0, at(5_000));
    }

    #[test]
    fn a_new_message_alone_is_a_change_but_no_transition() {
        let mut list = vec![condition("Ready", "True", "all is well")];
        assert!(set(&mut list, condition("Ready", "True", "still well"), at(9_000)));
        assert_eq!((list[0].message.as_str(), list[0].last_transition_time.0), ("still well", at(0)));
        assert!(set(&mut list, condition("Ready", "False", "still well"), at(9_000)));
        assert_eq!(list[0].last_transition_time.0, at(9_000));
    }

    #[test]
    fn the_list_is_sorted_by_type_and_holds_each_type_once() {
        let mut list = vec![condition("Ready", "True", ""), condition("Degraded", "False", "")];
        assert!(set(&mut list, condition("Ready", "True", ""), at(0)), "sorting is a change");
        assert!(set(&mut list, condition("Available", "True", ""), at(0)));
        let types: Vec<&str> = list.iter().map(StatusCondition::condition_type).collect();
        assert_eq!(types, ["Available", "Degraded", "Ready"]);
        assert!(remove(&mut list, "Degraded"));
        assert!(!remove(&mut list, "Degraded"));
        assert!(get(&list, "Ready").is_some());
    }
}
