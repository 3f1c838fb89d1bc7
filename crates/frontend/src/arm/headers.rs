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
fn told(request: &ApiRequest) -> SystemDataForm {
    let Some(value) = request.headers().get(&SYSTEM_DATA) else { return SystemDataForm::default() };
    // Parsed as an object first: serde would also accept an array of the members.
    let read = serde_json::from_slice::<Map<String, Value>>(value.as_bytes());
    read.and_then(|it| serde_json::from_value(Value::Object(it))).unwrap_or_else(|_| {
        tracing::warn!("Ignoring an invalid header X-Ms-Arm-Resource-System-Data");
        SystemDataForm::default()
    })
}

/// Updates the stored system data with the values of the header that are not empty.
pub(super) fn lay_system_data(request: &ApiRequest, known: &mut SystemData) {
    let told = told(request);
    let word = |field: &mut Option<String>, said: Option<String>| {
        if let Some(said) = said.filter(|it| !it.is_empty()) {
            *field = Some(said);
        }
    };
    word(&mut known.created_by, told.created_by);
    word(&mut known.created_by_type, told.created_by_type);
    word(&mut known.last_modified_by, told.last_modified_by);
    word(&mut known.last_modified_by_type, told.last_modified_by_type);
    known.created_at = told.created_at.or(known.created_at);
    known.last_modified_at = told.last_modified_at.or(known.last_modified_at);
}

/// The URL for credentials of a cluster's managed identity, and its tenant.
pub(super) struct IdentityHeaders<'a> {
    pub(super) url: Option<&'a str>,
    pub(super) tenant: Option<&'a str>,
}

impl<'a> IdentityHeaders<'a> {
    pub(super) fn of(request: &'a ApiRequest) -> IdentityHeaders<'a> {
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
