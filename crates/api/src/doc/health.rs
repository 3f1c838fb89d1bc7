//! Details of a health sample: what was observed of a cluster when it was last contacted.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::members::take;

/// Details of a health sample. Any JSON value can be read; members that this release does not know, or that have another
/// form, are kept in `other`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "Value", into = "Value")]
pub struct HealthDetails {
    /// Kubernetes version of the API server. It stays while the cluster is unreachable.
    pub version: Option<String>,
    /// Why the cluster is unreachable.
    pub message: Option<String>,
    /// Members that other releases wrote.
    pub other: Map<String, Value>,
}

impl HealthDetails {
    /// Details after the API server answered with its version.
    #[must_use]
    pub fn answered(self, version: impl Into<String>) -> HealthDetails {
        HealthDetails { version: Some(version.into()), message: None, ..self }
    }

    /// Details after the API server did not answer.
    #[must_use]
    pub fn unreachable(self, message: Option<String>) -> HealthDetails {
        HealthDetails { message, ..self }
    }

    /// The stored form.
    pub fn to_json(&self) -> Value {
        Value::from(self.clone())
    }
}

impl From<Value> for HealthDetails {
    fn from(value: Value) -> HealthDetails {
        let Value::Object(mut members) = value else { return HealthDetails::default() };
        HealthDetails {
            version: take(&mut members, VERSION),
            message: take(&mut members, MESSAGE),
            other: members,
        }
    }
}

impl From<HealthDetails> for Value {
    fn from(details: HealthDetails) -> Value {
        let HealthDetails { version, message, other } = details;
        let mut members = other;
        members.extend(version.map(|it| (VERSION.to_owned(), Value::from(it))));
        members.extend(message.map(|it| (MESSAGE.to_owned(), Value::from(it))));
        Value::Object(members)
    }
}

const VERSION: &str = "version";
const MESSAGE: &str = "message";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn samples_of_the_release_before_are_read_and_written_unchanged() {
        for stored in [
            json!({}),
            json!({"version": "v1.30.4"}),
            json!({"message": "no answer"}),
            json!({"version": "v1.30.4", "message": "no answer"}),
        ] {
            assert_eq!(HealthDetails::from(stored.clone()).to_json(), stored);
        }
        assert_eq!(HealthDetails::from(json!("fine")), HealthDetails::default());
        assert_eq!(HealthDetails::from(json!(null)), HealthDetails::default());
    }

    #[test]
    fn the_version_and_unknown_members_survive_an_unreachable_cluster() {
        let stored = json!({"version": "v1.30.4", "nodes": {"ready": 3}, "message": 7});
        let away = HealthDetails::from(stored).unreachable(Some("no answer".to_owned()));
        let expect = json!({"version": "v1.30.4", "nodes": {"ready": 3}, "message": "no answer"});
        assert_eq!(away.to_json(), expect);
        let back = HealthDetails::from(expect).answered("v1.31.0");
        assert_eq!(back.to_json(), json!({"version": "v1.31.0", "nodes": {"ready": 3}}));
    }

    proptest! {
        #[test]
        fn details_are_read_back_as_written(
            version in prop::option::of("[a-z0-9.]{0,8}"),
            message in prop::option::of("[a-z ]{0,8}"),
            other in prop::collection::btree_map("x[a-z]{0,4}", 0..9i64, 0..3),
        ) {
            let other = other.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
            let details = HealthDetails { version, message, other };
            let text = serde_json::to_string(&details).unwrap();
            prop_assert_eq!(serde_json::from_str::<HealthDetails>(&text).unwrap(), details);
        }
    }
}
