//! Rules of the resource: id, name, type, location, tags, state.

use super::super::field_error::shown;
use super::super::{CLUSTER_TYPE, FieldError, FieldErrorCode};
use super::{Draft, DraftProperties, ValidationContext, given};

pub(super) fn id(draft: &Draft<'_>, context: &ValidationContext<'_>) -> Result<(), FieldError> {
    same(draft.id, context.path, FieldErrorCode::MismatchingResourceID, "id")
}

pub(super) fn name(draft: &Draft<'_>, context: &ValidationContext<'_>) -> Result<(), FieldError> {
    same(draft.name, context.segment(8), FieldErrorCode::MismatchingResourceName, "name")
}

pub(super) fn kind(draft: &Draft<'_>, _: &ValidationContext<'_>) -> Result<(), FieldError> {
    same(draft.kind, CLUSTER_TYPE, FieldErrorCode::MismatchingResourceType, "type")
}

fn same(sent: Option<&str>, expected: &str, code: FieldErrorCode, target: &str) -> Result<(), FieldError> {
    match given(sent) {
        Some(sent) if !sent.eq_ignore_ascii_case(expected) => {
            let message = format!(
                "The provided resource {target} {} did not match the {target} in the URL, {}.",
                shown(sent),
                shown(expected)
            );
            Err(FieldError::new(code, target, message))
        }
        _ => Ok(()),
    }
}

pub(super) fn location(draft: &Draft<'_>, context: &ValidationContext<'_>) -> Result<(), FieldError> {
    let location = given(draft.location).ok_or_else(|| FieldError::required("location"))?;
    if context.locations.iter().any(|known| known.eq_ignore_ascii_case(location)) {
        return Ok(());
    }
    let message = format!(
        "The provided location {} is invalid: it must be one of {}.",
        shown(location),
        context.locations.join(", ")
    );
    Err(FieldError::parameter("location", message))
}

/// Maximum size of all tags. The contract allows 50 of at most 768 characters, which is less; nothing else of a cluster has a length of
/// the customer's choice, so that it can always be stored, with its record and as a copy in its operation.
const TAGS_BYTES_MAX: usize = 256 * 1024;

pub(super) fn tags(draft: &Draft<'_>, _: &ValidationContext<'_>) -> Result<(), FieldError> {
    let Some(tags) = draft.tags else { return Ok(()) };
    // The stored size: some characters take six bytes in JSON.
    match serde_json::to_string(tags).map_or(usize::MAX, |text| text.len()) {
        0..=TAGS_BYTES_MAX => Ok(()),
        found => {
            let message =
                format!("The tags take {found} bytes of JSON in all; at most {TAGS_BYTES_MAX} are accepted.");
            Err(FieldError::parameter("tags", message))
        }
    }
}

const STATES: [&str; 7] =
    ["Creating", "Updating", "AdminUpdating", "Deleting", "Succeeded", "Failed", "Canceled"];

pub(super) fn provisioning_state(
    _: &Draft<'_>,
    properties: &DraftProperties<'_>,
    _: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    match given(properties.provisioning_state) {
        Some(state) if !STATES.contains(&state) => Err(FieldError::parameter(
            "properties.provisioningState",
            format!("The provided provisioning state {} is invalid.", shown(state)),
        )),
        _ => Ok(()),
    }
}
