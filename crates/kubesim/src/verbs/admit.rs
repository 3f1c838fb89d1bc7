//! Admission of an object from a request body: kind, types, pruning, defaults, validation.

use std::sync::Arc;

use serde_json::Value;

use super::{Validation, WriteOptions, metadata};
use crate::kinds::{self, Kind};
use crate::schema::{FieldError, Reason, Schemas, json_type};
use crate::status::{ApiResult, StatusError};

/// Checks that a body is an object of this kind.
pub(super) fn expect_kind(kind: &Kind, value: &mut Value) -> ApiResult<()> {
    let Some(fields) = value.as_object_mut() else {
        let group_version = kind.api_version();
        return Err(StatusError::bad_request(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }} (expected {group_version} {})",
            json_type(value),
            kind.kind()
        )));
    };
    let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (sent_version, sent_kind) = (text("apiVersion"), text("kind"));
    let expected = kind.api_version();
    if let Some(failure) = unregistered(kind, &sent_version, &sent_kind) {
        return Err(failure);
    }
    if !sent_kind.is_empty() && sent_kind != kind.kind() {
        let version = if sent_version.is_empty() { &expected } else { &sent_version };
        let (short, name) = (version.rsplit('/').next().unwrap_or_default(), kind.kind());
        return Err(StatusError::bad_request(format!(
            "{sent_kind} in version \"{short}\" cannot be handled as a {name}: converting ({short}.{sent_kind}) to ({}.{name}): unknown conversion",
            package(kind.group()),
        )));
    }
    if !sent_version.is_empty() && sent_version != expected {
        return Err(StatusError::bad_request(format!(
            "the API version in the data ({sent_version}) does not match the expected API version ({expected})"
        )));
    }
    if kind.custom().is_some() && (sent_kind.is_empty() || sent_version.is_empty()) {
        let missing = if sent_kind.is_empty() { "kind" } else { "apiVersion" };
        return Err(StatusError::bad_request(format!(
            "Object '{}' is missing in '{value}'",
            capitalized(missing)
        )));
    }
    kind.set_type_meta(value);
    Ok(())
}

/// The error for a kind that does not exist in the version of the body.
fn unregistered(kind: &Kind, version: &str, name: &str) -> Option<StatusError> {
    if kind.custom().is_some() || version.is_empty() || name.is_empty() {
        return None;
    }
    let known = |one: &Arc<Kind>| one.api_version() == version && one.kind() == name;
    if kind.api_version() == version || kinds::built_in().iter().any(known) {
        return None;
    }
    let short = version.rsplit('/').next().unwrap_or_default();
    Some(StatusError::bad_request(format!(
        "{name} in version \"{short}\" cannot be handled as a {}: no kind \"{name}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\"",
        kind.kind()
    )))
}

/// The Go package of a group in the real server.
fn package(group: &str) -> &str {
    if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() }
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Checks types and unknown fields, prunes and sets defaults. Returns warnings for the client.
pub(super) fn normalize(kind: &Kind, value: &mut Value, options: &WriteOptions) -> ApiResult<Vec<String>> {
    let mut warnings = Vec::new();
    if let Some(schema) = kind.schema() {
        schema.check_types(value).map_err(|error| {
            let (version, name) = (kind.version(), kind.kind());
            StatusError::bad_request(format!(
                "{name} in version \"{version}\" cannot be handled as a {name}: {error}"
            ))
        })?;
        if options.validation != Validation::Ignore {
            let unknown: Vec<String> = schema
                .unknown_fields(value)
                .into_iter()
                .map(|field| format!("unknown field \"{field}\""))
                .collect();
            if options.validation == Validation::Strict && !unknown.is_empty() {
                let (name, version) = (kind.kind(), kind.version());
                return Err(StatusError::bad_request(format!(
                    "{name} in version \"{version}\" cannot be handled as a {name}: strict decoding error: {}",
                    unknown.join(", ")
                )));
            }
            warnings.extend(unknown);
        }
        schema.prune(value);
        schema.default(value);
    }
    (kind.row().default)(value);
    metadata::remove_empty(value);
    warnings.extend(kind.custom().into_iter().flat_map(|custom| custom.unenforced_rules.iter().cloned()));
    Ok(warnings)
}

/// Checks the types of a subresource's body, which is not an object of the parent's kind.
pub(crate) fn check_types(group: &str, kind: &str, value: &Value) -> ApiResult<()> {
    let Some(schema) = Schemas::builtin().find(group, "v1", kind) else { return Ok(()) };
    schema.check_types(value).map_err(|error| {
        StatusError::bad_request(format!("{kind} in version \"v1\" cannot be handled as a {kind}: {error}"))
    })
}

/// Validates an object; all errors make one StatusError.
pub(super) fn validate(kind: &Kind, value: &Value, old: Option<&Value>) -> ApiResult<()> {
    let mut causes = metadata::validate(kind, value);
    if let Some(custom) = kind.custom()
        && let Some(schema) = kind.schema()
    {
        causes.extend(match old {
            Some(old) => schema.validate_update(value, old),
            None => schema.validate(value),
        });
        let is_blocked = |cause: &FieldError| {
            use Reason::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
            matches!(cause.reason, NotSupported | Required | TooLong | TooMany | TypeInvalid)
        };
        if causes.iter().any(is_blocked) && !custom.rules.is_empty() {
            let why = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            causes.push(FieldError::invalid("<nil>", &Value::Null, why));
        } else {
            causes.extend(custom.rules.validate(value, old));
        }
    }
    causes.extend((kind.row().validate)(value, old));
    if causes.is_empty() {
        return Ok(());
    }
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    Err(StatusError::invalid(kind.internal_group(), kind.kind(), name, &causes))
}
