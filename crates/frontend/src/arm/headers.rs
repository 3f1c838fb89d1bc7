//! What the resource manager tells us of a request in its headers.

use api::doc::SystemData;
use api::rest::SystemDataForm;
use http::HeaderName;
use serde_json::{Map, Value};

use crate::wire::{ApiError, ApiRequest};

const SYSTEM_DATA: HeaderName = HeaderName::from_static("x-ms-arm-resource-system-data");
const IDENTITY_URL: HeaderName = HeaderName::from_static("x-ms-identity-url");
const HOME_TENANT: HeaderName = HeaderName::from_static("x-ms-home-tenant-id");

/// More is no honest header.
const HEADER_BYTES_MAX: usize = 8 * 1024;

fn text<'a>(request: &'a ApiRequest, name: &HeaderName) -> Option<&'a str> {
    let value = request.headers().get(name)?.to_str().ok()?.trim();
    Some(value).filter(|it| !it.is_empty() && it.len() <= HEADER_BYTES_MAX)
}

/// Who creates and changes; nothing when the header is absent or not as it must be.
fn told(request: &ApiRequest) -> SystemDataForm {
    let Some(value) = request.headers().get(&SYSTEM_DATA) else { return SystemDataForm::default() };
    // By way of an object: serde would take a list as well, member by member.
    let read = serde_json::from_slice::<Map<String, Value>>(value.as_bytes());
    read.and_then(|it| serde_json::from_value(Value::Object(it))).unwrap_or_else(|_| {
        tracing::warn!("The header X-Ms-Arm-Resource-System-Data is not as it must be and was passed over");
        SystemDataForm::default()
    })
}

/// Lays what the header says over what is known: only what it says, never emptiness.
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

/// Where the credentials of a cluster's managed identity are fetched, and its tenant.
pub(super) struct IdentityHeaders<'a> {
    pub(super) url: Option<&'a str>,
    pub(super) tenant: Option<&'a str>,
}

impl<'a> IdentityHeaders<'a> {
    pub(super) fn of(request: &'a ApiRequest) -> IdentityHeaders<'a> {
        IdentityHeaders { url: text(request, &IDENTITY_URL), tenant: text(request, &HOME_TENANT) }
    }

    /// Both, or the refusal of a PUT without them.
    pub(super) fn required(&self) -> Result<(), ApiError> {
        if self.url.is_some() && self.tenant.is_some() {
            return Ok(());
        }
        let message =
            "A cluster with managed identities needs the headers X-Ms-Identity-Url and X-Ms-Home-Tenant-Id.";
        Err(ApiError::invalid_parameter("identity", message))
    }
}
