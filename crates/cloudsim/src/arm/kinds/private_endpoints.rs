//! Private endpoints. Each has an interface, and a connection at the private link service that it leads to.

use cloud::ResourceId;
use serde_json::{Value, json};

use super::body::{
    Body, default, hide_private, keep, keep_private, missing_reference, object, parts, properties, reference,
    required, text,
};
use super::private_link::{self, CONNECTION, LINK_SERVICE};
use super::{interfaces, rows, security};
use crate::arm::{ArmResource, Behaviour, type_of};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::seed;

pub(super) const PRIVATE_ENDPOINT: &str = "Microsoft.Network/privateEndpoints";

/// The interface of the endpoint.
const INTERFACE: &str = "$networkInterface";
/// Whether the service has removed the connection.
const DISCONNECTED: &str = "$disconnected";

/// The arrays of connections, and whether those in them wait for approval.
const CONNECTIONS: [(&str, bool); 2] =
    [("privateLinkServiceConnections", false), ("manualPrivateLinkServiceConnections", true)];

pub(super) struct PrivateEndpoints;

impl Behaviour for PrivateEndpoints {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep_private(before, body);
        keep(before, body, &["resourceGuid"]);
        keep(None, body, &["networkInterfaces"]);
        let guid = seed::uuid(cx.seed, &["guid", &id.key()]).to_string();
        let name = properties(body)
            .get("customNetworkInterfaceName")
            .and_then(Value::as_str)
            .filter(|it| !it.is_empty())
            .map_or_else(|| format!("{}.nic.{guid}", id.name()), str::to_owned);
        default(body, INTERFACE, json!(id.sibling("Microsoft.Network", "networkInterfaces", &name)));
        let inner = properties(body);
        default(inner, "resourceGuid", json!(guid));
        default(inner, "customDnsConfigs", json!([]));
        let Some(subnet) = reference(inner.get("subnet")) else { return Err(required("subnet", id)) };
        if rows::present(cx, &subnet)?.is_none() {
            return Err(missing_reference(&subnet, id));
        }
        for (member, _) in CONNECTIONS {
            default(properties(body), member, json!([]));
            security::fill_parts(id, body, member, |own, connection| {
                let target = connection.get("privateLinkServiceId").and_then(Value::as_str);
                let target = target.and_then(|it| it.parse::<ResourceId>().ok());
                let Some(target) = target else { return Err(required("privateLinkServiceId", own)) };
                match rows::present(cx, &target)? {
                    Some(_) => Ok(()),
                    None => Err(missing_reference(&target, own)),
                }
            })?;
        }
        if connections(body).next().is_none() {
            return Err(required("privateLinkServiceConnections", id));
        }
        Ok(())
    }

    fn stored(&self, cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        let (Some(interface), Some(subnet)) = (interface(resource), reference(resource.property("subnet")))
        else {
            return Ok(());
        };
        interfaces::write_for_endpoint(cx, &interface, &subnet, resource)?;
        for (connection, is_manual) in connections(&resource.body) {
            let Some(service) = service_of(connection) else { continue };
            let Some(found) = rows::present(cx, &service)? else { continue };
            let own = connection_id(cx, &found.id, resource);
            if resource.body.contains_key(DISCONNECTED) || rows::present(cx, &own)?.is_some() {
                continue;
            }
            let is_approved = !is_manual || private_link::approves(&found, resource.id.subscription());
            let inner = connection.get("properties").cloned().unwrap_or_default();
            let description = match is_approved {
                true => "Approved",
                false => text(&inner, "requestMessage").unwrap_or_default(),
            };
            let mut body = Body::new();
            *properties(&mut body) = Body::from_iter([
                ("privateEndpoint".to_owned(), json!({ "id": resource.id })),
                ("privateEndpointLocation".to_owned(), json!(resource.location())),
                ("linkIdentifier".to_owned(), json!(private_link::free_link(cx, &found.id)?)),
                (
                    "privateLinkServiceConnectionState".to_owned(),
                    json!({
                        "status": if is_approved { "Approved" } else { "Pending" },
                        "description": description, "actionsRequired": "None"
                    }),
                ),
            ]);
            rows::write(cx, &own, CONNECTION, body, resource)?;
            rows::touch_parent(cx, &own)?;
        }
        Ok(())
    }

    fn show(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        hide_private(body);
        if let Some(id) = interface(resource) {
            let expanded = expand.is_some_and(|it| it.eq_ignore_ascii_case("networkInterfaces"));
            let shown = if expanded { interfaces::shown(cx, &id)? } else { None };
            let shown = shown.unwrap_or_else(|| json!({ "id": id }));
            properties(body).insert("networkInterfaces".to_owned(), json!([shown]));
        }
        for (member, _) in CONNECTIONS {
            security::show_parts(cx, resource, body, member);
            for part in properties(body).get_mut(member).and_then(Value::as_array_mut).into_iter().flatten() {
                let state = state_of(cx, resource, part)?;
                if let Value::Object(part) = part {
                    object(part, "properties").insert("privateLinkServiceConnectionState".to_owned(), state);
                }
            }
        }
        Ok(())
    }

    fn deleted(&self, cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        if let Some(id) = interface(resource) {
            rows::delete_at(cx, &id, resource.settles)?;
        }
        for (connection, _) in connections(&resource.body) {
            if let Some(service) = service_of(connection) {
                rows::delete_at(cx, &connection_id(cx, &service, resource), resource.settles)?;
            }
        }
        Ok(())
    }

    /// Besides its subnet, the link services that it is connected to: they cannot go before it.
    fn references(&self, id: &ResourceId, body: &Body) -> Vec<ResourceId> {
        let mut used = crate::arm::references::in_properties(id, body);
        if !body.contains_key(DISCONNECTED) {
            used.extend(connections(body).filter_map(|(it, _)| service_of(it)));
        }
        used
    }
}

