//! Network security groups and route tables. Rules and routes are parts of their bodies.

use cloud::ResourceId;
use serde_json::{Value, json};

use super::body::{Body, default, invalid, keep, object, parts, properties, required, same, text};
use super::rows;
use crate::arm::{ArmResource, Behaviour};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::seed;

pub(super) struct SecurityGroups;

impl Behaviour for SecurityGroups {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep(before, body, &["resourceGuid"]);
        keep(None, body, &["defaultSecurityRules", "subnets", "networkInterfaces", "flowLogs"]);
        let guid = seed::uuid(cx.seed, &["guid", &id.key()]).to_string();
        default(properties(body), "resourceGuid", json!(guid));
        default(properties(body), "securityRules", json!([]));
        fill_parts(id, body, "securityRules", check_rule)?;
        check_priorities(body)
    }

    fn show(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        _expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        show_parts(cx, resource, body, "securityRules");
        let rules: Vec<Value> = DEFAULT_RULES.iter().map(|rule| default_rule(cx, resource, *rule)).collect();
        properties(body).insert("defaultSecurityRules".to_owned(), Value::Array(rules));
        show_users(cx, resource, body, &[("subnets", "subnets"), ("networkInterfaces", "networkInterfaces")])
    }

    fn in_use(&self, resource: &ArmResource, user: &ResourceId) -> (String, String) {
        let message = format!(
            "Network security group {} cannot be deleted because it is in use by the following resources: {user}. In order to \
             delete the Network security group, remove the association with the resource(s). To learn how to do this, see \
             aka.ms/deletensg.",
            resource.id
        );
        ("InUseNetworkSecurityGroupCannotBeDeleted".to_owned(), message)
    }
}

pub(super) struct RouteTables;

impl Behaviour for RouteTables {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep(before, body, &["resourceGuid"]);
        keep(None, body, &["subnets"]);
        let guid = seed::uuid(cx.seed, &["guid", &id.key()]).to_string();
        default(properties(body), "resourceGuid", json!(guid));
        default(properties(body), "disableBgpRoutePropagation", json!(false));
        default(properties(body), "routes", json!([]));
        fill_parts(id, body, "routes", |id, route| {
            match ["addressPrefix", "nextHopType"].into_iter().find(|it| !route.contains_key(*it)) {
                Some(missing) => Err(required(missing, id)),
                None => Ok(()),
            }
        })
    }

    fn show(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        _expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        show_parts(cx, resource, body, "routes");
        show_users(cx, resource, body, &[("subnets", "subnets")])
    }

    fn in_use(&self, resource: &ArmResource, user: &ResourceId) -> (String, String) {
        let message = format!("Route table {} is in use and cannot be deleted: {user}.", resource.id.name());
        ("InUseRouteTableCannotBeDeleted".to_owned(), message)
    }
}

/// Gives each part of an array its id, and checks its properties.
pub(super) fn fill_parts(
    id: &ResourceId,
    body: &mut Body,
    member: &str,
    check: impl Fn(&ResourceId, &Body) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut names: Vec<String> = Vec::new();
    for part in properties(body).get_mut(member).and_then(Value::as_array_mut).into_iter().flatten() {
        let name = text(part, "name").unwrap_or_default().to_owned();
        let Value::Object(part) = part else {
            return Err(invalid(
                "InvalidRequestFormat",
                format!("An item of {member} in {id} is no object."),
            ));
        };
        if name.is_empty() || names.iter().any(|it| same(it, &name)) {
            let message =
                format!("Items of {member} in {id} need names of their own; '{name}' is empty or repeated.");
            return Err(invalid("DuplicateResourceName", message));
        }
        let own = id.child(member, &name);
        names.push(name);
        part.remove("etag");
        part.remove("type");
        let inner = object(part, "properties");
        inner.remove("provisioningState");
        check(&own, inner)?;
        part.insert("id".to_owned(), json!(own));
    }
    Ok(())
}

