//! Merging of a provider's report into what is stored.

use serde_json::Value;

/// Puts the members of `over` over those of `base`, object by object. Others of `base` stay.
pub(crate) fn merge_over(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge_over(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_that_a_provider_does_not_report_stay() {
        let mut status = json!({"vmState": "Creating", "taskRef": "t", "nested": {"a": 1, "b": 2}});
        merge_over(&mut status, &json!({"vmState": "Running", "nested": {"b": 3}}));
        assert_eq!(status, json!({"vmState": "Running", "taskRef": "t", "nested": {"a": 1, "b": 3}}));
    }
}
