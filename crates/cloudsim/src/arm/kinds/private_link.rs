//! Private link services and the connections of private endpoints to them.

use cloud::ResourceId;
use serde_json::{Value, json};

use super::allocation::Allocation;
use super::body::{
    Body, default, embedded, invalid, items, keep, missing_reference, parts, properties, reference, required,
    same, text,
};
use super::{private_endpoints, rows, security};
use crate::arm::{ArmError, ArmResource, Behaviour};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::seed;

pub(super) const LINK_SERVICE: &str = "Microsoft.Network/privateLinkServices";
pub(super) const CONNECTION: &str = "Microsoft.Network/privateLinkServices/privateEndpointConnections";

/// The first link identifier.
const FIRST_LINK: u64 = 0x2000_0000;

pub(super) struct LinkServices;

impl Behaviour for LinkServices {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep(before, body, &["alias"]);
        keep(None, body, &["privateEndpointConnections", "networkInterfaces"]);
        let location = body.get("location").and_then(Value::as_str).unwrap_or_default().to_owned();
        let guid = seed::uuid(cx.seed, &["alias", &id.key()]);
        let inner = properties(body);
        default(inner, "alias", json!(format!("{}.{guid}.{location}.azure.privatelinkservice", id.name())));
        default(inner, "visibility", json!({ "subscriptions": [] }));
        default(inner, "autoApproval", json!({ "subscriptions": [] }));
        default(inner, "fqdns", json!([]));
        default(inner, "enableProxyProtocol", json!(false));
        let inner = Value::Object(inner.clone());
        let frontends: Vec<ResourceId> = items(&inner, "loadBalancerFrontendIpConfigurations")
            .filter_map(|it| reference(Some(it)))
            .collect();
        if frontends.is_empty() {
            return Err(required("loadBalancerFrontendIpConfigurations", id));
        }
        for frontend in &frontends {
            let balancer = frontend.parent().map(|it| rows::present(cx, &it)).transpose()?.flatten();
            let known = balancer.is_some_and(|it| {
                parts(&it.body, "frontendIPConfigurations")
                    .any(|it| text(it, "name").is_some_and(|it| same(it, frontend.name())))
            });
            if !known {
                return Err(missing_reference(frontend, id));
            }
        }
        fill_configurations(cx, id, before, body)
    }

    fn show(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        _expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        security::show_parts(cx, resource, body, "ipConfigurations");
        let connections = rows::children(cx, &resource.id, CONNECTION)?;
        let shown = connections.iter().map(|it| embedded(cx, it, it.body.clone())).collect();
        properties(body).insert("privateEndpointConnections".to_owned(), Value::Array(shown));
        Ok(())
    }

    fn in_use(&self, resource: &ArmResource, user: &ResourceId) -> (String, String) {
        let message = format!(
            "Cannot delete private link service {} since it has a connection from {user}.",
            resource.id
        );
        ("CannotDeletePrivateLinkServiceWithPrivateEndpointConnections".to_owned(), message)
    }
}

fn fill_configurations(
    cx: &CallContext<'_>,
    id: &ResourceId,
    before: Option<&ArmResource>,
    body: &mut Body,
) -> Result<(), Failure> {
    security::fill_parts(id, body, "ipConfigurations", |_, _| Ok(()))?;
    let mut allocation = Allocation::new(cx, id);
    let configurations = properties(body).get_mut("ipConfigurations").and_then(Value::as_array_mut);
    for configuration in configurations.into_iter().flatten() {
        let name = text(configuration, "name").unwrap_or_default().to_owned();
        let Some(subnet) = reference(configuration.get("properties").and_then(|it| it.get("subnet"))) else {
            return Err(required("subnet", &id.child("ipConfigurations", &name)));
        };
        let found = rows::present(cx, &subnet)?.ok_or_else(|| missing_reference(&subnet, id))?;
        let policies = found.property("privateLinkServiceNetworkPolicies").and_then(Value::as_str);
        if !policies.is_some_and(|it| same(it, "Disabled")) {
            let message = format!(
                "Private link service {id} cannot be created in a subnet {subnet} since it has private link service network \
                 policies enabled."
            );
            let code = "PrivateLinkServiceCannotBeCreatedInSubnetThatHasNetworkPoliciesEnabled";
            return Err(invalid(code, message));
        }
        let had = before
            .into_iter()
            .flat_map(|it| parts(&it.body, "ipConfigurations"))
            .find(|it| text(it, "name").is_some_and(|it| same(it, &name)));
        allocation.fill(configuration, had)?;
    }
    Ok(())
}

/// Connections are made by private endpoints; a PUT approves or rejects one.
pub(super) struct Connections;

impl Behaviour for Connections {
    fn prepare(
        &self,
        _cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        let Some(before) = before else {
            return Err(ArmError::not_found("NotFound", format!("Resource {id} not found.")).into());
        };
        let state = properties(body).get("privateLinkServiceConnectionState").cloned().unwrap_or_default();
        let status = text(&state, "status").unwrap_or_default();
        let Some(status) = ["Approved", "Rejected", "Pending"].into_iter().find(|it| same(it, status)) else {
            let message = format!(
                "The status '{status}' of the connection {id} is none of Approved, Rejected, Pending."
            );
            return Err(invalid("InvalidPrivateLinkServiceConnectionState", message));
        };
        let description = text(&state, "description").unwrap_or_default().to_owned();
        body.clone_from(&before.body);
        let state = json!({ "status": status, "description": description, "actionsRequired": "None" });
        properties(body).insert("privateLinkServiceConnectionState".to_owned(), state);
        Ok(())
    }

    fn stored(&self, cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        rows::touch_parent(cx, &resource.id)
    }

    fn deleted(&self, cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        if let Some(endpoint) = reference(resource.property("privateEndpoint")) {
            private_endpoints::disconnect(cx, &endpoint)?;
        }
        rows::touch_parent(cx, &resource.id)
    }

    /// The endpoint does not wait for its connection, which goes with it.
    fn references(&self, _id: &ResourceId, _body: &Body) -> Vec<ResourceId> {
        Vec::new()
    }
}

/// Whether a link service approves connections of a subscription by itself.
pub(super) fn approves(service: &ArmResource, subscription: &str) -> bool {
    let approval = service.property("autoApproval").cloned().unwrap_or_default();
    items(&approval, "subscriptions").filter_map(Value::as_str).any(|it| it == "*" || same(it, subscription))
}

/// The smallest free link identifier of a service: identifiers are reused after a deletion.
pub(super) fn free_link(cx: &CallContext<'_>, service: &ResourceId) -> Result<String, Failure> {
    let connections = rows::children(cx, service, CONNECTION)?;
    let taken: Vec<u64> =
        connections.iter().filter_map(|it| it.property("linkIdentifier")?.as_str()?.parse().ok()).collect();
    Ok((FIRST_LINK..).find(|it| !taken.contains(it)).unwrap_or(FIRST_LINK).to_string())
}
