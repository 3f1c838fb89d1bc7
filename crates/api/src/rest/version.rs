//! The api-versions and their capabilities.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{Draft, FieldError, FieldErrorCode, v2023_11_22, v2025_07_25};
use crate::doc::Cluster;

/// A supported api-version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApiVersion {
    /// Without managed identities.
    V2023_11_22,
    /// The newest.
    V2025_07_25,
}

impl ApiVersion {
    /// All of them, oldest first.
    pub const ALL: [ApiVersion; 2] = [ApiVersion::V2023_11_22, ApiVersion::V2025_07_25];

    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            ApiVersion::V2023_11_22 => "2023-11-22",
            ApiVersion::V2025_07_25 => "2025-07-25",
        }
    }

    /// The version of that name.
    pub fn named(name: &str) -> Option<ApiVersion> {
        ApiVersion::ALL.into_iter().find(|version| version.as_str() == name)
    }

    /// Whether it has role sets and managed identities.
    pub fn knows_identities(self) -> bool {
        match self {
            ApiVersion::V2023_11_22 => false,
            ApiVersion::V2025_07_25 => true,
        }
    }

    /// Render a cluster in the form of this version, without secrets.
    pub fn show(self, cluster: &Cluster) -> ExternalCluster {
        match self {
            ApiVersion::V2023_11_22 => {
                ExternalCluster::V2023_11_22(Box::new(v2023_11_22::OpenShiftCluster::of(cluster)))
            }
            ApiVersion::V2025_07_25 => {
                ExternalCluster::V2025_07_25(Box::new(v2025_07_25::OpenShiftCluster::of(cluster)))
            }
        }
    }

    /// Parse a body in the form of this version. The error names the member and never shows a value: it might be a secret.
    pub fn read(self, body: Value) -> Result<ExternalCluster, FieldError> {
        match self {
            ApiVersion::V2023_11_22 => typed(body).map(|it| ExternalCluster::V2023_11_22(Box::new(it))),
            ApiVersion::V2025_07_25 => typed(body).map(|it| ExternalCluster::V2025_07_25(Box::new(it))),
        }
    }

    /// The members that a PUT on an existing cluster may omit; they keep their values.
    pub fn skeleton(self, cluster: &Cluster, body: &Value) -> Value {
        let whole = self.show(cluster).value();
        let mut kept = Map::new();
        for name in ["id", "name", "type"] {
            kept.insert(name.to_owned(), whole[name].clone());
        }
        let properties = &whole["properties"];
        let network = &properties["networkProfile"];
        let mut kept_network =
            json!({"preconfiguredNSG": network["preconfiguredNSG"], "outboundType": network["outboundType"]});
        // Another outbound type is rejected as such, and not because of the load balancer of the old one.
        let wanted = &body["properties"]["networkProfile"]["outboundType"];
        let is_same = wanted.is_null() || wanted == "" || *wanted == network["outboundType"];
        if let Some(count) = network["loadBalancerProfile"].get("managedOutboundIps").filter(|_| is_same) {
            kept_network["loadBalancerProfile"] = json!({"managedOutboundIps": count});
        }
        kept.insert(
            "properties".to_owned(),
            json!({
                "provisioningState": properties["provisioningState"],
                "clusterProfile": {"version": properties["clusterProfile"]["version"]},
                "networkProfile": kept_network,
            }),
        );
        without_nulls(Value::Object(kept))
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        other => other,
    }
}

fn typed<T: DeserializeOwned + Serialize>(body: Value) -> Result<T, FieldError> {
    let wrong = |path: String| {
        let message = format!("The member {path} is not of the type that it must be.");
        FieldError::new(FieldErrorCode::InvalidRequestContent, path, message)
    };
    let read: T = serde_path_to_error::deserialize(&body).map_err(|error| wrong(error.path().to_string()))?;
    if !has_odd_list(&body) {
        return Ok(read);
    }
    let shown = serde_json::to_value(&read).unwrap_or_default();
    match list_for_object("", &body, &shown) {
        Some(path) => Err(wrong(path)),
        None => Ok(read),
    }
}

/// The members of a cluster that are lists.
const LISTS: [&str; 4] =
    ["workerProfiles", "workerProfilesStatus", "ingressProfiles", "effectiveOutboundIps"];

/// Whether the body has a list where an object is expected; most bodies have none and need no further check.
fn has_odd_list(body: &Value) -> bool {
    match body {
        Value::Object(members) => members.iter().any(|(name, member)| {
            (member.is_array() && !LISTS.contains(&name.as_str())) || has_odd_list(member)
        }),
        Value::Array(items) => items.iter().any(|item| item.is_array() || has_odd_list(item)),
        _ => false,
    }
}

/// Find a list in the body where the type has an object: serde accepts a list as the members of a struct, in
/// the order of their declaration, which no client knows.
fn list_for_object(path: &str, body: &Value, read: &Value) -> Option<String> {
    match (body, read) {
        (Value::Array(_), Value::Object(_)) => Some(path.to_owned()),
        (Value::Array(items), Value::Array(read)) => items
            .iter()
            .zip(read)
            .enumerate()
            .find_map(|(at, (item, read))| list_for_object(&format!("{path}[{at}]"), item, read)),
        (Value::Object(members), Value::Object(read)) => members.iter().find_map(|(name, member)| {
            let place = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            list_for_object(&place, member, read.get(name)?)
        }),
        _ => None,
    }
}

/// A cluster in the form of one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ExternalCluster {
    /// Of 2023-11-22.
    V2023_11_22(Box<v2023_11_22::OpenShiftCluster>),
    /// Of 2025-07-25.
    V2025_07_25(Box<v2025_07_25::OpenShiftCluster>),
}

impl ExternalCluster {
    /// The cluster as a draft.
    pub fn draft(&self) -> Draft<'_> {
        match self {
            ExternalCluster::V2023_11_22(it) => it.draft(),
            ExternalCluster::V2025_07_25(it) => it.draft(),
        }
    }

    /// As JSON.
    pub fn value(&self) -> Value {
        // It consists of texts, numbers and maps with text keys.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Without read-only members.
    #[must_use]
    pub fn stripped(mut self) -> ExternalCluster {
        match &mut self {
            ExternalCluster::V2023_11_22(it) => it.strip_read_only(),
            ExternalCluster::V2025_07_25(it) => it.strip_read_only(),
        }
        self
    }

    /// Without the observed workers: the form of responses to changes.
    #[must_use]
    pub fn without_status(mut self) -> ExternalCluster {
        match &mut self {
            ExternalCluster::V2023_11_22(it) => {
                it.properties.iter_mut().for_each(|properties| properties.worker_profiles_status = None);
            }
            ExternalCluster::V2025_07_25(it) => {
                it.properties.iter_mut().for_each(|properties| properties.worker_profiles_status = None);
            }
        }
        self
    }
}
