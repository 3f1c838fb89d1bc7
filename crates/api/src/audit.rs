//! One entry of the audit log: who did what to which thing, why, and what it was before and after.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use uuid::Uuid;

/// What the one who makes a change says about it; it is written in the transaction of the change.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// Who: a person, a certificate's subject, or a service by its name.
    pub actor: String,
    /// What, as a dotted verb: `cluster.create`, `manifest.cancel`.
    pub action: String,
    /// To which thing: a resource path, or a key.
    pub target: String,
    /// Why, in the words of the actor; empty when none were given.
    #[serde(default)]
    pub reason: String,
    /// The request or run that this belongs to.
    #[serde(default)]
    pub correlation_id: Option<Uuid>,
    /// Digest of the thing before the change; none when it did not exist.
    #[serde(default)]
    pub before: Option<String>,
    /// Digest of the thing after the change; none when it is gone.
    #[serde(default)]
    pub after: Option<String>,
}

/// An entry as the log holds it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    /// Its own id, given when it was written.
    pub id: Uuid,
    /// When it was written, by the store's clock.
    pub time: Timestamp,
    /// What was said.
    #[serde(flatten)]
    pub entry: AuditEntry,
    /// Its number in the chain, from 1; none until the sealer has reached it.
    #[serde(default)]
    pub number: Option<i64>,
    /// The chain's value after it, in hexadecimal; none until the sealer has reached it.
    #[serde(default)]
    pub seal: Option<String>,
}
