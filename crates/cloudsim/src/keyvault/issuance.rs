//! Versions of certificates and the operations that make them: created, imported, merged, and renewed by the vault itself.
//!
//! A version is issued when it is requested and shown when its operation completes. Renewals have no timer: a read issues the versions
//! that fell due since, each as of its time.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cloud::ResourceFailure;
use http::StatusCode;
use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::error::{VaultError, VaultFailure};
use super::objects::{self, Attributes, CertificateVersion, Numbered, ObjectKind, VaultObject, VaultScope};
use super::{VaultResponse, certificates, check_not_deleted, issue, missing, policy};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::seed;

const KIND: ObjectKind = ObjectKind::Certificate;
/// The usual time of an issuer.
const ISSUING: Duration = Duration::from_secs(20);
/// Renewals that one read makes up for; the next read continues.
const RENEWALS_MAX: usize = 100;

/// The last operation of a certificate.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CertificateOperation {
    request_id: String,
    issuer: String,
    /// The signing request in DER and base64.
    csr: String,
    /// The version that it makes.
    version: String,
    /// When it completes.
    ready: Timestamp,
    #[serde(default)]
    cancelled: bool,
    /// The error that it ends in.
    #[serde(default)]
    failure: Option<ResourceFailure>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OperationStatus {
    InProgress,
    Completed,
    Cancelled,
    Failed,
}

impl CertificateOperation {
    fn status(&self, now: Timestamp) -> OperationStatus {
        match (&self.failure, self.cancelled) {
            (_, true) => OperationStatus::Cancelled,
            _ if now < self.ready => OperationStatus::InProgress,
            (Some(_), _) => OperationStatus::Failed,
            (None, _) => OperationStatus::Completed,
        }
    }

    pub(super) fn is_in_progress(&self, now: Timestamp) -> bool {
        self.status(now) == OperationStatus::InProgress
    }

    fn shown(&self, now: Timestamp, vault: &VaultScope, name: &str) -> Value {
        let mut shown = json!({
            "id": pending_id(vault, name),
            "issuer": { "name": self.issuer },
            "csr": self.csr,
            "cancellation_requested": self.cancelled,
            "request_id": self.request_id,
        });
        let status = match self.status(now) {
            OperationStatus::InProgress => {
                shown["status_details"] =
                    json!("Pending certificate created. Certificate request is in progress.");
                "inProgress"
            }
            OperationStatus::Completed => {
                shown["target"] = json!(format!("{}/certificates/{name}", vault.url));
                "completed"
            }
            OperationStatus::Cancelled => "cancelled",
            OperationStatus::Failed => {
                if let Some(failure) = &self.failure {
                    shown["error"] = json!({ "code": failure.code, "message": failure.message });
                }
                "failed"
            }
        };
        shown["status"] = json!(status);
        shown
    }
}

/// The id of the pending operation of a certificate.
pub(super) fn pending_id(vault: &VaultScope, name: &str) -> String {
    format!("{}/certificates/{name}/pending", vault.url)
}

/// The versions that are issued by now, oldest first.
pub(super) fn issued(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    name: &str,
) -> Result<Vec<Numbered<CertificateVersion>>, Failure> {
    let found: Vec<Numbered<CertificateVersion>> = objects::versions(cx, vault, KIND, name)?;
    Ok(found.into_iter().filter(|it| it.version.ready <= cx.now).collect())
}

/// A certificate that is not deleted, with the versions that were due since the last read.
pub(super) fn current(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    name: &str,
) -> Result<Option<VaultObject>, VaultFailure> {
    let Some(mut object) = objects::present(cx, vault, KIND, name)? else { return Ok(None) };
    for _ in 0..RENEWALS_MAX {
        let Some((due, tags)) = renewal(cx, vault, &object)?.filter(|(due, _)| *due <= cx.now) else { break };
        issue_version(cx, vault, &mut object, due, &json!({ "tags": tags }))?;
    }
    Ok(Some(object))
}

