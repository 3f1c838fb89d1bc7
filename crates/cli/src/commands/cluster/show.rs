//! Clusters in tables and descriptions.

use std::collections::BTreeMap;

use api::admin::{AdminCluster, AdminClusterProperties, Reachability};
use api::doc::ProvisioningState;
use serde::Serialize;
use serde_json::Value;

use super::super::age::age;
use super::super::health::status_text;
use super::super::print::Printable;
use super::super::table::{Column, View, Width, wire_name, with_age};
use super::latest::LatestOperation;

/// A cluster as operators see it and, unless imported, as its customer sees it.
#[derive(Debug, Serialize)]
pub(super) struct ClusterDetails {
    /// The operators' view.
    #[serde(flatten)]
    pub(super) cluster: AdminCluster,
    /// The customer's view; none for an imported cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resource: Option<Value>,
    /// Latest operation, for descriptions only.
    #[serde(skip)]
    pub(super) latest: LatestOperation,
}

/// Labels or tags in one text.
pub(super) fn labels_text(labels: &BTreeMap<String, String>, separator: &str) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(separator)
}

fn reachable(reachability: Option<&Reachability>, view: &View) -> String {
    match reachability {
        None => "unknown".to_owned(),
        Some(Reachability { reachable: true, .. }) => "yes".to_owned(),
        Some(Reachability { since, .. }) => format!("no, for {}", age(*since, view.now)),
    }
}

/// Provisioning state, and the failed one.
fn state(properties: &AdminClusterProperties) -> String {
    match (properties.provisioning_state, properties.failed_provisioning_state) {
        (ProvisioningState::Failed, Some(failed)) => format!("Failed while {}", wire_name(failed)),
        (state, _) => wire_name(state),
    }
}

impl Printable for AdminCluster {
    const KIND: &'static str = "cluster";
    const COLUMNS: &'static [Column] = &[
        Column("NAME", Width::Always),
        Column("LOCATION", Width::Always),
        Column("STATE", Width::Always),
        Column("VERSION", Width::Always),
        Column("REACHABLE", Width::Always),
        Column("HEALTH", Width::Always),
        Column("LABELS", Width::Wide),
        Column("API SERVER", Width::Wide),
        Column("AGE", Width::Always),
        Column("ID", Width::Wide),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, view: &View) -> Vec<String> {
        let properties = &self.properties;
        vec![
            self.name.clone(),
            self.location.clone(),
            wire_name(properties.provisioning_state),
            properties.version.clone().unwrap_or_default(),
            reachable(properties.reachability.as_ref(), view),
            status_text(properties.health.as_ref(), view),
            labels_text(&properties.labels, ","),
            properties.api_server.clone().unwrap_or_default(),
            view.time(properties.created_at),
            self.id.clone(),
        ]
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        let properties = &self.properties;
        let reachability = properties.reachability.as_ref().map(|it| {
            let reachable = if it.reachable { "yes" } else { "no" };
            let message = it.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
            format!("{reachable}, since {}{message}", with_age(it.since, view.now))
        });
        vec![
            ("Name", self.name.clone()),
            ("ID", self.id.clone()),
            ("UUID", properties.uuid.to_string()),
            ("Location", self.location.clone()),
            ("State", state(properties)),
            ("Version", properties.version.clone().unwrap_or_default()),
            ("Labels", labels_text(&properties.labels, "\n")),
            ("Imported", if properties.imported { "yes" } else { "no" }.to_owned()),
            ("API server", properties.api_server.clone().unwrap_or_default()),
            ("Reachable", reachability.unwrap_or_else(|| "unknown: not checked yet".to_owned())),
            ("Health", health(properties, view)),
            ("Created", with_age(properties.created_at, view.now)),
        ]
    }
}

/// Status and causes.
fn health(properties: &AdminClusterProperties, view: &View) -> String {
    let status = status_text(properties.health.as_ref(), view);
    let causes = properties.health.iter().flat_map(|it| &it.causes).map(|it| it.message.clone());
    [status].into_iter().chain(causes).collect::<Vec<_>>().join("\n")
}

