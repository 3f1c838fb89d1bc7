//! Requests on certificates: read, list, change, delete. The key of a certificate is its secret.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::Method;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};

use super::error::VaultFailure;
use super::objects::{self, CertificateVersion, Numbered, ObjectKind, VaultObject, VaultScope};
use super::{
    VaultRequest, VaultResponse, add_deletion, issuance, missing, page, pkcs12, policy, unsupported,
};
use crate::call_context::CallContext;
use crate::failure::Failure;

const KIND: ObjectKind = ObjectKind::Certificate;
const PEM_LINE_CHARS: usize = 64;

pub(super) fn handle(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    request: &VaultRequest<'_>,
    rest: &[&str],
    authorize: &dyn Fn(&str) -> Result<(), VaultFailure>,
) -> Result<VaultResponse, VaultFailure> {
    let body = &request.body;
    let action = match *request.method {
        Method::GET => "read",
        Method::DELETE if rest.len() == 1 => "delete",
        Method::POST if rest.last() == Some(&"create") => "create",
        Method::POST if rest.last() == Some(&"import") => "import",
        _ => "update",
    };
    authorize(action)?;
    match (request.method, rest) {
        (&Method::GET, []) => list(cx, vault, request),
        (&Method::GET, [name, "versions"]) => {
            let object = issuance::current(cx, vault, name)?;
            let shown = match &object {
                Some(object) => issuance::issued(cx, vault, &object.name)?
                    .iter()
                    .map(|it| properties(vault, &object.name, &it.version, true))
                    .collect::<Result<_, _>>()?,
                None => Vec::new(),
            };
            page(vault, request, shown)
        }
        (&Method::GET, [name, "pending"]) => issuance::read_operation(cx, vault, name),
        (&Method::PATCH, [name, "pending"]) => issuance::cancel(cx, vault, name, body),
        (&Method::DELETE, [name, "pending"]) => issuance::delete_operation(cx, vault, name),
        (&Method::POST, [name, "pending", "merge"]) => issuance::merge(cx, vault, name, body),
        (&Method::POST, [name, "create"]) => issuance::create(cx, vault, name, body),
        (&Method::POST, [name, "import"]) => issuance::import(cx, vault, name, body),
        (&Method::GET, [name, "policy"]) => {
            let object = issuance::current(cx, vault, name)?.ok_or_else(|| missing(KIND, name))?;
            Ok(VaultResponse::ok(shown_policy(vault, &object)))
        }
        (&Method::PATCH, [name, "policy"]) => {
            let mut object = issuance::current(cx, vault, name)?.ok_or_else(|| missing(KIND, name))?;
            object.policy = policy::patch(&object.policy, body, cx.now)?;
            objects::keep(cx, vault, KIND, &object)?;
            Ok(VaultResponse::ok(shown_policy(vault, &object)))
        }
        (&Method::GET, [name]) => {
            let object = issuance::current(cx, vault, name)?.ok_or_else(|| missing(KIND, name))?;
            Ok(VaultResponse::ok(newest(cx, vault, &object)?))
        }
        (&Method::GET, [name, version]) => {
            let (object, found) = version_of(cx, vault, name, Some(version))?;
            Ok(VaultResponse::ok(bundle(cx, vault, &object, &found.version)?))
        }
        (&Method::PATCH, [name, version @ ..]) if version.len() < 2 => {
            let (object, mut found) = version_of(cx, vault, name, version.first().copied())?;
            // Start and end are those of the certificate.
            let (not_before, expires) =
                (found.version.attributes.not_before, found.version.attributes.expires);
            found.version.attributes.update(cx, body);
            (found.version.attributes.not_before, found.version.attributes.expires) = (not_before, expires);
            let Numbered { number, version } = &found;
            objects::keep_version(cx, vault, KIND, name, *number, (&version.version, version))?;
            Ok(VaultResponse::ok(bundle(cx, vault, &object, version)?))
        }
        (&Method::DELETE, [name]) => {
            let mut object = issuance::current(cx, vault, name)?.ok_or_else(|| missing(KIND, name))?;
            issuance::end_operation(cx, vault, &mut object)?;
            object.deletion = Some(objects::deletion(cx, vault, &["delete certificate", name]));
            objects::keep(cx, vault, KIND, &object)?;
            Ok(VaultResponse::ok(shown_deleted(cx, vault, &object, true)?))
        }
        _ => Err(unsupported(request)),
    }
}

/// A version of a certificate, or the newest that is issued.
fn version_of(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    name: &str,
    version: Option<&str>,
) -> Result<(VaultObject, Numbered<CertificateVersion>), VaultFailure> {
    let object = issuance::current(cx, vault, name)?.ok_or_else(|| missing(KIND, name))?;
    let issued = issuance::issued(cx, vault, &object.name)?;
    let found = match version {
        Some(version) => issued.into_iter().find(|it| it.version.version.eq_ignore_ascii_case(version)),
        None => issued.into_iter().next_back(),
    };
    let found = found.ok_or_else(|| missing(KIND, name))?;
    Ok((object, found))
}

