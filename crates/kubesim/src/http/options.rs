//! Options of writes and deletions, from the query string and from the body of a deletion.

use serde_json::{Value, json};

use super::query::Query;
use crate::schema::FieldError;
use crate::status::{ApiResult, StatusError};
use crate::verbs::{DeleteOptions, Propagation, Validation, WriteOptions};

/// Highest length of a field manager's name.
const MANAGER_LENGTH_MAX: usize = 128;

/// The options in a query string as an object without a kind, for admission webhooks.
pub(super) fn sent(query: &Query) -> Value {
    let mut options = json!({"apiVersion": "meta.k8s.io/v1"});
    let dry: Vec<&str> = query.all("dryRun").collect();
    if !dry.is_empty() {
        options["dryRun"] = json!(dry);
    }
    for field in ["fieldManager", "fieldValidation", "propagationPolicy"] {
        if let Some(text) = query.get(field) {
            options[field] = json!(text);
        }
    }
    options
}

/// Options of a create, an update or a patch. The default field manager is the user agent.
pub(super) fn write(query: &Query, agent: &str, options_kind: &str) -> ApiResult<WriteOptions> {
    let manager = match query.get("fieldManager") {
        Some(manager) if manager.len() > MANAGER_LENGTH_MAX => {
            let cause = FieldError::too_long("fieldManager", MANAGER_LENGTH_MAX as u64);
            return Err(StatusError::invalid("meta.k8s.io", options_kind, "", &[cause]));
        }
        Some(manager) => manager.to_owned(),
        None => agent.split('/').next().unwrap_or_default().chars().take(MANAGER_LENGTH_MAX).collect(),
    };
    let validation = match query.get("fieldValidation") {
        None | Some("Warn") => Validation::Warn,
        Some("Ignore") => Validation::Ignore,
        Some("Strict") => Validation::Strict,
        Some(other) => {
            let supported = ["", "Ignore", "Strict", "Warn"].map(Value::from);
            let cause = FieldError::not_supported("fieldValidation", &Value::from(other), supported.iter());
            return Err(StatusError::invalid("meta.k8s.io", options_kind, "", &[cause]));
        }
    };
    let force = query.get("force").map(|_| query.flag("force"));
    Ok(WriteOptions { dry_run: dry_run(query.all("dryRun"), options_kind)?, manager, validation, force })
}

fn dry_run<'a>(values: impl Iterator<Item = &'a str>, options_kind: &str) -> ApiResult<bool> {
    let mut dry = false;
    for value in values {
        if value != "All" {
            let supported = [Value::from("All")];
            let shown = Value::Array(vec![Value::from(value)]);
            let cause = FieldError::not_supported("dryRun", &shown, supported.iter());
            return Err(StatusError::invalid("meta.k8s.io", options_kind, "", &[cause]));
        }
        dry = true;
    }
    Ok(dry)
}

/// Options of a deletion.
pub(super) fn delete(query: &Query, body: Option<&Value>) -> ApiResult<DeleteOptions> {
    let none = Value::Null;
    let body = body.unwrap_or(&none);
    let in_body = body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let dry = dry_run(query.all("dryRun").chain(in_body), "DeleteOptions")?;
    let policy = body["propagationPolicy"].as_str().or(query.get("propagationPolicy"));
    let orphan = body["orphanDependents"]
        .as_bool()
        .or(query.get("orphanDependents").map(|_| query.flag("orphanDependents")));
    let mut causes = Vec::new();
    if let (Some(policy), Some(_)) = (policy, orphan) {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        causes.push(FieldError::invalid("propagationPolicy", &Value::from(policy), why));
    }
    let propagation = match (policy, orphan) {
        (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
        (Some("Foreground"), _) => Some(Propagation::Foreground),
        (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
        (None, None) => None,
        (Some(other), _) => {
            let supported = ["Foreground", "Background", "Orphan", "nil"].map(Value::from);
            causes.push(FieldError::not_supported(
                "propagationPolicy",
                &Value::from(other),
                supported.iter(),
            ));
            None
        }
    };
    if !causes.is_empty() {
        return Err(StatusError::invalid("meta.k8s.io", "DeleteOptions", "", &causes));
    }
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Ok(DeleteOptions {
        dry_run: dry,
        grace_seconds: body["gracePeriodSeconds"].as_i64().or(query.number("gracePeriodSeconds")?),
        propagation,
        uid: text(&body["preconditions"]["uid"]),
        resource_version: text(&body["preconditions"]["resourceVersion"]),
    })
}
