//! Immutability of members. The proposed resource is compared with the stored one in the form of the request's version, member by
//! member; everything is immutable unless the table says otherwise.

use serde_json::Value;

use super::FieldError;

/// Mutability of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// It may change.
    Mutable,
    /// Keys may be added and removed; their values are compared.
    MutableMap,
    /// Only the service sets it. A value in a request is rejected, unless it is empty.
    ReadOnly,
    /// It must not change, except in upper and lower case.
    Caseless,
    /// A secret: compared elsewhere, or replaced.
    Secret,
}

/// Every member that is not simply immutable. `[]` stands for the items of an array, `{}` for those of a map.
const RULES: [(&str, Rule); 32] = [
    ("id", Rule::Caseless),
    ("name", Rule::Caseless),
    ("type", Rule::Caseless),
    ("location", Rule::Caseless),
    ("tags", Rule::Mutable),
    ("systemData", Rule::ReadOnly),
    ("identity.principalId", Rule::ReadOnly),
    ("identity.tenantId", Rule::ReadOnly),
    ("identity.userAssignedIdentities", Rule::MutableMap),
    ("identity.userAssignedIdentities{}.clientId", Rule::ReadOnly),
    ("identity.userAssignedIdentities{}.principalId", Rule::ReadOnly),
    ("properties.clusterProfile.pullSecret", Rule::Secret),
    ("properties.clusterProfile.resourceGroupId", Rule::Caseless),
    ("properties.clusterProfile.oidcIssuer", Rule::ReadOnly),
    ("properties.consoleProfile.url", Rule::ReadOnly),
    ("properties.servicePrincipalProfile.clientId", Rule::Mutable),
    ("properties.servicePrincipalProfile.clientSecret", Rule::Secret),
    ("properties.platformWorkloadIdentityProfile.upgradeableTo", Rule::Mutable),
    ("properties.platformWorkloadIdentityProfile.platformWorkloadIdentities", Rule::MutableMap),
    ("properties.networkProfile.loadBalancerProfile.managedOutboundIps.count", Rule::Mutable),
    ("properties.networkProfile.loadBalancerProfile.effectiveOutboundIps", Rule::ReadOnly),
    ("properties.masterProfile.subnetId", Rule::Caseless),
    ("properties.workerProfiles[].subnetId", Rule::Caseless),
    ("properties.workerProfilesStatus", Rule::ReadOnly),
    ("properties.ingressProfiles[].ip", Rule::ReadOnly),
    ("properties.apiserverProfile.url", Rule::ReadOnly),
    ("properties.apiserverProfile.ip", Rule::ReadOnly),
    ("properties.masterProfile.diskEncryptionSetId", Rule::Caseless),
    ("properties.workerProfiles[].diskEncryptionSetId", Rule::Caseless),
    ("properties.platformWorkloadIdentityProfile.platformWorkloadIdentities{}.resourceId", Rule::Mutable),
    ("properties.platformWorkloadIdentityProfile.platformWorkloadIdentities{}.clientId", Rule::ReadOnly),
    ("properties.platformWorkloadIdentityProfile.platformWorkloadIdentities{}.objectId", Rule::ReadOnly),
];

fn rule(pattern: &str) -> Option<Rule> {
    RULES.iter().find(|(path, _)| *path == pattern).map(|(_, rule)| *rule)
}

/// Reject the first immutable member that differs. `stored` is the resource in the form of this version, `proposed` the resource after
/// the request, with read-only members only where the request has them.
pub fn check_unchanged(stored: &Value, proposed: &Value) -> Result<(), FieldError> {
    walk(&Place::default(), stored, proposed)
}

/// The current member: its path in the table, and its path in messages.
#[derive(Debug, Clone, Default)]
struct Place {
    pattern: String,
    shown: String,
}

impl Place {
    fn member(&self, name: &str) -> Place {
        let join = |path: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        Place { pattern: join(&self.pattern), shown: join(&self.shown) }
    }

    fn item(&self, at: usize, item: &Value) -> Place {
        let shown = match item.get("name").and_then(Value::as_str) {
            Some(name) => format!("{}['{name}']", self.shown),
            None => format!("{}[{at}]", self.shown),
        };
        Place { pattern: format!("{}[]", self.pattern), shown }
    }

    fn entry(&self, key: &str) -> Place {
        Place { pattern: format!("{}{{}}", self.pattern), shown: format!("{}[\"{key}\"]", self.shown) }
    }
}

