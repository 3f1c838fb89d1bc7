//! What a subscription offers and allows: sizes, quotas, providers and features.

use azure_core::http::Method;
use cloud::{Availability, CloudError, ProviderRegistration, Restriction, Size, Usage};
use serde_json::Value;

use crate::arm::Call;
use crate::client::AzureClient;
use crate::json::{is_same_location, items, text, texts};

const SKUS: &str = "2021-07-01";
const COMPUTE: &str = "2024-07-01";
const NETWORK: &str = "2024-05-01";
const PROVIDERS: &str = "2021-04-01";
const FEATURES: &str = "2021-07-01";

impl AzureClient {
    pub(crate) async fn list_sizes(
        &self,
        subscription: &str,
        location: &str,
    ) -> Result<Vec<Size>, CloudError> {
        let path = format!("/subscriptions/{subscription}/providers/Microsoft.Compute/skus");
        let filter = format!("location eq '{}'", location.replace('\'', "''"));
        let items = self.inner.arm.list(&path, SKUS, &[("$filter", &filter)], None).await?;
        Ok(items.iter().filter_map(|it| size(it, location)).collect())
    }

    pub(crate) async fn list_usages(
        &self,
        subscription: &str,
        location: &str,
    ) -> Result<Vec<Usage>, CloudError> {
        let list = async |namespace: &str, version: &str| {
            let path =
                format!("/subscriptions/{subscription}/providers/{namespace}/locations/{location}/usages");
            self.inner.arm.list(&path, version, &[], None).await
        };
        let (compute, network) =
            tokio::try_join!(list("Microsoft.Compute", COMPUTE), list("Microsoft.Network", NETWORK))?;
        let usage = |it: &Value| Usage {
            quota: text(it, "/name/value").to_owned(),
            used: it.pointer("/currentValue").and_then(Value::as_u64).unwrap_or_default(),
            limit: limit(it),
        };
        let usages = compute.iter().chain(&network).map(usage).collect();
        Ok(usages)
    }

    pub(crate) async fn list_providers(
        &self,
        subscription: &str,
    ) -> Result<Vec<ProviderRegistration>, CloudError> {
        let path = format!("/subscriptions/{subscription}/providers");
        let items = self.inner.arm.list(&path, PROVIDERS, &[], None).await?;
        let registration = |it: &Value| ProviderRegistration {
            namespace: text(it, "/namespace").to_owned(),
            registered: text(it, "/registrationState").eq_ignore_ascii_case("Registered"),
        };
        Ok(items.iter().map(registration).collect())
    }

    pub(crate) async fn find_feature(
        &self,
        subscription: &str,
        feature: &str,
    ) -> Result<Option<bool>, CloudError> {
        let path = feature_path(subscription, feature);
        let found = self.inner.arm.find(&path, FEATURES, &[]).await?;
        Ok(found.map(|it| text(&it, "/properties/state").eq_ignore_ascii_case("Registered")))
    }

    pub(crate) async fn start_provider_registration(
        &self,
        subscription: &str,
        namespace: &str,
    ) -> Result<(), CloudError> {
        let path = format!("/subscriptions/{subscription}/providers/{namespace}/register");
        self.inner.arm.send(Call::new(Method::Post, &path, PROVIDERS)).await.map(drop)
    }

    pub(crate) async fn start_feature_registration(
        &self,
        subscription: &str,
        feature: &str,
    ) -> Result<(), CloudError> {
        let path = format!("{}/register", feature_path(subscription, feature));
        self.inner.arm.send(Call::new(Method::Post, &path, FEATURES)).await.map(drop)
    }
}

/// The limit of a quota; one below zero stands for none.
fn limit(usage: &Value) -> u64 {
    let limit = usage.pointer("/limit").and_then(Value::as_i64).unwrap_or_default();
    limit.try_into().unwrap_or(u64::MAX)
}

fn feature_path(subscription: &str, feature: &str) -> String {
    let (namespace, name) = feature.split_once('/').unwrap_or(("Microsoft.Compute", feature));
    format!(
        "/subscriptions/{subscription}/providers/Microsoft.Features/providers/{namespace}/features/{name}"
    )
}

/// The size of an item of the list; `None` for disks, snapshots and the like.
fn size(item: &Value, location: &str) -> Option<Size> {
    if !text(item, "/resourceType").eq_ignore_ascii_case("virtualMachines") {
        return None;
    }
    let offered = texts(item, "/locations");
    if !offered.is_empty() && !offered.iter().any(|it| is_same_location(it, location)) {
        return None;
    }
    let capability = |name: &str| {
        let mut all = items(item, "/capabilities").iter();
        all.find(|it| text(it, "/name").eq_ignore_ascii_case(name)).map(|it| text(it, "/value"))
    };
    let mut zones = items(item, "/locationInfo").first().map(|it| texts(it, "/zones")).unwrap_or_default();
    zones.sort();
    let mut availability = Availability::Available;
    for restriction in items(item, "/restrictions") {
        if text(restriction, "/type").eq_ignore_ascii_case("Zone") {
            // The size is available in the other zones.
            let closed = texts(restriction, "/restrictionInfo/zones");
            zones.retain(|it| !closed.contains(it));
            if !zones.is_empty() {
                continue;
            }
        }
        availability =
            Availability::Restricted(Restriction { reason: text(restriction, "/reasonCode").to_owned() });
    }
    Some(Size {
        name: text(item, "/name").to_owned(),
        family: text(item, "/family").to_owned(),
        cores: capability("vCPUs").and_then(|it| it.parse().ok()).unwrap_or_default(),
        zones,
        encryption_at_host: capability("EncryptionAtHostSupported")
            .is_some_and(|it| it.eq_ignore_ascii_case("true")),
        availability,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_restricted_zone_leaves_the_others() {
        let item = |restrictions: Value| {
            json!({"resourceType": "virtualMachines", "name": "Standard_D8s_v5", "family": "standardDSv5Family",
            "locations": ["WestEurope"], "locationInfo": [{"location": "westeurope", "zones": ["3", "1", "2"]}],
            "capabilities": [{"name": "vCPUs", "value": "8"}, {"name": "EncryptionAtHostSupported", "value": "True"}],
            "restrictions": restrictions})
        };
        let zone = json!([{"type": "Zone", "restrictionInfo": {"zones": ["2"]}, "reasonCode": "NotAvailableForSubscription"}]);
        let found = size(&item(zone), "westeurope").unwrap();
        assert_eq!(
            (found.cores, found.encryption_at_host, found.zones),
            (8, true, vec!["1".to_owned(), "3".to_owned()])
        );
        assert_eq!(found.availability, Availability::Available);
        let location =
            json!([{"type": "Location", "restrictionInfo": {}, "reasonCode": "NotAvailableForSubscription"}]);
        assert!(matches!(
            size(&item(location), "West Europe").unwrap().availability,
            Availability::Restricted(_)
        ));
        assert_eq!(size(&item(json!([])), "eastus"), None);
    }
}