/// When the newest version is replaced by itself, and its tags.
fn renewal(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    object: &VaultObject,
) -> Result<Option<(Timestamp, Value)>, Failure> {
    if object.operation.as_ref().is_some_and(|it| it.is_in_progress(cx.now)) {
        return Ok(None);
    }
    let versions: Vec<Numbered<CertificateVersion>> = objects::versions(cx, vault, KIND, &object.name)?;
    let Some(Numbered { version, .. }) = versions.into_iter().next_back() else { return Ok(None) };
    let time = |seconds: Option<i64>| seconds.and_then(|it| Timestamp::from_second(it).ok());
    let (from, to) = (time(version.attributes.not_before), time(version.attributes.expires));
    let due = from.zip(to).and_then(|(from, to)| policy::renewal(&object.policy, from, to));
    Ok(due.map(|due| (due, json!(version.attributes.tags))))
}

/// Starts the issuing of a version, as of a time, and keeps the certificate with its operation.
fn issue_version(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    object: &mut VaultObject,
    asked: Timestamp,
    body: &Value,
) -> Result<(), VaultFailure> {
    let asking = CallContext { now: asked, effects: cx.effects.clone(), ..*cx };
    let number = objects::next_number(cx)?;
    let words = ["certificate", &vault.name, &number.to_string()];
    let version = seed::uuid(cx.seed, &words).simple().to_string();
    let mut order = policy::order(&object.policy, asked)?;
    if policy::reuses_key(&object.policy) {
        let last: Vec<Numbered<CertificateVersion>> = objects::versions(cx, vault, KIND, &object.name)?;
        order.key_pem = last.into_iter().next_back().map(|it| it.version.key_pem);
    }
    let issued = issue::issue(&asking, &order)?;
    let never_ends = cx.effects.operation_hangs || policy::is_merged(&object.policy);
    let ready = if never_ends { Timestamp::MAX } else { asking.done_at(ISSUING, &words) };
    object.operation = Some(CertificateOperation {
        request_id: seed::uuid(cx.seed, &["certificate operation", &number.to_string()]).to_string(),
        issuer: policy::issuer(&object.policy).to_owned(),
        csr: STANDARD.encode(&issued.request),
        version: version.clone(),
        ready,
        cancelled: false,
        failure: cx.effects.fails_later.clone(),
    });
    objects::keep(cx, vault, KIND, object)?;
    if cx.effects.fails_later.is_some() {
        return Ok(());
    }
    let mut attributes = Attributes::new(&asking, body);
    attributes.not_before = Some(issued.not_before.as_second());
    attributes.expires = Some(issued.not_after.as_second());
    let version = CertificateVersion {
        version,
        ready,
        chain_pem: issued.chain_pem,
        key_pem: issued.key_pem,
        exportable: policy::is_exportable(&object.policy),
        content_type: policy::content_type(&object.policy).to_owned(),
        attributes,
    };
    objects::keep_version(cx, vault, KIND, &object.name, number, (&version.version, &version))?;
    Ok(())
}

/// The certificate of a name that a request may give a new version; new when there is none.
fn writable(cx: &CallContext<'_>, vault: &VaultScope, name: &str) -> Result<VaultObject, VaultFailure> {
    check_not_deleted(cx, vault, KIND, name)?;
    check_not_deleted(cx, vault, ObjectKind::Secret, name)?;
    if objects::present(cx, vault, ObjectKind::Secret, name)?.is_some() {
        let message = format!("The name {name} belongs to a secret, so that no certificate can have it.");
        return Err(VaultError::conflict(message).into());
    }
    let object = current(cx, vault, name)?.unwrap_or_else(|| VaultObject::new(name));
    match object.operation.as_ref().is_some_and(|it| it.is_in_progress(cx.now)) {
        true => {
            let message = "A new key vault certificate can not be created or imported while a pending key vault certificate's \
                           status is inProgress.";
            Err(VaultError::conflict(message).into())
        }
        false => Ok(object),
    }
}

/// Creates a certificate, or a further version of it.
pub(super) fn create(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    name: &str,
    body: &Value,
) -> Result<VaultResponse, VaultFailure> {
    let mut object = writable(cx, vault, name)?;
    let has_policy = !object.policy.is_null() && body["policy"].is_null();
    if !has_policy {
        object.policy = policy::complete(&body["policy"], cx.now)?;
    }
    issue_version(cx, vault, &mut object, cx.now, body)?;
    // As it starts, however soon it completes.
    let started = object.operation.as_ref().map(|it| it.shown(Timestamp::MIN, vault, &object.name));
    Ok(VaultResponse { status: StatusCode::ACCEPTED, body: started })
}

