//! Attributes of clusters for selectors.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::VersionNumber;
use super::key::LABEL;
use crate::doc::{Cluster, Identity, Provisioned, SubscriptionState};

/// The zones of the reference's own clusters.
const REFERENCE_ZONES: [&str; 2] = [".aroapp.io", ".aroapp.azure.us"];
/// Layout of networks and load balancers that the service creates, MIMO's V2: its numbers start with 0.
const ARCHITECTURE_VERSION: &str = "1";

/// The attributes of a cluster by the keys of selectors. Unknown attributes are absent.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterAttributes {
    attributes: BTreeMap<String, String>,
    version: Option<VersionNumber>,
    created_at: Timestamp,
}

impl ClusterAttributes {
    /// Create them from a cluster's document, the state of its subscription (none when it is unknown) and the version that its API
    /// server last reported.
    ///
    /// Of MIMO's keys, those about the installation are absent for imported clusters, whose installation is not
    /// known. `version` is [`Cluster::installed_version`], and for imported clusters the observed version.
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

    /// The attribute of that key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str)
    }

    /// All attributes, as in responses of the Admin API.
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

/// Attributes about the installation of a provisioned cluster.
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

/// As in MIMO: by the stored domain. A bare label is not a managed domain here, although its name is in the service's zone.
fn is_managed_domain(ours: &Provisioned) -> bool {
    let domain = ours.spec.domain.to_lowercase();
    REFERENCE_ZONES.iter().any(|zone| domain.ends_with(zone))
        || (domain.contains('.') && ours.managed_domain.is_some())
}

/// JSON name of an enum's value.
fn word(value: impl serde::Serialize) -> Option<String> {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => Some(word),
        _ => None,
    }
}

/// The segment behind `resourceGroups`, ignoring case.
fn resource_group(id: &str) -> Option<&str> {
    let mut segments = id.split('/');
    segments.find(|segment| segment.eq_ignore_ascii_case("resourcegroups"))?;
    segments.next()
}
