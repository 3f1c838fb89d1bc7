//! The body of a create request, in the format of the resource manager.

use std::collections::BTreeMap;

use api::secret::Secret;
use clap::ValueEnum;
use serde_json::{Value, json};

use super::super::target::ClusterTarget;

/// Machine size of the control plane: the smallest that is accepted.
const MASTER_SIZE: &str = "Standard_D8s_v5";

/// Default address ranges of pods and services, as in OpenShift's installer.
const POD_CIDR: &str = "10.128.0.0/14";
const SERVICE_CIDR: &str = "172.30.0.0/16";

/// Smallest disk of a worker.
const DISK_SIZE_GB: u32 = 128;

/// Visibility of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum Visibility {
    /// From everywhere
    Public,
    /// From the customer's network only
    Private,
}

impl Visibility {
    fn as_str(self) -> &'static str {
        match self {
            Visibility::Public => "Public",
            Visibility::Private => "Private",
        }
    }
}

/// Resources that the customer provides.
#[derive(Debug, Clone)]
pub(crate) struct Provided {
    pub(crate) master_subnet: String,
    pub(crate) worker_subnet: String,
    pub(crate) client_id: String,
    pub(crate) client_secret: Secret<String>,
}

/// Content of a create request.
#[derive(Debug, Clone)]
pub(crate) struct ClusterSpec {
    pub(crate) place: ClusterTarget,
    pub(crate) provided: Provided,
    pub(crate) version: Option<String>,
    pub(crate) domain: Option<String>,
    pub(crate) worker_count: u32,
    pub(crate) worker_size: String,
    pub(crate) visibility: Visibility,
    pub(crate) tags: BTreeMap<String, String>,
}

/// The body of the request. It holds the principal's secret.
pub(crate) fn body(spec: &ClusterSpec) -> Value {
    let ClusterSpec { place, provided, visibility, .. } = spec;
    let mut cluster = json!({
        "domain": spec.domain.clone().unwrap_or_else(|| place.name.to_lowercase()),
        "resourceGroupId": place.managed_group(),
        "fipsValidatedModules": "Disabled",
    });
    // Without a version, the server uses its default.
    if let Some(version) = &spec.version {
        cluster["version"] = json!(version);
    }
    json!({
        "location": place.location,
        "tags": spec.tags,
        "properties": {
            "clusterProfile": cluster,
            "servicePrincipalProfile": {
                "clientId": provided.client_id,
                "clientSecret": provided.client_secret.expose(),
            },
            "networkProfile": { "podCidr": POD_CIDR, "serviceCidr": SERVICE_CIDR },
            "masterProfile": {
                "vmSize": MASTER_SIZE,
                "subnetId": provided.master_subnet,
                "encryptionAtHost": "Disabled",
            },
            "workerProfiles": [{
                "name": "worker",
                "vmSize": spec.worker_size,
                "diskSizeGB": DISK_SIZE_GB,
                "subnetId": provided.worker_subnet,
                "count": spec.worker_count,
                "encryptionAtHost": "Disabled",
            }],
            "apiserverProfile": { "visibility": visibility.as_str() },
            "ingressProfiles": [{ "name": "default", "visibility": visibility.as_str() }],
        },
    })
}

/// The body with its secrets blanked.
pub(crate) fn without_secrets(mut body: Value) -> Value {
    for pointer in
        ["/properties/servicePrincipalProfile/clientSecret", "/properties/clusterProfile/pullSecret"]
    {
        if let Some(secret) = body.pointer_mut(pointer) {
            *secret = json!("***");
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_all_required_properties_and_can_be_shown_without_its_secret() {
        let subnet = |name: &str| {
            format!(
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/{name}"
            )
        };
        let spec = ClusterSpec {
            place: ClusterTarget {
                subscription: "s".to_owned(),
                group: "g".to_owned(),
                location: "local".to_owned(),
                name: "Harbour".to_owned(),
            },
            provided: Provided {
                master_subnet: subnet("master"),
                worker_subnet: subnet("worker"),
                client_id: "11111111-1111-1111-1111-111111111111".to_owned(),
                client_secret: Secret::new("hush".to_owned()),
            },
            version: None,
            domain: None,
            worker_count: 3,
            worker_size: "Standard_D4s_v5".to_owned(),
            visibility: Visibility::Private,
            tags: BTreeMap::from([("env".to_owned(), "test".to_owned())]),
        };
        let body = body(&spec);
        assert_eq!(body["properties"]["clusterProfile"]["domain"], "harbour");
        assert_eq!(body["properties"]["clusterProfile"].get("version"), None, "the server uses its default");
        assert_eq!(body["properties"]["ingressProfiles"][0]["visibility"], "Private");
        assert_eq!(body["properties"]["servicePrincipalProfile"]["clientSecret"], "hush");
        let shown = without_secrets(body).to_string();
        assert!(!shown.contains("hush") && shown.contains("***"), "{shown}");
    }
}
