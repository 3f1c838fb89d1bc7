//! Headers that the resource manager adds to a request.

use api::doc::SystemData;
use api::rest::SystemDataForm;
use http::HeaderName;
use serde_json::{Map, Value};

use crate::wire::{ApiError, ApiRequest};

const SYSTEM_DATA: HeaderName = HeaderName::from_static("x-ms-arm-resource-system-data");
const IDENTITY_URL: HeaderName = HeaderName::from_static("x-ms-identity-url");
const HOME_TENANT: HeaderName = HeaderName::from_static("x-ms-home-tenant-id");

/// Longest accepted header.
const HEADER_BYTES_MAX: usize = 8 * 1024;

fn text<'a>(request: &'a ApiRequest, name: &HeaderName) -> Option<&'a str> {
    let value = request.headers().get(name)?.to_str().ok()?.trim();
    Some(value).filter(|it| !it.is_empty() && it.len() <= HEADER_BYTES_MAX)
}

/// The system data of a request; empty when the header is absent or invalid.
fn parse_system_data(request: &ApiRequest) -> SystemDataForm {
    let Some(value) = request.headers().get(&SYSTEM_DATA) else { return SystemDataForm::default() };
    // Parsed as an object first: serde would also accept an array of the members.
    let read = serde_json::from_slice::<Map<String, Value>>(value.as_bytes());
    read.and_then(|it| serde_json::from_value(Value::Object(it))).unwrap_or_else(|_| {
        tracing::warn!("Ignoring an invalid header X-Ms-Arm-Resource-System-Data");
        SystemDataForm::default()
    })
}

/// Updates the stored system data with the values of the header that are not empty.
pub(super) fn update_system_data(request: &ApiRequest, stored: &mut SystemData) {
    let sent = parse_system_data(request);
    let update = |field: &mut Option<String>, value: Option<String>| {
        if let Some(value) = value.filter(|it| !it.is_empty()) {
            *field = Some(value);
        }
    };
    update(&mut stored.created_by, sent.created_by);
    update(&mut stored.created_by_type, sent.created_by_type);
    update(&mut stored.last_modified_by, sent.last_modified_by);
    update(&mut stored.last_modified_by_type, sent.last_modified_by_type);
    stored.created_at = sent.created_at.or(stored.created_at);
    stored.last_modified_at = sent.last_modified_at.or(stored.last_modified_at);
}

/// The URL for credentials of a cluster's managed identity, and its tenant.
pub(super) struct IdentityHeaders<'a> {
    pub(super) url: Option<&'a str>,
    pub(super) tenant: Option<&'a str>,
}

impl<'a> IdentityHeaders<'a> {
    pub(super) fn from_request(request: &'a ApiRequest) -> IdentityHeaders<'a> {
        IdentityHeaders { url: text(request, &IDENTITY_URL), tenant: text(request, &HOME_TENANT) }
    }

    /// Checks that both headers are present.
    pub(super) fn required(&self) -> Result<(), ApiError> {
        if self.url.is_some() && self.tenant.is_some() {
            return Ok(());
        }
        let message =
            "A cluster with managed identities needs the headers X-Ms-Identity-Url and X-Ms-Home-Tenant-Id.";
        Err(ApiError::invalid_parameter("identity", message))
    }
}