fn operation<'a>(
    object: &'a mut VaultObject,
    name: &str,
) -> Result<&'a mut CertificateOperation, VaultFailure> {
    object.operation.as_mut().ok_or_else(|| no_operation(name))
}

fn no_operation(name: &str) -> VaultFailure {
    let message = format!("Pending certificate not found: {name}.");
    VaultError::new(StatusCode::NOT_FOUND, "PendingCertificateNotFound", message).into()
}

/// The operation of a certificate.
pub(super) fn read_operation(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    name: &str,
) -> Result<VaultResponse, VaultFailure> {
    let mut object = current(cx, vault, name)?.ok_or_else(|| no_operation(name))?;
    let shown = operation(&mut object, name)?.shown(cx.now, vault, name);
    Ok(VaultResponse::ok(shown))
}

/// Cancels the operation of a certificate.
pub(super) fn cancel(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    name: &str,
    body: &Value,
) -> Result<VaultResponse, VaultFailure> {
    let mut object = current(cx, vault, name)?.ok_or_else(|| no_operation(name))?;
    let pending = operation(&mut object, name)?;
    if body["cancellation_requested"] != true {
        return Err(VaultError::bad_parameter("Property cancellation_requested must be true.").into());
    }
    if !pending.is_in_progress(cx.now) {
        return Err(VaultError::conflict("The certificate operation is not in progress.").into());
    }
    pending.cancelled = true;
    let (shown, version) = (pending.shown(cx.now, vault, name), pending.version.clone());
    objects::remove_version(cx, vault, KIND, name, &version)?;
    objects::keep(cx, vault, KIND, &object)?;
    Ok(VaultResponse::ok(shown))
}

/// Deletes the operation of a certificate with the version that it was to make. A certificate without versions goes with it.
pub(super) fn delete_operation(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    name: &str,
) -> Result<VaultResponse, VaultFailure> {
    let mut object = current(cx, vault, name)?.ok_or_else(|| no_operation(name))?;
    let pending = operation(&mut object, name)?;
    let shown = pending.shown(cx.now, vault, name);
    end_operation(cx, vault, &mut object)?;
    match objects::versions::<CertificateVersion>(cx, vault, KIND, name)?.is_empty() {
        true => objects::purge(cx, vault, KIND, name)?,
        false => objects::keep(cx, vault, KIND, &object)?,
    }
    Ok(VaultResponse::ok(shown))
}

/// Removes the operation of a certificate, and its version unless it is issued.
pub(super) fn end_operation(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    object: &mut VaultObject,
) -> Result<(), Failure> {
    match object.operation.take() {
        Some(it) if it.is_in_progress(cx.now) => {
            objects::remove_version(cx, vault, KIND, &object.name, &it.version)
        }
        _ => Ok(()),
    }
}

