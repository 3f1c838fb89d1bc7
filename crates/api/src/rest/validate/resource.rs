//! Rules of the resource: id, name, type, location, tags, state.

use super::super::wrong::shown;
use super::super::{CLUSTER_TYPE, Wrong, WrongCode};
use super::{Draft, DraftProperties, Ground, given};

pub(super) fn id(draft: &Draft<'_>, ground: &Ground<'_>) -> Result<(), Wrong> {
    same(draft.id, ground.path, WrongCode::MismatchingResourceID, "id")
}

pub(super) fn name(draft: &Draft<'_>, ground: &Ground<'_>) -> Result<(), Wrong> {
    same(draft.name, ground.segment(8), WrongCode::MismatchingResourceName, "name")
}

pub(super) fn kind(draft: &Draft<'_>, _: &Ground<'_>) -> Result<(), Wrong> {
    same(draft.kind, CLUSTER_TYPE, WrongCode::MismatchingResourceType, "type")
}

fn same(sent: Option<&str>, expected: &str, code: WrongCode, target: &str) -> Result<(), Wrong> {
    match given(sent) {
        Some(sent) if !sent.eq_ignore_ascii_case(expected) => {
            let message = format!(
                "The provided resource {target} {} did not match the {target} in the URL, {}.",
                shown(sent),
                shown(expected)
            );
            Err(Wrong::new(code, target, message))
        }
        _ => Ok(()),
    }
}

pub(super) fn location(draft: &Draft<'_>, ground: &Ground<'_>) -> Result<(), Wrong> {
    let location = given(draft.location).ok_or_else(|| Wrong::required("location"))?;
    if ground.locations.iter().any(|known| known.eq_ignore_ascii_case(location)) {
        return Ok(());
    }
    let message = format!(
        "The provided location {} is invalid: it must be one of {}.",
        shown(location),
        ground.locations.join(", ")
    );
    Err(Wrong::parameter("location", message))
}

/// Maximum size of all tags. The contract allows 50 of at most 768 characters, which is less; nothing else of a cluster has a length of
/// the customer's choice, so that it can always be stored, with its record and as a copy in its operation.
const TAGS_BYTES_MAX: usize = 256 * 1024;

pub(super) fn tags(draft: &Draft<'_>, _: &Ground<'_>) -> Result<(), Wrong> {
    let Some(tags) = draft.tags else { return Ok(()) };
    // The stored size: some characters take six bytes in JSON.
    match serde_json::to_string(tags).map_or(usize::MAX, |text| text.len()) {
        0..=TAGS_BYTES_MAX => Ok(()),
        found => {
            let message =
                format!("The tags take {found} bytes of JSON in all; at most {TAGS_BYTES_MAX} are accepted.");
            Err(Wrong::parameter("tags", message))
        }
    }
}

const STATES: [&str; 7] =
    ["Creating", "Updating", "AdminUpdating", "Deleting", "Succeeded", "Failed", "Canceled"];

pub(super) fn provisioning_state(
    _: &Draft<'_>,
    properties: &DraftProperties<'_>,
    _: &Ground<'_>,
) -> Result<(), Wrong> {
    match given(properties.provisioning_state) {
        Some(state) if !STATES.contains(&state) => Err(Wrong::parameter(
            "properties.provisioningState",
            format!("The provided provisioning state {} is invalid.", shown(state)),
        )),
        _ => Ok(()),
    }
}