fn walk(place: &Place, stored: &Value, proposed: &Value) -> Result<(), FieldError> {
    let refused = || Err(FieldError::unchangeable(&place.shown));
    match rule(&place.pattern) {
        Some(Rule::Mutable | Rule::Secret) => return Ok(()),
        Some(Rule::ReadOnly) => return if is_empty(proposed) { Ok(()) } else { refused() },
        Some(Rule::Caseless) => {
            let same = match (stored.as_str(), proposed.as_str()) {
                (Some(one), Some(two)) => one.eq_ignore_ascii_case(two),
                _ => is_empty(stored) && is_empty(proposed),
            };
            return if same { Ok(()) } else { refused() };
        }
        Some(Rule::MutableMap) => {
            let Value::Object(entries) = proposed else { return Ok(()) };
            for (key, value) in entries {
                let before = stored.get(key).unwrap_or(&Value::Null);
                walk(&place.entry(key), before, value)?;
            }
            return Ok(());
        }
        None => {}
    }
    match (stored, proposed) {
        (Value::Array(one), Value::Array(two)) => {
            if one.len() != two.len() {
                return refused();
            }
            let pairs = one.iter().zip(two).enumerate();
            pairs.into_iter().try_for_each(|(at, (one, two))| walk(&place.item(at, one), one, two))
        }
        (Value::Object(_) | Value::Null, Value::Object(_) | Value::Null) => {
            let names = |value: &Value| value.as_object().map(|it| it.keys().cloned().collect::<Vec<_>>());
            let mut all = names(stored).unwrap_or_default();
            all.extend(names(proposed).unwrap_or_default());
            all.sort();
            all.dedup();
            all.iter().try_for_each(|name| {
                let of = |value: &Value| value.get(name).cloned().unwrap_or_default();
                walk(&place.member(name), &of(stored), &of(proposed))
            })
        }
        (one, two) if one == two || (is_empty(one) && is_empty(two)) => Ok(()),
        _ => refused(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_difference_is_reported_by_its_path() {
        let stored = json!({"id": "/A", "tags": {"a": "1"}, "properties": {
            "clusterProfile": {"domain": "d", "resourceGroupId": "/s/rg"},
            "networkProfile": {"loadBalancerProfile": {"managedOutboundIps": {"count": 1}, "effectiveOutboundIps": [{"id": "/ip"}]}},
            "workerProfiles": [{"name": "worker", "count": 3, "subnetId": "/x/S"}],
            "apiserverProfile": {"visibility": "Public", "url": "https://a"},
            "platformWorkloadIdentityProfile": {"platformWorkloadIdentities": {"a": {"resourceId": "/i", "clientId": "c"}}},
        }});
        let check = |change: &dyn Fn(&mut Value), expect: &str| {
            let mut proposed = stored.clone();
            // Read-only members are removed before a body is merged.
            proposed["properties"]["apiserverProfile"].as_object_mut().unwrap().remove("url");
            proposed["properties"]["networkProfile"]["loadBalancerProfile"]["effectiveOutboundIps"] =
                json!(null);
            proposed["properties"]["platformWorkloadIdentityProfile"]["platformWorkloadIdentities"]["a"]["clientId"] =
                json!("");
            change(&mut proposed);
            let found =
                check_unchanged(&stored, &proposed).err().map(|wrong| wrong.target).unwrap_or_default();
            assert_eq!(found, expect);
        };
        check(&|_| {}, "");
        check(&|it| it["id"] = json!("/a"), "");
        check(&|it| it["id"] = json!("/b"), "id");
        check(&|it| it["tags"] = json!({}), "");
        check(
            &|it| it["properties"]["clusterProfile"]["domain"] = json!("e"),
            "properties.clusterProfile.domain",
        );
        check(&|it| it["properties"]["clusterProfile"]["resourceGroupId"] = json!("/S/RG"), "");
        check(
            &|it| it["properties"]["workerProfiles"][0]["count"] = json!(4),
            "properties.workerProfiles['worker'].count",
        );
        check(&|it| it["properties"]["workerProfiles"][0]["subnetId"] = json!("/X/s"), "");
        for (member, value) in [
            ("vmSize", json!("Huge")),
            ("diskSizeGB", json!(256)),
            ("subnetId", json!("/x/other")),
            ("encryptionAtHost", json!("Enabled")),
            ("diskEncryptionSetId", json!("/set")),
        ] {
            check(
                &|it| it["properties"]["workerProfiles"][0][member] = value.clone(),
                &format!("properties.workerProfiles['worker'].{member}"),
            );
        }
        check(&|it| it["properties"]["workerProfiles"] = json!([]), "properties.workerProfiles");
        check(
            &|it| it["properties"]["apiserverProfile"]["url"] = json!("https://a"),
            "properties.apiserverProfile.url",
        );
        check(&|it| it["properties"]["apiserverProfile"]["url"] = json!(""), "");
        check(&|it| it["properties"]["consoleProfile"] = json!({}), "");
        let ips = "properties.networkProfile.loadBalancerProfile";
        check(
            &|it| {
                it["properties"]["networkProfile"]["loadBalancerProfile"]["managedOutboundIps"]["count"] =
                    json!(9);
            },
            "",
        );
        check(
            &|it| {
                it["properties"]["networkProfile"]["loadBalancerProfile"]["effectiveOutboundIps"] =
                    json!([{"id": "/ip"}]);
            },
            &format!("{ips}.effectiveOutboundIps"),
        );
        check(
            &|it| {
                it["properties"]["platformWorkloadIdentityProfile"]["platformWorkloadIdentities"] =
                    json!({"a": {"resourceId": "/j"}, "b": {"clientId": "x"}});
            },
            "properties.platformWorkloadIdentityProfile.platformWorkloadIdentities[\"b\"].clientId",
        );
    }
}
