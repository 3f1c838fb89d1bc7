//! The platform of a cluster, by its Infrastructure.

use std::collections::BTreeMap;

use controller::RequestError;
use kube::Client;
use serde_json::Value;

use crate::webhooks::cluster_facts;

/// What the Infrastructure of a cluster says about its cloud. Without one, all of it is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterPlatform {
    /// The name, such as `AWS`.
    pub name: Option<String>,
    /// The URLs of services of AWS that are not at their usual place, by the name of the service.
    pub service_endpoints: BTreeMap<String, String>,
}

impl ClusterPlatform {
    /// Reads the Infrastructure.
    pub async fn read(client: &Client) -> Result<ClusterPlatform, RequestError> {
        let infrastructure = cluster_facts::get(client, "Infrastructure", "infrastructures").await?;
        Ok(infrastructure.as_ref().map(ClusterPlatform::of).unwrap_or_default())
    }

    fn of(infrastructure: &Value) -> ClusterPlatform {
        let text = |pointer: &str| {
            let text = infrastructure.pointer(pointer)?.as_str()?;
            (!text.is_empty()).then(|| text.to_owned())
        };
        let endpoints = infrastructure.pointer("/status/platformStatus/aws/serviceEndpoints");
        let endpoints = endpoints.and_then(Value::as_array).into_iter().flatten();
        let service_endpoints = endpoints.filter_map(|it| {
            Some((it.get("name")?.as_str()?.to_owned(), it.get("url")?.as_str()?.to_owned()))
        });
        ClusterPlatform {
            name: text("/status/platformStatus/type").or_else(|| text("/status/platform")),
            service_endpoints: service_endpoints.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn platform_and_endpoints_are_those_of_the_infrastructure() {
        let endpoint = json!({"name": "ec2", "url": "https://ec2.example"});
        let status = json!({"platformStatus": {"type": "AWS", "aws": {"serviceEndpoints": [endpoint, {"name": "s3"}]}}});
        let found = ClusterPlatform::of(&json!({ "status": status }));
        assert_eq!(found.name.as_deref(), Some("AWS"));
        assert_eq!(found.service_endpoints, [("ec2".to_owned(), "https://ec2.example".to_owned())].into());
        // The field of early releases.
        let found = ClusterPlatform::of(&json!({"status": {"platform": "Azure"}}));
        assert_eq!(found.name.as_deref(), Some("Azure"));
        assert_eq!(ClusterPlatform::of(&json!({})), ClusterPlatform::default());
    }
}