/// Completes the operation of a certificate whose issuer the vault does not know, with the certificate that was signed elsewhere.
pub(super) fn merge(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    name: &str,
    body: &Value,
) -> Result<VaultResponse, VaultFailure> {
    let mut object = current(cx, vault, name)?.ok_or_else(|| missing(KIND, name))?;
    let pending = operation(&mut object, name)?;
    if !pending.is_in_progress(cx.now) {
        return Err(VaultError::conflict("The certificate operation is not in progress.").into());
    }
    pending.ready = cx.now;
    let wanted = pending.version.clone();
    let versions: Vec<Numbered<CertificateVersion>> = objects::versions(cx, vault, KIND, name)?;
    let found = versions.into_iter().find(|it| it.version.version == wanted);
    let Numbered { number, mut version } = found.ok_or_else(|| missing(KIND, name))?;
    let encoded = body["x5c"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let chain: Option<Vec<Vec<u8>>> = encoded.map(|it| STANDARD.decode(it).ok()).collect();
    let chain = chain.unwrap_or_default();
    let validity = validity(chain.first().map(Vec::as_slice), &version.key_pem)?;
    version.chain_pem = chain.iter().map(|der| certificates::to_pem("CERTIFICATE", der)).collect();
    version.ready = cx.now;
    version.attributes.update(cx, body);
    (version.attributes.not_before, version.attributes.expires) = (Some(validity.0), Some(validity.1));
    objects::keep_version(cx, vault, KIND, name, number, (&version.version, &version))?;
    objects::keep(cx, vault, KIND, &object)?;
    let shown = certificates::bundle(cx, vault, &object, &version)?;
    Ok(VaultResponse { status: StatusCode::CREATED, body: Some(shown) })
}

/// Start and end of a certificate whose key is the given one.
fn validity(certificate: Option<&[u8]>, key_pem: &str) -> Result<(i64, i64), VaultFailure> {
    let rejected = |why: &str| VaultFailure::from(VaultError::bad_parameter(why));
    let parsed = certificate.and_then(|it| X509Certificate::from_der(it).ok());
    let Some((_, parsed)) = parsed else { return Err(rejected("The certificate cannot be parsed.")) };
    let key = KeyPair::from_pem(key_pem).map_err(|_| rejected("The private key cannot be parsed."))?;
    if parsed.public_key().raw != key.subject_public_key_info() {
        return Err(rejected("The public key of the certificate does not match the private key."));
    }
    Ok((parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp()))
}

/// Imports a version in PEM: a key in PKCS#8 and its chain.
pub(super) fn import(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    name: &str,
    body: &Value,
) -> Result<VaultResponse, VaultFailure> {
    let rejected = |why: &str| VaultFailure::from(VaultError::bad_parameter(why));
    let mut object = writable(cx, vault, name)?;
    let value = body["value"].as_str().unwrap_or_default();
    // Some SDKs encode the text in base64, as they do with PKCS#12.
    let decoded = STANDARD.decode(value).ok().and_then(|it| String::from_utf8(it).ok());
    let value = decoded.as_deref().unwrap_or(value);
    if !value.contains("-----BEGIN ") {
        return Err(rejected("The emulator imports certificates in PEM; PKCS#12 is not supported."));
    }
    let key = value.find("-----BEGIN PRIVATE KEY-----").and_then(|start| {
        Some(&value[start..start + value[start..].find("-----END PRIVATE KEY-----")? + 25])
    });
    let Some(key) = key else { return Err(rejected("The value holds no private key in PKCS#8.")) };
    let chain: Vec<CertificateDer<'_>> =
        CertificateDer::pem_slice_iter(value.as_bytes()).filter_map(Result::ok).collect();
    let (not_before, not_after) = validity(chain.first().map(AsRef::as_ref), key)?;
    let subject = chain.first().and_then(|it| X509Certificate::from_der(it).ok());
    let subject = subject.map(|(_, it)| it.subject().to_string()).unwrap_or_default();
    let mut sent = json!({
        "issuer": { "name": "Unknown" },
        "secret_props": { "contentType": policy::PEM },
        "x509_props": { "subject": subject },
    });
    for (member, value) in body["policy"].as_object().into_iter().flatten().filter(|(_, it)| !it.is_null()) {
        sent[member] = value.clone();
    }
    if sent["x509_props"]["subject"].is_null() {
        sent["x509_props"]["subject"] = json!(subject);
    }
    object.policy = policy::complete(&sent, cx.now)?;
    object.operation = None;
    objects::keep(cx, vault, KIND, &object)?;
    let number = objects::next_number(cx)?;
    let mut attributes = Attributes::new(cx, body);
    (attributes.not_before, attributes.expires) = (Some(not_before), Some(not_after));
    let version = CertificateVersion {
        version: seed::uuid(cx.seed, &["certificate", &vault.name, &number.to_string()]).simple().to_string(),
        ready: cx.now,
        chain_pem: chain.iter().map(|der| certificates::to_pem("CERTIFICATE", der)).collect(),
        key_pem: format!("{key}\n"),
        exportable: policy::is_exportable(&object.policy),
        content_type: policy::content_type(&object.policy).to_owned(),
        attributes,
    };
    objects::keep_version(cx, vault, KIND, name, number, (&version.version, &version))?;
    Ok(VaultResponse::ok(certificates::bundle(cx, vault, &object, &version)?))
}
