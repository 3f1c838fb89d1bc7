//! Certificate signing requests: an approved one gets its certificate, or the reason why it gets none.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::context::ControllerContext;
use super::pods;
use crate::access::{ApprovedRequest, is_served_signer};
use crate::fields;
use crate::state::time;
use crate::status::ApiResult;
use crate::verbs::set_condition;

pub(super) fn reconcile(context: &mut ControllerContext<'_>, name: &str) -> ApiResult<()> {
    let kind = ControllerContext::built_in_kind("certificates.k8s.io", "CertificateSigningRequest")?;
    let Some(mut request) = context.read(kind, name) else { return Ok(()) };
    if !awaits_certificate(&request) {
        return Ok(());
    }
    let spec = &request["spec"];
    let pem = STANDARD.decode(spec["request"].as_str().unwrap_or_default()).unwrap_or_default();
    let usages: Vec<&str> =
        spec["usages"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let approved = ApprovedRequest {
        signer: spec["signerName"].as_str().unwrap_or_default(),
        pem: &pem,
        usages: &usages,
        duration: spec["expirationSeconds"].as_i64().map(SignedDuration::from_secs),
    };
    match context.cluster.access.certify(&approved, context.now) {
        // A cluster of an earlier release has no key to sign with.
        None => return Ok(()),
        Some(Ok(certificate)) => {
            fields::set(&mut request, &["status", "certificate"], json!(STANDARD.encode(certificate)));
        }
        Some(Err(why)) => {
            let now = time(context.now);
            let condition = json!({
                "type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": why,
                "lastUpdateTime": now, "lastTransitionTime": now,
            });
            set_condition(&mut request, condition);
        }
    }
    context.update_status(kind, request)
}

/// Whether a request is approved for one of the signers here and has neither a certificate nor an error.
fn awaits_certificate(request: &Value) -> bool {
    let has =
        |kind: &str| pods::condition(request, kind).is_some_and(|condition| condition["status"] == "True");
    is_served_signer(request["spec"]["signerName"].as_str().unwrap_or_default())
        && has("Approved")
        && !has("Denied")
        && !has("Failed")
        && request["status"]["certificate"].as_str().unwrap_or_default().is_empty()
}