impl Printable for ClusterDetails {
    const KIND: &'static str = AdminCluster::KIND;
    const COLUMNS: &'static [Column] = AdminCluster::COLUMNS;

    fn name(&self) -> String {
        Printable::name(&self.cluster)
    }

    fn cells(&self, view: &View) -> Vec<String> {
        self.cluster.cells(view)
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        let mut details = self.cluster.details(view);
        if let Some(resource) = &self.resource {
            details.extend(resource_details(resource));
        }
        // Last, next to the prompt of the terminal.
        details.extend(self.latest.details(view));
        details
    }
}

/// Lines of the description from the customer's view.
fn resource_details(resource: &Value) -> Vec<(&'static str, String)> {
    let text = |pointer: &str| match resource.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let profile = |pointer: &str| format!("/properties/{pointer}");
    let tags = resource["tags"].as_object().into_iter().flatten();
    let tags: BTreeMap<String, String> =
        tags.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect();
    let pool = |path: &str| {
        let (size, subnet) = (text(&format!("{path}/vmSize")), text(&format!("{path}/subnetId")));
        if size.is_empty() { String::new() } else { format!("{size} in {subnet}") }
    };
    let workers = match text("/properties/workerProfiles/0/count") {
        count if count.is_empty() => String::new(),
        count => format!("{count} of {}", pool("/properties/workerProfiles/0")),
    };
    vec![
        ("Tags", labels_text(&tags, "\n")),
        ("OpenShift", text(&profile("clusterProfile/version"))),
        ("Domain", text(&profile("clusterProfile/domain"))),
        ("Console", text(&profile("consoleProfile/url"))),
        ("API server URL", text(&profile("apiserverProfile/url"))),
        ("API server visibility", text(&profile("apiserverProfile/visibility"))),
        ("Control plane", pool("/properties/masterProfile")),
        ("Workers", workers),
        ("Principal", text(&profile("servicePrincipalProfile/clientId"))),
        ("Managed group", text(&profile("clusterProfile/resourceGroupId"))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_cluster_shows_since_when() {
        let view = View { now: "2026-01-01T00:05:00Z".parse().unwrap(), wide: false };
        let since = "2026-01-01T00:00:00Z".parse().unwrap();
        let unreachable = Reachability { reachable: false, since, checked_at: view.now, message: None };
        assert_eq!(reachable(Some(&unreachable), &view), "no, for 5m");
        assert_eq!(reachable(None, &view), "unknown");
    }

    #[test]
    fn a_failed_cluster_shows_its_last_operation() {
        let check = |now: &str, failed: Option<&str>, expect: &str| {
            let properties = serde_json::from_value(serde_json::json!({
                "uuid": uuid::Uuid::nil(), "provisioningState": now, "failedProvisioningState": failed,
                "createdAt": "2026-01-01T00:00:00Z",
            }));
            assert_eq!(state(&properties.unwrap()), expect);
        };
        check("Failed", Some("Creating"), "Failed while Creating");
        check("Failed", None, "Failed");
        check("Updating", Some("Creating"), "Updating");
    }

    #[test]
    fn details_of_the_customer_are_read_from_the_resource() {
        let resource = serde_json::json!({
            "tags": { "env": "test" },
            "properties": {
                "clusterProfile": { "version": "4.17.1", "domain": "harbour" },
                "workerProfiles": [{ "vmSize": "Standard_D4s_v5", "subnetId": "/s", "count": 3 }],
            },
        });
        let details = resource_details(&resource);
        let fact = |name: &str| details.iter().find(|(it, _)| *it == name).map(|(_, value)| value.as_str());
        assert_eq!(fact("Tags"), Some("env=test"));
        assert_eq!(fact("OpenShift"), Some("4.17.1"));
        assert_eq!(fact("Workers"), Some("3 of Standard_D4s_v5 in /s"));
        assert_eq!(fact("Control plane"), Some(""), "missing values are empty");
    }
}
