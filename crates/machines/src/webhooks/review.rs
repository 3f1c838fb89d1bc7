//! Admission reviews of version 1: what the API server sends, and what it gets.

use std::fmt;

use json_patch::Patch;
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::{Value, json};

/// The version of reviews that the registration names.
const API_VERSION: &str = "admission.k8s.io/v1";

/// An operation on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// The request of a review.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AdmissionRequest {
    /// The identity of the review, which its response repeats.
    pub(crate) uid: String,
    pub(crate) kind: RequestKind,
    pub(crate) operation: Operation,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) namespace: String,
    #[serde(default)]
    pub(crate) object: Option<Value>,
    #[serde(default)]
    pub(crate) old_object: Option<Value>,
}

/// The type of the object of a request.
#[derive(Debug, Deserialize)]
pub(crate) struct RequestKind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RequestKind { group, version, kind } = self;
        write!(f, "{group}/{version} {kind}")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReview {
    api_version: String,
    kind: String,
    request: Option<AdmissionRequest>,
}

/// Reads the request of a review. The error says what is wrong with it.
pub(crate) fn read(body: &[u8]) -> Result<AdmissionRequest, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let review: AdmissionReview = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        match error.path().to_string().as_str() {
            "." => format!("the body is no AdmissionReview: {}", error.inner()),
            path => format!("the body is no AdmissionReview: {path}: {}", error.inner()),
        }
    })?;
    deserializer.end().map_err(|error| format!("the body is no AdmissionReview: {error}"))?;
    if review.kind != "AdmissionReview" || review.api_version != API_VERSION {
        let (version, kind) = (review.api_version, review.kind);
        return Err(format!("the body is of type {version} {kind}; send {API_VERSION} AdmissionReview"));
    }
    review.request.ok_or_else(|| "the AdmissionReview has no request".to_owned())
}

/// The response to a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AdmissionResponse {
    /// The object is admitted, after these changes.
    Admitted {
        /// The changes.
        patch: Patch,
    },
    /// The object violates a rule.
    Denied(String),
    /// The request makes no sense.
    BadRequest(String),
}

impl AdmissionResponse {
    /// The object is admitted as it is.
    pub(crate) fn admitted() -> AdmissionResponse {
        AdmissionResponse::Admitted { patch: Patch(Vec::new()) }
    }

    /// The review with the response.
    pub(crate) fn into_review(self, uid: &str, warnings: &[String]) -> Value {
        let refusal = |code: u16, reason: &str, message: String| {
            let status = json!({ "status": "Failure", "message": message, "reason": reason, "code": code });
            json!({ "uid": uid, "allowed": false, "status": status })
        };
        let mut response = match self {
            AdmissionResponse::Admitted { patch } if patch.0.is_empty() => {
                json!({ "uid": uid, "allowed": true })
            }
            AdmissionResponse::Admitted { patch } => json!({
                "uid": uid, "allowed": true, "patchType": "JSONPatch",
                "patch": ByteString(json!(patch).to_string().into_bytes())
            }),
            AdmissionResponse::Denied(message) => refusal(403, "Forbidden", message),
            AdmissionResponse::BadRequest(message) => refusal(400, "BadRequest", message),
        };
        if !warnings.is_empty() {
            response["warnings"] = json!(warnings);
        }
        json!({ "apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(request: Value) -> Value {
        json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": request})
    }

    fn request() -> Value {
        let kind = json!({"group": "machine.openshift.io", "version": "v1beta1", "kind": "Machine"});
        json!({"uid": "u", "kind": kind, "operation": "UPDATE", "object": {"a": 1}, "oldObject": null})
    }

    #[test]
    fn a_request_is_read_with_the_fields_that_are_there() {
        let read = read(review(request()).to_string().as_bytes()).unwrap();
        assert_eq!((read.uid.as_str(), read.operation), ("u", Operation::Update));
        assert_eq!((read.object, read.old_object), (Some(json!({"a": 1})), None));
        assert_eq!(read.kind.to_string(), "machine.openshift.io/v1beta1 Machine");
    }

    #[test]
    fn other_content_is_described_in_one_sentence() {
        let check = |body: &str, text: &str| assert_eq!(read(body.as_bytes()).unwrap_err(), text);
        check("", "the body is no AdmissionReview: EOF while parsing a value at line 1 column 0");
        check("{}", "the body is no AdmissionReview: missing field `apiVersion` at line 1 column 2");
        check(
            &review(json!({"uid": 5})).to_string(),
            "the body is no AdmissionReview: request.uid: invalid type: integer `5`, expected a string at line 1 column 79",
        );
        check(&review(Value::Null).to_string(), "the AdmissionReview has no request");
        check(
            r#"{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}"#,
            "the body is of type admission.k8s.io/v1beta1 AdmissionReview; send admission.k8s.io/v1 AdmissionReview",
        );
        let two = format!("{}{{}}", review(request()));
        assert!(
            read(two.as_bytes())
                .unwrap_err()
                .starts_with("the body is no AdmissionReview: trailing characters")
        );
    }

    #[test]
    fn a_response_repeats_the_identity_and_has_the_patch_in_base64() {
        let admitted = AdmissionResponse::admitted().into_review("u", &[]);
        assert_eq!(admitted["response"], json!({"uid": "u", "allowed": true}));
        let patch = json_patch::diff(&json!({}), &json!({"a": 1}));
        let changed = AdmissionResponse::Admitted { patch }.into_review("u", &["w".to_owned()]);
        let expected = json!({
            "uid": "u", "allowed": true, "patchType": "JSONPatch", "warnings": ["w"],
            "patch": ByteString(br#"[{"op":"add","path":"/a","value":1}]"#.to_vec())
        });
        assert_eq!(changed["response"], expected);
        let denied = AdmissionResponse::Denied("no".to_owned()).into_review("u", &[]);
        assert_eq!(
            denied["response"]["status"],
            json!({"status": "Failure", "message": "no", "reason": "Forbidden", "code": 403})
        );
    }
}