fn interface(resource: &ArmResource) -> Option<ResourceId> {
    resource.body.get(INTERFACE)?.as_str()?.parse().ok()
}

/// The connections of an endpoint, and whether each waits for approval.
fn connections(body: &Body) -> impl Iterator<Item = (&Value, bool)> {
    CONNECTIONS.iter().flat_map(move |(member, is_manual)| parts(body, member).map(|it| (it, *is_manual)))
}

/// The link service that a connection leads to; none when it leads to a service of another kind.
fn service_of(connection: &Value) -> Option<ResourceId> {
    let target = connection.get("properties")?.get("privateLinkServiceId")?.as_str()?;
    let target: ResourceId = target.parse().ok()?;
    type_of(&target).is_some_and(|it| it.eq_ignore_ascii_case(LINK_SERVICE)).then_some(target)
}

fn connection_id(cx: &CallContext<'_>, service: &ResourceId, endpoint: &ArmResource) -> ResourceId {
    let guid = seed::uuid(cx.seed, &["connection", &service.key(), &endpoint.id.key()]);
    service.child("privateEndpointConnections", &format!("{}.{guid}", endpoint.id.name()))
}

/// The state of a connection of an endpoint.
fn state_of(cx: &CallContext<'_>, endpoint: &ArmResource, connection: &Value) -> Result<Value, Failure> {
    let approved = json!({ "status": "Approved", "description": "", "actionsRequired": "None" });
    let Some(service) = service_of(connection) else { return Ok(approved) };
    let found = rows::present(cx, &connection_id(cx, &service, endpoint))?;
    let state = found.and_then(|it| it.property("privateLinkServiceConnectionState").cloned());
    Ok(state.unwrap_or_else(
        || json!({ "status": "Disconnected", "description": "", "actionsRequired": "Delete and recreate" }),
    ))
}

/// Marks an endpoint whose connection was removed by the service.
pub(super) fn disconnect(cx: &CallContext<'_>, endpoint: &ResourceId) -> Result<(), Failure> {
    match rows::present(cx, endpoint)? {
        Some(mut found) => {
            found.body.insert(DISCONNECTED.to_owned(), json!(true));
            rows::replace(cx, &found)
        }
        None => Ok(()),
    }
}
