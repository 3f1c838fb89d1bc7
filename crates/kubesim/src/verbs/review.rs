//! The part of a review that is like a creation: its body is checked and the fields that were sent get an owner.

use jiff::Timestamp;
use serde_json::Value;

use super::{Target, WriteOptions, admit, metadata};
use crate::apply;
use crate::schema::{Schema, Schemas};
use crate::status::{ApiResult, StatusError};

/// The review in a request's body, without its status, and warnings.
pub(crate) fn prepare_review(
    target: &Target,
    mut value: Value,
    options: &WriteOptions,
    now: Timestamp,
) -> ApiResult<(Value, Vec<String>)> {
    let kind = &target.kind;
    admit::expect_kind(kind, &mut value)?;
    let sent = metadata::fields(&mut value)?;
    metadata::check_namespace(target, sent.get("namespace").and_then(Value::as_str).unwrap_or_default())?;
    if kind.is_namespaced() {
        sent.insert("namespace".into(), target.namespace.clone().into());
    }
    let warnings = admit::normalize(kind, &mut value, options)?;
    finish(&mut value, options, None, kind.schema(), now)?;
    Ok((value, warnings))
}

/// The TokenRequest in a request's body, without its status. Its kind may be missing.
pub(crate) fn prepare_token_request(
    mut value: Value,
    options: &WriteOptions,
    now: Timestamp,
) -> ApiResult<Value> {
    const VERSION: &str = "authentication.k8s.io/v1";
    let schema = Schemas::builtin().find("authentication.k8s.io", "v1", "TokenRequest");
    super::check_types("authentication.k8s.io", "TokenRequest", &value)?;
    let Some(fields) = value.as_object_mut() else {
        return Err(StatusError::bad_request("the body of the request must be a TokenRequest"));
    };
    for (field, expected) in [("apiVersion", VERSION), ("kind", "TokenRequest")] {
        let sent = fields.get(field).and_then(Value::as_str).unwrap_or_default();
        if !sent.is_empty() && sent != expected {
            let message =
                format!("the {field} in the data ({sent}) does not match the expected {field} ({expected})");
            return Err(StatusError::bad_request(message));
        }
        fields.insert(field.to_owned(), expected.into());
    }
    if let Some(schema) = &schema {
        schema.prune(&mut value);
        schema.default(&mut value);
    }
    finish(&mut value, options, Some("token"), schema.as_ref(), now)?;
    Ok(value)
}

fn finish(
    value: &mut Value,
    options: &WriteOptions,
    subresource: Option<&str>,
    schema: Option<&Schema>,
    now: Timestamp,
) -> ApiResult<()> {
    metadata::fields(value)?;
    value.as_object_mut().map(|fields| fields.remove("status"));
    apply::track_update(None, value, &options.manager, subresource, schema, now);
    metadata::remove_empty(value);
    Ok(())
}
