//! Reading the facts about the cluster. Kinds and objects that a cluster does not have leave the facts at their defaults.

use std::collections::BTreeSet;

use controller::RequestError;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::Value;

use super::facts::{Architecture, Platform, PlatformFacts};

/// The name of the object that describes the cluster, of every kind of configuration.
const NAME: &str = "cluster";

/// Reads the facts of a cluster.
pub(crate) async fn read(client: &Client) -> Result<PlatformFacts, RequestError> {
    let infrastructure = get(client, "Infrastructure", "infrastructures").await?;
    let dns = get(client, "DNS", "dnses").await?;
    let gates = get(client, "FeatureGate", "featuregates").await?;
    Ok(facts(infrastructure.as_ref(), dns.as_ref(), gates.as_ref()))
}

/// The object that describes the cluster, of a kind; `None` if there is none.
pub(crate) async fn get(client: &Client, kind: &str, plural: &str) -> Result<Option<Value>, RequestError> {
    let kind = GroupVersionKind::gvk("config.openshift.io", "v1", kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let failed = |error| RequestError::new("get", format!("{} {NAME}", kind.kind), error);
    match objects.get(NAME).await {
        Ok(object) => Ok(Some(object.data)),
        // The response for a kind that is not served is no Status, so that it has no reason.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn facts(infrastructure: Option<&Value>, dns: Option<&Value>, gates: Option<&Value>) -> PlatformFacts {
    let text = |pointer: &str| {
        let text = infrastructure.and_then(|it| it.pointer(pointer)?.as_str());
        text.filter(|it| !it.is_empty()).map(str::to_owned)
    };
    let platform = text("/status/platformStatus/type").or_else(|| text("/status/platform"));
    let cloud = text("/status/platformStatus/azure/cloudName");
    PlatformFacts {
        platform: platform.as_deref().map_or(Platform::Other, Platform::from_type),
        cluster_id: text("/status/infrastructureName"),
        region: text("/status/platformStatus/aws/region"),
        is_azure_government: cloud.is_some_and(|it| it != "AzurePublicCloud"),
        is_dns_disconnected: dns.is_some_and(|it| it.pointer("/spec/publicZone").is_none_or(Value::is_null)),
        architecture: Architecture::current(),
        feature_gates: gates.map(enabled_gates).unwrap_or_default(),
    }
}

/// The gates that are enabled in any version: during an upgrade there are two.
fn enabled_gates(gates: &Value) -> BTreeSet<String> {
    let versions = gates.pointer("/status/featureGates").and_then(Value::as_array).into_iter().flatten();
    let enabled = versions.filter_map(|it| it.get("enabled")?.as_array()).flatten();
    enabled.filter_map(|it| Some(it.get("name")?.as_str()?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_without_openshift_has_no_rules_for_provider_specs() {
        let found = facts(None, None, None);
        assert_eq!(
            found,
            PlatformFacts { architecture: Architecture::current(), ..PlatformFacts::default() }
        );
        assert_eq!(found.platform, Platform::Other);
    }

    #[test]
    fn the_facts_are_those_of_the_configuration() {
        let infrastructure = json!({"status": {
            "infrastructureName": "c1", "platformStatus": {"type": "AWS", "aws": {"region": "us-east-1"}}
        }});
        let gates = json!({"status": {"featureGates": [
            {"version": "1", "enabled": [{"name": "A"}], "disabled": [{"name": "C"}]},
            {"version": "2", "enabled": [{"name": "B"}]}
        ]}});
        let found = facts(Some(&infrastructure), Some(&json!({"spec": {}})), Some(&gates));
        let expected = PlatformFacts {
            platform: Platform::Aws,
            cluster_id: Some("c1".to_owned()),
            region: Some("us-east-1".to_owned()),
            is_azure_government: false,
            is_dns_disconnected: true,
            architecture: Architecture::current(),
            feature_gates: ["A".to_owned(), "B".to_owned()].into(),
        };
        assert_eq!(found, expected);
        let connected =
            facts(Some(&infrastructure), Some(&json!({"spec": {"publicZone": {"id": "z"}}})), None);
        assert!(!connected.is_dns_disconnected);
    }

    #[test]
    fn every_platform_with_rules_is_known_by_its_name() {
        let platform = |name: &str| {
            facts(Some(&json!({"status": {"platformStatus": {"type": name}}})), None, None).platform
        };
        for (name, expected) in [
            ("AWS", Platform::Aws),
            ("Azure", Platform::Azure),
            ("GCP", Platform::Gcp),
            ("VSphere", Platform::VSphere),
            ("Nutanix", Platform::Nutanix),
            ("PowerVS", Platform::PowerVs),
            ("BareMetal", Platform::Other),
            ("None", Platform::Other),
        ] {
            assert_eq!(platform(name), expected, "{name}");
        }
        // The field of early releases.
        assert_eq!(facts(Some(&json!({"status": {"platform": "GCP"}})), None, None).platform, Platform::Gcp);
    }

    #[test]
    fn clouds_of_azure_but_the_public_one_are_governments() {
        let is_government = |azure: Value| {
            let status = json!({"status": {"platformStatus": {"type": "Azure", "azure": azure}}});
            facts(Some(&status), None, None).is_azure_government
        };
        assert!(is_government(json!({"cloudName": "AzureUSGovernmentCloud"})));
        assert!(!is_government(json!({"cloudName": "AzurePublicCloud"})));
        assert!(!is_government(json!({})));
    }
}
