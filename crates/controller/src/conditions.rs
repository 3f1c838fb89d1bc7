//! Kubernetes' conditions in the status of an object: a change of the status is a transition. Those of the machine API, where every
//! change is one, are set by `api::crd::machine::set_condition`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Sets a condition in a list, which stays sorted by type. An unchanged one keeps its time; a transition gets `now`, in whole seconds,
/// because that is what the API server keeps. Returns whether the list changed.
pub fn set(conditions: &mut Vec<Condition>, mut condition: Condition, now: Timestamp) -> bool {
    let found = conditions.iter().position(|it| it.type_ == condition.type_);
    let time = match found.map(|at| &conditions[at]) {
        Some(before) if is_same(before, &condition) => return sort(conditions),
        Some(before) if before.status == condition.status => before.last_transition_time.0,
        _ => Timestamp::from_second(now.as_second()).unwrap_or(now),
    };
    condition.last_transition_time = Time(time);
    match found {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    sort(conditions);
    true
}

/// Removes the condition of a type. Returns whether there was one.
pub fn remove(conditions: &mut Vec<Condition>, condition_type: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|it| it.type_ != condition_type);
    conditions.len() != before
}

/// The condition of a type.
pub fn get<'a>(conditions: &'a [Condition], condition_type: &str) -> Option<&'a Condition> {
    conditions.iter().find(|it| it.type_ == condition_type)
}

/// Whether nothing but the time differs.
fn is_same(one: &Condition, other: &Condition) -> bool {
    (&one.status, &one.reason, &one.message, one.observed_generation)
        == (&other.status, &other.reason, &other.message, other.observed_generation)
}

/// Returns whether the list was not sorted.
fn sort(conditions: &mut [Condition]) -> bool {
    let was_sorted = conditions.is_sorted_by(|one, other| one.type_ <= other.type_);
    conditions.sort_by(|one, other| one.type_.cmp(&other.type_));
    !was_sorted
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
        let types: Vec<&str> = list.iter().map(|it| it.type_.as_str()).collect();
        assert_eq!(types, ["Available", "Degraded", "Ready"]);
        assert!(remove(&mut list, "Degraded"));
        assert!(!remove(&mut list, "Degraded"));
        assert!(get(&list, "Ready").is_some());
    }
}
