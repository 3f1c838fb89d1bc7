//! Rules of built-in kinds that schemas cannot express and that users meet.

use serde_json::{Map, Value};

use super::error::FieldError;

/// Adds the errors of an object that its schema does not find.
pub(super) fn check(go_type: &str, object: &Value, errors: &mut Vec<FieldError>) {
    let kind = match go_type {
        "v1.DaemonSet" => "daemonset",
        "v1.Deployment" => "deployment",
        "v1.ReplicaSet" => "replicaset",
        "v1.StatefulSet" => "statefulset",
        _ => return,
    };
    check_selector(kind, object, errors);
    for pointer in ["/spec/replicas", "/spec/minReadySeconds", "/spec/revisionHistoryLimit"] {
        if let Some(count) =
            object.pointer(pointer).filter(|count| count.as_i64().is_some_and(|count| count < 0))
        {
            let field = pointer.trim_start_matches('/').replace('/', ".");
            errors.push(FieldError::invalid(field, count, "must be greater than or equal to 0"));
        }
    }
}

/// The selector of a workload must match its pod template.
fn check_selector(kind: &str, object: &Value, errors: &mut Vec<FieldError>) {
    let selector = object.pointer("/spec/selector").and_then(Value::as_object);
    let labels = object.pointer("/spec/template/metadata/labels");
    if selector.is_some_and(Map::is_empty) {
        let detail = format!("empty selector is invalid for {kind}");
        errors.push(FieldError::invalid("spec.selector", &Value::Object(Map::new()), &detail));
    }
    let none = Map::new();
    let of_pods = labels.and_then(Value::as_object).unwrap_or(&none);
    if !selector.is_some_and(|selector| !selector.is_empty() && selects(selector, of_pods)) {
        let detail = "`selector` does not match template `labels`";
        let field = "spec.template.metadata.labels";
        errors.push(FieldError::invalid(field, labels.unwrap_or(&Value::Null), detail));
    }
}

fn selects(selector: &Map<String, Value>, labels: &Map<String, Value>) -> bool {
    let wanted = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    wanted.into_iter().all(|(name, value)| labels.get(name) == Some(value))
        && expressions.into_iter().all(|expression| holds(expression, labels))
}

fn holds(expression: &Value, labels: &Map<String, Value>) -> bool {
    let word = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
    let found = labels.get(word("key"));
    let is_listed = || {
        let values = expression.get("values").and_then(Value::as_array);
        found.is_some_and(|found| values.is_some_and(|values| values.contains(found)))
    };
    match word("operator") {
        "In" => is_listed(),
        "NotIn" => !is_listed(),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        _ => false,
    }
}
