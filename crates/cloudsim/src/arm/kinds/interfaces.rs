//! Network interfaces.

use cloud::ResourceId;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::allocation::Allocation;
use super::body::{
    Body, default, hide_private, invalid, items, keep, keep_private, missing_reference, object, parts,
    properties, reference, required, same, text,
};
use super::{addresses, machines, rows, security};
use crate::arm::{ArmResource, Behaviour};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::seed;

pub(super) const INTERFACE: &str = "Microsoft.Network/networkInterfaces";

/// The time until which the interface of a deleted machine cannot be deleted.
const RESERVED: &str = "$reservedUntil";
/// The private endpoint that an interface was made for.
const ENDPOINT: &str = "$privateEndpoint";

pub(super) struct Interfaces;

impl Behaviour for Interfaces {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep_private(before, body);
        keep(before, body, &["resourceGuid", "macAddress"]);
        keep(None, body, &["virtualMachine", "privateEndpoint", "hostedWorkloads"]);
        fill(cx, id, before, body)
    }

    fn show(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        _expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        let endpoint = body.get(ENDPOINT).cloned();
        hide_private(body);
        security::show_parts(cx, resource, body, "ipConfigurations");
        if let Some(endpoint) = endpoint {
            properties(body).insert("privateEndpoint".to_owned(), json!({ "id": endpoint }));
        }
        if let Some(machine) = machine_of(cx, resource)? {
            let shown = properties(body);
            shown.insert("virtualMachine".to_owned(), json!({ "id": machine.id }));
            shown.insert("primary".to_owned(), json!(true));
        }
        Ok(())
    }

    fn in_use(&self, resource: &ArmResource, user: &ResourceId) -> (String, String) {
        let message = format!(
            "Network Interface {} is used by existing resource {user}. In order to delete the network interface, it must be \
             dissociated from the resource. To learn more, see aka.ms/deletenic.",
            resource.id
        );
        ("NicInUse".to_owned(), message)
    }

    fn may_delete(&self, cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        let text_of = |name: &str| resource.body.get(name).and_then(Value::as_str);
        if let Some(endpoint) = text_of(ENDPOINT).and_then(|it| it.parse::<ResourceId>().ok())
            && rows::present(cx, &endpoint)?.is_some()
        {
            let (code, message) = self.in_use(resource, &endpoint);
            return Err(invalid(&code, message));
        }
        let until = text_of(RESERVED).and_then(|it| it.parse::<Timestamp>().ok());
        if until.is_some_and(|until| cx.now < until) {
            let message = format!(
                "Nic(s) in request is reserved for another Virtual Machine for 180 seconds. Please provide another nic(s) or \
                 retry after 180 seconds. Reserved NIC: {}.",
                resource.id
            );
            return Err(invalid("NicReservedForAnotherVm", message));
        }
        Ok(())
    }
}