/// Adds the members that every part of a body shows.
pub(super) fn show_parts(cx: &CallContext<'_>, resource: &ArmResource, body: &mut Body, member: &str) {
    for part in properties(body).get_mut(member).and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(part) = part {
            part.insert("etag".to_owned(), json!(resource.etag(cx.seed)));
            part.insert("type".to_owned(), json!(format!("{}/{member}", resource.type_name)));
            let state = resource.provisioning_state(cx.now);
            object(part, "properties").insert("provisioningState".to_owned(), json!(state));
        }
    }
}

/// Shows the ids of the resources of some types that refer to a resource, each type in its member.
pub(super) fn show_users(
    cx: &CallContext<'_>,
    resource: &ArmResource,
    body: &mut Body,
    members: &[(&str, &str)],
) -> Result<(), Failure> {
    let users = rows::users(cx, &resource.id)?;
    for (member, kind) in members {
        let is_kind = |it: &&ArmResource| it.type_name.rsplit('/').next().is_some_and(|it| same(it, kind));
        let ids: Vec<Value> = users.iter().filter(is_kind).map(|it| json!({ "id": it.id })).collect();
        if !ids.is_empty() {
            properties(body).insert((*member).to_owned(), Value::Array(ids));
        }
    }
    Ok(())
}

fn check_rule(id: &ResourceId, rule: &Body) -> Result<(), Failure> {
    for member in ["protocol", "access", "direction", "priority"] {
        if rule.get(member).is_none_or(Value::is_null) {
            return Err(required(member, id));
        }
    }
    let priority = rule.get("priority").and_then(Value::as_u64).unwrap_or(0);
    if !(100..=4096).contains(&priority) {
        let message = format!(
            "Security rule has invalid Priority. Value provided: {priority}. Allowed range 100-4096. Security rule: {id}."
        );
        return Err(invalid("SecurityRuleInvalidPriority", message));
    }
    Ok(())
}

/// Two rules of one direction have different priorities.
fn check_priorities(body: &Body) -> Result<(), Failure> {
    let mut known: Vec<(u64, String, String)> = Vec::new();
    for rule in parts(body, "securityRules") {
        let inner = rule.get("properties").cloned().unwrap_or_default();
        let priority = inner.get("priority").and_then(Value::as_u64).unwrap_or(0);
        let direction = text(&inner, "direction").unwrap_or_default().to_lowercase();
        let name = text(rule, "name").unwrap_or_default().to_owned();
        if let Some((_, _, other)) = known.iter().find(|(p, d, _)| *p == priority && *d == direction) {
            let message = format!(
                "Security rule {other} conflicts with rule {name}. Rules cannot have the same Priority and Direction."
            );
            return Err(invalid("SecurityRuleConflict", message));
        }
        known.push((priority, direction, name));
    }
    Ok(())
}

/// Name, priority, direction, whether it allows, source, destination.
type DefaultRule = (&'static str, u32, &'static str, bool, &'static str, &'static str);

const DEFAULT_RULES: [DefaultRule; 6] = [
    ("AllowVnetInBound", 65000, "Inbound", true, "VirtualNetwork", "VirtualNetwork"),
    ("AllowAzureLoadBalancerInBound", 65001, "Inbound", true, "AzureLoadBalancer", "*"),
    ("DenyAllInBound", 65500, "Inbound", false, "*", "*"),
    ("AllowVnetOutBound", 65000, "Outbound", true, "VirtualNetwork", "VirtualNetwork"),
    ("AllowInternetOutBound", 65001, "Outbound", true, "*", "Internet"),
    ("DenyAllOutBound", 65500, "Outbound", false, "*", "*"),
];

fn default_rule(cx: &CallContext<'_>, resource: &ArmResource, rule: DefaultRule) -> Value {
    let (name, priority, direction, allows, source, destination) = rule;
    json!({
        "id": resource.id.child("defaultSecurityRules", name), "name": name, "etag": resource.etag(cx.seed),
        "type": "Microsoft.Network/networkSecurityGroups/defaultSecurityRules",
        "properties": {
            "provisioningState": "Succeeded", "protocol": "*", "sourcePortRange": "*", "destinationPortRange": "*",
            "sourceAddressPrefix": source, "destinationAddressPrefix": destination,
            "access": if allows { "Allow" } else { "Deny" }, "priority": priority, "direction": direction
        }
    })
}
