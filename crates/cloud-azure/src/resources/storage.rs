//! Storage accounts of clusters.

use cloud::{Properties, ResourceId};
use serde_json::{Value, json};

use crate::json::{id_at, items, set, text};

pub(super) fn apply(body: &mut Value, allowed_subnets: &[ResourceId], is_new: bool) {
    if is_new {
        set(body, &["kind"], json!("StorageV2"));
        set(body, &["sku", "name"], json!("Standard_LRS"));
        let properties = json!({
            "allowBlobPublicAccess": false,
            "allowCrossTenantReplication": false,
            "supportsHttpsTrafficOnly": true,
            "minimumTlsVersion": "TLS1_2",
            "encryption": {
                "requireInfrastructureEncryption": true,
                "keySource": "Microsoft.Storage",
                "services": {"blob": {"keyType": "Account", "enabled": true}, "file": {"keyType": "Account", "enabled": true}},
            },
        });
        set(body, &["properties"], properties);
    }
    let present = subnets(body);
    let is_same =
        present.len() == allowed_subnets.len() && allowed_subnets.iter().all(|it| present.contains(it));
    if is_same && !is_new {
        return;
    }
    let action = if allowed_subnets.is_empty() { "Allow" } else { "Deny" };
    let rules: Vec<Value> = allowed_subnets.iter().map(|it| json!({ "id": it, "action": "Allow" })).collect();
    set(body, &["properties", "networkAcls", "bypass"], json!("AzureServices"));
    set(body, &["properties", "networkAcls", "defaultAction"], json!(action));
    set(body, &["properties", "networkAcls", "virtualNetworkRules"], json!(rules));
}

fn subnets(body: &Value) -> Vec<ResourceId> {
    if !text(body, "/properties/networkAcls/defaultAction").eq_ignore_ascii_case("Deny") {
        return Vec::new();
    }
    items(body, "/properties/networkAcls/virtualNetworkRules")
        .iter()
        .filter_map(|it| id_at(it, "/id"))
        .collect()
}

pub(super) fn account(body: &Value) -> Properties {
    Properties::StorageAccount { containers: Vec::new(), allowed_subnets: subnets(body) }
}