fn fill(
    cx: &CallContext<'_>,
    id: &ResourceId,
    before: Option<&ArmResource>,
    body: &mut Body,
) -> Result<(), Failure> {
    let guid = seed::uuid(cx.seed, &["guid", &id.key()]).to_string();
    let mac = seed::draw(cx.seed, &["mac", &id.key()]).to_be_bytes();
    let inner = properties(body);
    default(inner, "resourceGuid", json!(guid));
    default(inner, "macAddress", json!(format!("00-0D-3A-{:02X}-{:02X}-{:02X}", mac[0], mac[1], mac[2])));
    for flag in ["enableIPForwarding", "enableAcceleratedNetworking", "disableTcpStateTracking"] {
        default(inner, flag, json!(false));
    }
    default(inner, "nicType", json!("Standard"));
    default(inner, "hostedWorkloads", json!([]));
    let dns = object(inner, "dnsSettings");
    default(dns, "dnsServers", json!([]));
    default(dns, "appliedDnsServers", json!([]));
    if inner.get("ipConfigurations").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        return Err(required("ipConfigurations", id));
    }
    security::fill_parts(id, body, "ipConfigurations", |_, _| Ok(()))?;
    let mut allocation = Allocation::new(cx, id);
    let configurations = properties(body).get_mut("ipConfigurations").and_then(Value::as_array_mut);
    for (number, configuration) in configurations.into_iter().flatten().enumerate() {
        let name = text(configuration, "name").unwrap_or_default().to_owned();
        let had = before
            .into_iter()
            .flat_map(|it| parts(&it.body, "ipConfigurations"))
            .find(|it| text(it, "name").is_some_and(|it| same(it, &name)));
        allocation.fill(configuration, had)?;
        if let Value::Object(configuration) = configuration {
            let inner = object(configuration, "properties");
            default(inner, "primary", json!(number == 0));
            if reference(inner.get("subnet")).is_none() {
                return Err(required("subnet", &id.child("ipConfigurations", &name)));
            }
            if let Some(address) = reference(inner.get("publicIPAddress")) {
                addresses::check_free(cx, &address, id)?;
            }
            let inner = Value::Object(inner.clone());
            for pool in items(&inner, "loadBalancerBackendAddressPools").filter_map(|it| reference(Some(it)))
            {
                check_pool(cx, &pool, id)?;
            }
        }
    }
    Ok(())
}

/// A pool must be one of its load balancer's.
fn check_pool(cx: &CallContext<'_>, pool: &ResourceId, user: &ResourceId) -> Result<(), Failure> {
    let balancer = pool.parent().map(|it| rows::present(cx, &it)).transpose()?.flatten();
    let known = balancer.is_some_and(|it| {
        parts(&it.body, "backendAddressPools")
            .any(|it| text(it, "name").is_some_and(|it| same(it, pool.name())))
    });
    if known { Ok(()) } else { Err(missing_reference(pool, user)) }
}

/// The machine that an interface is attached to.
pub(super) fn machine_of(
    cx: &CallContext<'_>,
    interface: &ArmResource,
) -> Result<Option<ArmResource>, Failure> {
    Ok(rows::users(cx, &interface.id)?.into_iter().find(|it| same(&it.type_name, machines::MACHINE)))
}

/// Reserves an interface after its machine was deleted.
pub(super) fn reserve(cx: &CallContext<'_>, id: &ResourceId, until: Timestamp) -> Result<(), Failure> {
    match rows::present(cx, id)? {
        Some(mut found) => {
            found.body.insert(RESERVED.to_owned(), json!(until.to_string()));
            rows::replace(cx, &found)
        }
        None => Ok(()),
    }
}

/// The interface of a private endpoint: created or kept with its address.
pub(super) fn write_for_endpoint(
    cx: &CallContext<'_>,
    id: &ResourceId,
    subnet: &ResourceId,
    endpoint: &ArmResource,
) -> Result<(), Failure> {
    let before = rows::present(cx, id)?;
    let configuration = json!({
        "name": format!("privateEndpointIpConfig.{}", seed::uuid(cx.seed, &["ip-configuration", &id.key()])),
        "properties": { "subnet": { "id": subnet }, "primary": true, "privateIPAllocationMethod": "Dynamic" }
    });
    let mut body = Body::new();
    body.insert("location".to_owned(), json!(endpoint.location()));
    body.insert(ENDPOINT.to_owned(), json!(endpoint.id));
    body.insert("properties".to_owned(), json!({ "ipConfigurations": [configuration] }));
    keep(before.as_ref(), &mut body, &["resourceGuid", "macAddress"]);
    fill(cx, id, before.as_ref(), &mut body)?;
    rows::write(cx, id, INTERFACE, body, endpoint)
}

/// An interface as it is shown inside the resource that it was made for.
pub(super) fn shown(cx: &CallContext<'_>, id: &ResourceId) -> Result<Option<Value>, Failure> {
    let Some(found) = rows::present(cx, id)? else { return Ok(None) };
    let mut body = found.body.clone();
    Interfaces.show(cx, &found, None, &mut body)?;
    Ok(Some(super::body::embedded(cx, &found, body)))
}
