//! What selectors see of a cluster.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::VersionNumber;
use super::key::LABEL;
use crate::doc::{Cluster, Identity, Provisioned, SubscriptionState};

/// The zones of the reference's own clusters.
const REFERENCE_ZONES: [&str; 2] = [".aroapp.io", ".aroapp.azure.us"];
/// The layout of networks and load balancers that we make, MIMO's V2: its numbers begin with 0.
const ARCHITECTURE_VERSION: &str = "1";

/// The attributes of a cluster, under the keys of selectors. What is not known of a cluster is absent.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterAttributes {
    attributes: BTreeMap<String, String>,
    version: Option<VersionNumber>,
    created_at: Timestamp,
}

impl ClusterAttributes {
    /// From a cluster's document, the state of its subscription (none when nobody told us of it) and the version that its API
    /// server last told.
    ///
    /// Of MIMO's keys, those that tell how a cluster was installed are absent on imported clusters, of which we do not know
    /// it. `version` is what [`Cluster::installed_version`] says, and of imported clusters what was seen.
    pub fn of(
        cluster: &Cluster,
        subscription: Option<SubscriptionState>,
        version: Option<&str>,
    ) -> ClusterAttributes {
        let mut attributes = BTreeMap::new();
        let mut put = |key: &str, value: &str| drop(attributes.insert(key.to_owned(), value.to_owned()));
        put("resourceID", &cluster.id.to_lowercase());
        put("subscriptionID", &cluster.subscription_id.to_lowercase());
        if let Some(state) = subscription.and_then(word) {
            put("subscriptionState", &state);
        }
        if let Some(state) = word(cluster.provisioning_state) {
            put("provisioningState", &state);
        }
        put("location", &cluster.location);
        put("name", &cluster.name);
        if let Some(group) = resource_group(&cluster.id) {
            put("resourceGroup", group);
        }
        put("createdAt", &cluster.created_at.to_string());
        if let Some(ours) = &cluster.provisioned {
            put_installed(ours, &mut put);
        }
        let version = cluster.installed_version().or(version);
        if let Some(version) = version {
            put("version", version);
        }
        for (name, value) in &cluster.labels {
            put(&format!("{LABEL}{name}"), value);
        }
        let version = version.and_then(|text| text.parse().ok());
        ClusterAttributes { attributes, version, created_at: cluster.created_at }
    }

    /// One of them.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str)
    }

    /// All of them, as the Admin API answers them.
    pub fn as_map(&self) -> &BTreeMap<String, String> {
        &self.attributes
    }

    pub(super) fn version(&self) -> Option<&VersionNumber> {
        self.version.as_ref()
    }

    pub(super) fn created_at(&self) -> Timestamp {
        self.created_at
    }
}

/// How a cluster of ours was installed.
fn put_installed(ours: &Provisioned, put: &mut impl FnMut(&str, &str)) {
    put("bucketID", &ours.bucket.to_string());
    put(
        "authenticationType",
        match ours.spec.identity {
            Identity::ServicePrincipal { .. } => "ServicePrincipal",
            Identity::Workload { .. } => "WorkloadIdentity",
        },
    );
    put("architectureVersion", ARCHITECTURE_VERSION);
    if let Some(outbound) = word(ours.spec.network.outbound_type) {
        put("outboundType", &outbound);
    }
    if let Some(visibility) = word(ours.spec.api_visibility) {
        put("APIServerVisibility", &visibility);
    }
    put("isManagedDomain", if is_managed_domain(ours) { "true" } else { "false" });
}

/// As MIMO has it: by the domain as it is stored. A bare label is no managed domain here, though its name is in our zone.
fn is_managed_domain(ours: &Provisioned) -> bool {
    let domain = ours.spec.domain.to_lowercase();
    REFERENCE_ZONES.iter().any(|zone| domain.ends_with(zone))
        || (domain.contains('.') && ours.managed_domain.is_some())
}

/// The word of an enum on the wire.
fn word(value: impl serde::Serialize) -> Option<String> {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => Some(word),
        _ => None,
    }
}

/// The segment behind `resourceGroups`, in whatever case that is written.
fn resource_group(id: &str) -> Option<&str> {
    let mut segments = id.split('/');
    segments.find(|segment| segment.eq_ignore_ascii_case("resourcegroups"))?;
    segments.next()
}
