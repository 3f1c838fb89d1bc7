//! Entries of the audit log: who changed what and why, with digests of the object before and after.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

/// A change as its author describes it. It is written in the transaction of the change.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// A person, a certificate's subject, or a service by its name.
    pub actor: String,
    /// Dotted verb: `cluster.create`, `manifest.cancel`.
    pub action: String,
    /// Resource path or key of the changed object.
    pub target: String,
    /// Reason that the actor gave; empty when there is none.
    #[serde(default)]
    pub reason: String,
    /// The request or run that the change belongs to.
    #[serde(default)]
    pub correlation_id: Option<Uuid>,
    /// Digest of the object before the change; absent when it did not exist.
    #[serde(default)]
    pub before: Option<String>,
    /// Digest of the object after the change; absent when it was deleted.
    #[serde(default)]
    pub after: Option<String>,
}

/// An entry of the audit log, as it is stored and as the Admin API shows it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AuditForm)]
pub struct AuditRecord {
    /// Its id.
    pub id: Uuid,
    /// When it was written, by the store's clock.
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    /// The change.
    #[serde(flatten)]
    pub entry: AuditEntry,
    /// Its number in the chain, from 1; absent until it is sealed.
    #[serde(default)]
    pub number: Option<i64>,
    /// Value of the chain after it, in hexadecimal; absent until it is sealed.
    #[serde(default)]
    pub seal: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_is_one_flat_object() {
        let stored = json!({
            "id": Uuid::nil(), "time": "1970-01-01T00:00:00Z", "actor": "ada", "action": "cluster.create",
            "target": "/c", "reason": "", "after": "d1", "number": 3, "seal": "ab",
        });
        let record: AuditRecord = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!((record.entry.actor.as_str(), record.number), ("ada", Some(3)));
        assert_eq!(serde_json::to_value(&record).unwrap(), stored);
    }
}
