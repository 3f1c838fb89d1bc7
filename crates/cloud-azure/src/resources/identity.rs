//! Managed identities and their federated credentials.
//!
//! Callers name a credential `ISSUER|ACCOUNT`; Azure's names have few characters, so they are a digest of that name.

use std::collections::BTreeMap;

use cloud::Properties;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::json::{optional_text, text, texts};

/// The audience of tokens that clusters exchange.
const AUDIENCE: &str = "openshift";

pub(super) fn identity(body: &Value, federated: BTreeMap<String, String>) -> Properties {
    Properties::Identity {
        client_id: optional_text(body, "/properties/clientId"),
        principal_id: optional_text(body, "/properties/principalId"),
        tenant_id: optional_text(body, "/properties/tenantId"),
        federated,
    }
}

/// The name of a credential in Azure.
pub(crate) fn credential_name(key: &str) -> String {
    format!("fic-{}", Uuid::new_v5(&Uuid::NAMESPACE_URL, key.as_bytes()).simple())
}

/// The body of a credential: the issuer is the part of the key before `|`.
pub(crate) fn credential_body(key: &str, subject: &str) -> Value {
    let issuer = key.split_once('|').map_or(key, |(issuer, _)| issuer);
    json!({ "properties": { "issuer": issuer, "subject": subject, "audiences": [AUDIENCE] } })
}

/// The key and the subject of a credential.
pub(crate) fn credential_key(body: &Value) -> (String, String) {
    let (issuer, subject) = (text(body, "/properties/issuer"), text(body, "/properties/subject"));
    (format!("{issuer}|{subject}"), subject.to_owned())
}

/// Whether a credential is one that clusters use.
pub(crate) fn is_credential_of_cluster(body: &Value) -> bool {
    texts(body, "/properties/audiences").iter().any(|it| it == AUDIENCE)
}
