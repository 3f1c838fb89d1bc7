//! What a webhook is asked, and what its answer means.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::configuration::Webhook;
use super::gate::Gate;
use crate::access::User;
use crate::kinds::Kind;
use crate::status::StatusError;

/// When a webhook is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before the object is complete; it may change it.
    Mutate,
    /// Before the object is written.
    Validate,
}

/// What is about to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A new object.
    Create,
    /// A change.
    Update,
    /// A deletion.
    Delete,
}

/// A write that webhooks are asked about.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) phase: Phase,
    pub(crate) operation: Operation,
    pub(crate) kind: Arc<Kind>,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The object to be written; null for a deletion.
    pub(crate) object: Value,
    /// The object as it is; null for a creation.
    pub(crate) old: Value,
    pub(crate) dry_run: bool,
}

impl Question {
    /// Whether an answer to this question is one to `other`.
    pub(super) fn is_same(&self, other: &Question) -> bool {
        (self.phase, self.operation) == (other.phase, other.operation)
            && self.name == other.name
            && self.namespace == other.namespace
            && self.kind.table() == other.kind.table()
            && self.object == other.object
            && self.old == other.old
    }
}

/// Why a call of a webhook has no usable answer.
pub(super) type CallError = String;

/// The answer of a webhook.
#[derive(Debug)]
pub(super) enum Answer {
    /// Allowed, with a patch or null.
    Allowed(Value),
    /// Refused.
    Refused(StatusError),
}

/// The AdmissionReview that a webhook is sent.
pub(super) fn request(
    version: &str,
    uid: &str,
    question: &Question,
    kind: &Kind,
    object: &Value,
    user: &User,
    gate: &Gate,
) -> Value {
    let (wanted, own) = (kind, &*question.kind);
    let kind_of =
        |kind: &Kind| json!({"group": kind.group(), "version": kind.version(), "kind": kind.kind()});
    let resource_of =
        |kind: &Kind| json!({"group": kind.group(), "version": kind.version(), "resource": kind.plural()});
    let in_version = |object: &Value| {
        let mut object = object.clone();
        if !object.is_null() {
            wanted.set_type_meta(&mut object);
        }
        object
    };
    // A patch is an update, or creates the object.
    let mut options = gate.options.clone();
    options["kind"] = json!(match question.operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
    });
    let mut request = json!({
        "uid": uid, "kind": kind_of(wanted), "resource": resource_of(wanted),
        "requestKind": kind_of(own), "requestResource": resource_of(own),
        "operation": question.operation.as_str(), "userInfo": user.info(),
        "object": in_version(object), "oldObject": in_version(&question.old),
        "dryRun": question.dry_run, "options": options,
    });
    for (field, text) in [("name", &question.name), ("namespace", &question.namespace)] {
        if !text.is_empty() {
            request[field] = json!(text);
        }
    }
    if !question.subresource.is_empty() {
        request["subResource"] = json!(question.subresource);
        request["requestSubResource"] = json!(question.subresource);
    }
    json!({"kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"), "request": request})
}

/// Reads the AdmissionReview that a webhook returned.
pub(super) fn response(
    webhook: &Webhook,
    version: &str,
    uid: &str,
    phase: Phase,
    review: &Value,
) -> Result<(Answer, Vec<String>), CallError> {
    let invalid = |why: String| format!("received invalid webhook response: {why}");
    let response = &review["response"];
    if response.is_null() {
        return Err(invalid("webhook response was absent".to_owned()));
    }
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    if version == "v1" {
        let found = text(response, "uid");
        if found != uid {
            return Err(invalid(format!("expected response.uid={uid:?}, got {found:?}")));
        }
        let (api, kind) = (text(review, "apiVersion"), text(review, "kind"));
        if api != "admission.k8s.io/v1" || kind != "AdmissionReview" {
            let wanted = "admission.k8s.io/v1, Kind=AdmissionReview";
            return Err(invalid(format!("expected webhook response of {wanted}, got {api}, Kind={kind}")));
        }
    }
    let (patch, patch_type) = (text(response, "patch"), &response["patchType"]);
    match (phase, patch.is_empty(), patch_type.is_null()) {
        (Phase::Validate, false, _) => {
            return Err(invalid("validating webhook may not return response.patch".to_owned()));
        }
        (Phase::Validate, _, false) if version == "v1" => {
            return Err(invalid("validating webhook may not return response.patchType".to_owned()));
        }
        (Phase::Mutate, false, true) if version == "v1" => {
            return Err(invalid("webhook returned response.patch but not response.patchType".to_owned()));
        }
        (Phase::Mutate, true, false) if version == "v1" => {
            return Err(invalid("webhook returned response.patchType but not response.patch".to_owned()));
        }
        _ => {}
    }
    let warnings =
        response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let warnings = warnings.collect();
    if response["allowed"] != true {
        return Ok((Answer::Refused(refusal(&webhook.name, &response["status"])), warnings));
    }
    if patch.is_empty() {
        return Ok((Answer::Allowed(Value::Null), warnings));
    }
    if !patch_type.is_null() && patch_type != "JSONPatch" {
        return Err(format!("unsupported patch type {patch_type}"));
    }
    let undecodable =
        |error: &dyn std::fmt::Display| format!("received undecodable patch in webhook response: {error}");
    let patch = STANDARD.decode(patch).map_err(|error| undecodable(&error))?;
    let patch = serde_json::from_slice(&patch).map_err(|error| undecodable(&error))?;
    Ok((Answer::Allowed(patch), warnings))
}

/// The Status of a refusal.
fn refusal(webhook: &str, status: &Value) -> StatusError {
    let text = |field: &str| status[field].as_str().filter(|text| !text.is_empty());
    let refused = format!("admission webhook {webhook:?} denied the request");
    let message = match (text("message"), text("reason")) {
        (Some(why), _) | (None, Some(why)) => format!("{refused}: {why}"),
        (None, None) => format!("{refused} without explanation"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or_default();
    let mut failure = StatusError::new(code.clamp(400, 599), "", message);
    failure.reason = text("reason").unwrap_or_default().to_owned().into();
    failure.details = status["details"].clone();
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    fn question(old_version: &str) -> Question {
        Question {
            phase: Phase::Mutate,
            operation: Operation::Update,
            kind: kinds::find("", "ConfigMap").unwrap().clone(),
            subresource: String::new(),
            namespace: "default".to_owned(),
            name: "a".to_owned(),
            object: json!({"data": {"x": "1"}}),
            old: json!({"metadata": {"resourceVersion": old_version}}),
            dry_run: false,
        }
    }

    #[test]
    fn an_answer_counts_for_the_object_that_was_asked_about_only() {
        let gate = Gate::new(json!({}));
        assert!(gate.answer(question("1")).is_err());
        let asked = gate.take_pending().unwrap();
        gate.record(asked, json!({"data": {"x": "2"}}));
        assert_eq!(gate.answer(question("1")).unwrap(), json!({"data": {"x": "2"}}));
        assert!(gate.answer(question("2")).is_err(), "the object has changed meanwhile");
    }
}