fn list(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    request: &VaultRequest<'_>,
) -> Result<VaultResponse, VaultFailure> {
    let with_pending = request.parameter("includePending").is_some_and(|it| it.eq_ignore_ascii_case("true"));
    let mut shown = Vec::new();
    for object in objects::all(cx, vault, KIND, false)? {
        let Some(object) = issuance::current(cx, vault, &object.name)? else { continue };
        match issuance::issued(cx, vault, &object.name)?.last() {
            Some(newest) => shown.push(properties(vault, &object.name, &newest.version, false)?),
            None if with_pending => shown.push(pending_bundle(vault, &object)),
            None => {}
        }
    }
    page(vault, request, shown)
}

/// A certificate in DER.
fn certificate(version: &CertificateVersion) -> Result<CertificateDer<'static>, Failure> {
    CertificateDer::from_pem_slice(version.chain_pem.as_bytes())
        .map_err(|error| Failure::Broken(format!("a certificate of a vault cannot be parsed: {error}")))
}

fn properties(
    vault: &VaultScope,
    name: &str,
    version: &CertificateVersion,
    with_version: bool,
) -> Result<Value, Failure> {
    let end = if with_version { format!("/{}", version.version) } else { String::new() };
    Ok(json!({
        "id": format!("{}/certificates/{name}{end}", vault.url),
        "x5t": URL_SAFE_NO_PAD.encode(Sha1::digest(certificate(version)?)),
        "attributes": version.attributes.shown(vault),
        "tags": version.attributes.tags,
    }))
}

fn shown_policy(vault: &VaultScope, object: &VaultObject) -> Value {
    let mut shown = object.policy.clone();
    shown["id"] = json!(format!("{}/certificates/{}/policy", vault.url, object.name));
    shown
}

/// An issued version with its certificate and the policy.
pub(super) fn bundle(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    object: &VaultObject,
    version: &CertificateVersion,
) -> Result<Value, VaultFailure> {
    let (name, number) = (&object.name, &version.version);
    let mut shown = properties(vault, name, version, true)?;
    shown["kid"] = json!(format!("{}/keys/{name}/{number}", vault.url));
    shown["sid"] = json!(format!("{}/secrets/{name}/{number}", vault.url));
    shown["cer"] = json!(STANDARD.encode(certificate(version)?));
    shown["policy"] = shown_policy(vault, object);
    if object.operation.as_ref().is_some_and(|it| it.is_in_progress(cx.now)) {
        shown["pending"] = json!({ "id": issuance::pending_id(vault, name) });
    }
    Ok(shown)
}

/// A certificate of which no version is issued: it is disabled and has no content.
fn pending_bundle(vault: &VaultScope, object: &VaultObject) -> Value {
    let name = &object.name;
    let policy = shown_policy(vault, object);
    let (created, updated) = (&policy["attributes"]["created"], &policy["attributes"]["updated"]);
    json!({
        "id": format!("{}/certificates/{name}", vault.url),
        "attributes": { "enabled": false, "created": created, "updated": updated },
        "pending": { "id": issuance::pending_id(vault, name) },
        "policy": policy,
    })
}

/// The newest version.
pub(super) fn newest(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    object: &VaultObject,
) -> Result<Value, VaultFailure> {
    match issuance::issued(cx, vault, &object.name)?.last() {
        Some(found) => bundle(cx, vault, object, &found.version),
        None => Ok(pending_bundle(vault, object)),
    }
}

/// A deleted certificate; the list of them leaves out policy and content.
pub(super) fn shown_deleted(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    object: &VaultObject,
    full: bool,
) -> Result<Value, VaultFailure> {
    let mut shown = newest(cx, vault, object)?;
    if let (false, Value::Object(members)) = (full, &mut shown) {
        for member in ["cer", "policy", "kid", "sid"] {
            members.remove(member);
        }
    }
    add_deletion(vault, KIND, object, &mut shown);
    Ok(shown)
}

/// Key and chain of a version in the form that its policy asked for: PEM, or PKCS#12 in base64.
pub(super) fn secret_value(version: &CertificateVersion) -> Result<String, Failure> {
    let key = version.exportable.then_some(version.key_pem.as_str());
    match version.content_type.as_str() {
        policy::PKCS12 => pkcs12::archive(key, &version.chain_pem).map(|it| STANDARD.encode(it)),
        _ => Ok(format!("{}{}", key.unwrap_or_default(), version.chain_pem)),
    }
}

/// DER as PEM.
pub(super) fn to_pem(label: &str, der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in encoded.as_bytes().chunks(PEM_LINE_CHARS) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem
}
