//! Public addresses and NAT gateways.

use std::net::Ipv4Addr;

use cloud::ResourceId;
use serde_json::{Value, json};

use super::body::{Body, default, invalid, items, keep, object, properties, reference, same, text};
use super::{rows, security};
use crate::arm::{ArmResource, Behaviour};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::{database, seed};

/// Public addresses come from the range reserved for benchmarks, so that none belongs to anybody.
const PUBLIC: u32 = 0xc612_0000; // 198.18.0.0/15
const PUBLIC_COUNT: u32 = 1 << 17;
/// The number of addresses that were assigned so far.
const COUNTER: (&str, &str) = ("meta", "arm-public-addresses");

pub(super) struct PublicAddresses;

impl Behaviour for PublicAddresses {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep(before, body, &["ipAddress", "resourceGuid"]);
        keep(None, body, &["ipConfiguration", "natGateway"]);
        if let Some(before) = before
            && before.body.get("zones").is_some_and(|it| body.get("zones") != Some(it))
        {
            let message = format!(
                "Resource {id} has an existing availability zone constraint and it cannot be changed."
            );
            return Err(invalid("ResourceAvailabilityZonesCannotBeModified", message));
        }
        let sku = object(body, "sku");
        default(sku, "name", json!("Standard"));
        default(sku, "tier", json!("Regional"));
        let is_standard = sku.get("name").and_then(Value::as_str).is_some_and(|it| same(it, "Standard"));
        let location = body.get("location").and_then(Value::as_str).unwrap_or_default().to_owned();
        let properties = properties(body);
        default(properties, "publicIPAllocationMethod", json!("Dynamic"));
        let is_static = properties
            .get("publicIPAllocationMethod")
            .and_then(Value::as_str)
            .is_some_and(|it| same(it, "Static"));
        if is_standard && !is_static {
            let message = format!("Standard sku publicIp {id} must have AllocationMethod set to Static.");
            return Err(invalid("StandardSkuPublicIPAddressMustBeStatic", message));
        }
        default(properties, "publicIPAddressVersion", json!("IPv4"));
        default(properties, "idleTimeoutInMinutes", json!(4));
        default(properties, "ipTags", json!([]));
        default(properties, "resourceGuid", json!(seed::uuid(cx.seed, &["guid", &id.key()]).to_string()));
        if is_static && !properties.contains_key("ipAddress") {
            let number: u32 = database::record(cx.db, COUNTER.0, COUNTER.1)?.unwrap_or(0);
            database::write(cx.db, COUNTER.0, COUNTER.1, &number.wrapping_add(1))?;
            let address = Ipv4Addr::from_bits(PUBLIC + number % PUBLIC_COUNT).to_string();
            properties.insert("ipAddress".to_owned(), json!(address));
        }
        if let Some(Value::Object(settings)) = properties.get_mut("dnsSettings")
            && let Some(label) = settings.get("domainNameLabel").and_then(Value::as_str)
        {
            let name = format!("{label}.{location}.cloudapp.azure.com");
            settings.insert("fqdn".to_owned(), json!(name));
        }
        Ok(())
    }

    fn show(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        _expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        for user in rows::users(cx, &resource.id)? {
            if user.type_name.ends_with("natGateways") {
                properties(body).insert("natGateway".to_owned(), json!({ "id": user.id }));
            } else if let Some(configuration) = configuration_of(&user, &resource.id) {
                properties(body).insert("ipConfiguration".to_owned(), json!({ "id": configuration }));
            }
        }
        Ok(())
    }

    fn in_use(&self, resource: &ArmResource, user: &ResourceId) -> (String, String) {
        let message = format!(
            "Public IP address {} can not be deleted since it is still allocated to resource {user}. In order to delete the \
             public IP, disassociate/detach the Public IP address from the resource. To learn how to do this, see \
             aka.ms/deletepublicip.",
            resource.id
        );
        ("PublicIPAddressCannotBeDeleted".to_owned(), message)
    }
}

/// The id of the configuration of a resource that has a public address.
fn configuration_of(user: &ArmResource, address: &ResourceId) -> Option<String> {
    let properties = user.body.get("properties")?;
    ["frontendIPConfigurations", "ipConfigurations"]
        .into_iter()
        .flat_map(|member| items(properties, member))
        .find(|it| {
            reference(it.get("properties").and_then(|it| it.get("publicIPAddress"))).as_ref() == Some(address)
        })
        .and_then(|it| text(it, "id"))
        .map(str::to_owned)
}

/// An address belongs to one resource.
pub(super) fn check_free(
    cx: &CallContext<'_>,
    address: &ResourceId,
    user: &ResourceId,
) -> Result<(), Failure> {
    match rows::users(cx, address)?.iter().find(|it| it.id != *user) {
        Some(other) => {
            let message = format!(
                "Resource {user} is referencing public IP address {address} that is already allocated to resource {}.",
                other.id
            );
            Err(invalid("PublicIPAddressInUse", message))
        }
        None => Ok(()),
    }
}

pub(super) struct NatGateways;

impl Behaviour for NatGateways {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep(before, body, &["resourceGuid"]);
        keep(None, body, &["subnets"]);
        default(object(body, "sku"), "name", json!("Standard"));
        let properties = properties(body);
        default(properties, "resourceGuid", json!(seed::uuid(cx.seed, &["guid", &id.key()]).to_string()));
        default(properties, "idleTimeoutInMinutes", json!(4));
        let properties = Value::Object(properties.clone());
        for address in items(&properties, "publicIpAddresses").filter_map(|it| reference(Some(it))) {
            check_free(cx, &address, id)?;
        }
        Ok(())
    }

    fn show(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        _expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        security::show_users(cx, resource, body, &[("subnets", "subnets")])
    }

    fn in_use(&self, resource: &ArmResource, user: &ResourceId) -> (String, String) {
        let message =
            format!("NAT gateway {} cannot be deleted: it is in use by subnet {user}.", resource.id);
        ("InUseNatGatewayCannotBeDeleted".to_owned(), message)
    }
}
