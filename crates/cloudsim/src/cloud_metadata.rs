//! `/metadata/endpoints` of the resource manager: the addresses of the cloud, with which `az cloud register` needs no others.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::endpoints::Endpoints;
use crate::simulator::Simulator;

/// The routes; as in Azure, they need no token.
pub(crate) fn routes(simulator: Arc<Simulator>) -> Router {
    Router::new().route("/metadata/endpoints", get(answer)).with_state(simulator)
}

async fn answer(State(simulator): State<Arc<Simulator>>) -> Response {
    Json(metadata(&simulator.endpoints())).into_response()
}

/// The metadata in the form of api-version 2022-09-01. Suffixes are those of the public cloud: vaults and accounts are found by the
/// addresses in their resources, because the names of a loopback listener do not resolve.
fn metadata(endpoints: &Endpoints) -> Value {
    let Endpoints { authority, resource_manager, tenant_id, .. } = endpoints;
    json!({
        "name": "Simulated",
        "portal": resource_manager,
        "authentication": {
            "loginEndpoint": authority,
            "audiences": ["https://management.azure.com", "https://management.core.windows.net"],
            "tenant": tenant_id,
            "identityProvider": "AAD",
        },
        "graphAudience": authority,
        "graph": authority,
        "microsoftGraphResourceId": authority,
        "resourceManager": resource_manager,
        "gallery": resource_manager,
        "suffixes": {
            "acrLoginServer": "azurecr.io",
            "keyVaultDns": "vault.azure.net",
            "storage": "core.windows.net",
            "sqlServerHostname": "database.windows.net",
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metadata_have_what_az_reads() {
        let endpoints = Endpoints {
            authority: "https://127.0.0.1:1".to_owned(),
            resource_manager: "https://127.0.0.1:2".to_owned(),
            ..Endpoints::default()
        };
        let metadata = metadata(&endpoints);
        for (pointer, wanted) in [
            ("/authentication/loginEndpoint", "https://127.0.0.1:1"),
            ("/authentication/audiences/0", "https://management.azure.com"),
            ("/microsoftGraphResourceId", "https://127.0.0.1:1"),
            ("/resourceManager", "https://127.0.0.1:2"),
            ("/suffixes/keyVaultDns", "vault.azure.net"),
        ] {
            assert_eq!(metadata.pointer(pointer).and_then(Value::as_str), Some(wanted), "{pointer}");
        }
    }
}
