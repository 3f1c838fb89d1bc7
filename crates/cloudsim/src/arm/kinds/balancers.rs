//! Load balancers. Frontends, pools, probes and rules are parts of the body; interfaces join pools by themselves.

use std::time::Duration;

use cloud::ResourceId;
use serde_json::{Value, json};

use super::allocation::Allocation;
use super::body::{
    Body, default, invalid, items, keep, missing_reference, object, parts, properties, reference, same, text,
};
use super::{addresses, interfaces, machines, rows, security};
use crate::arm::{ActionOutcome, ArmError, ArmResource, Behaviour};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::seed;

/// The arrays of a load balancer.
const PARTS: [&str; 7] = [
    "frontendIPConfigurations",
    "backendAddressPools",
    "loadBalancingRules",
    "probes",
    "inboundNatRules",
    "inboundNatPools",
    "outboundRules",
];

/// Members of parts that are shown and never stored.
const BACK_REFERENCES: [&str; 6] = [
    "loadBalancingRules",
    "outboundRules",
    "outboundRule",
    "inboundNatRules",
    "backendIPConfigurations",
    "privateLinkServices",
];

/// References of rules: the arrays that have them, the member, and the array that it refers to.
const REFERENCES: [(&str, &str, &str); 10] = [
    ("loadBalancingRules", "frontendIPConfiguration", "frontendIPConfigurations"),
    ("loadBalancingRules", "backendAddressPool", "backendAddressPools"),
    ("loadBalancingRules", "backendAddressPools", "backendAddressPools"),
    ("loadBalancingRules", "probe", "probes"),
    ("outboundRules", "frontendIPConfigurations", "frontendIPConfigurations"),
    ("outboundRules", "backendAddressPool", "backendAddressPools"),
    ("inboundNatRules", "frontendIPConfiguration", "frontendIPConfigurations"),
    ("inboundNatRules", "backendAddressPool", "backendAddressPools"),
    ("inboundNatPools", "frontendIPConfiguration", "frontendIPConfigurations"),
    ("loadBalancingRules", "frontendIPConfigurations", "frontendIPConfigurations"),
];

pub(super) struct LoadBalancers;

impl Behaviour for LoadBalancers {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep(before, body, &["resourceGuid"]);
        let sku = object(body, "sku");
        default(sku, "name", json!("Standard"));
        default(sku, "tier", json!("Regional"));
        let sku = sku.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let guid = seed::uuid(cx.seed, &["guid", &id.key()]).to_string();
        default(properties(body), "resourceGuid", json!(guid));
        for member in PARTS {
            default(properties(body), member, json!([]));
            for part in properties(body).get_mut(member).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Value::Object(part) = part {
                    let inner = object(part, "properties");
                    // In an outbound rule, frontends are what it refers to; elsewhere these members are back references.
                    BACK_REFERENCES.iter().for_each(|it| drop(inner.remove(*it)));
                }
            }
            security::fill_parts(id, body, member, |_, _| Ok(()))?;
        }
        fill_frontends(cx, id, &sku, before, body)?;
        fill_rules(body);
        check_references(id, body)
    }

    fn show(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        _expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        PARTS.iter().for_each(|member| security::show_parts(cx, resource, body, member));
        for (rules, member, target) in REFERENCES {
            show_back_references(&resource.body, body, rules, member, target);
        }
        for (pool, configuration) in members(cx, resource)? {
            push(body, "backendAddressPools", &pool, "backendIPConfigurations", configuration.get("id"));
        }
        Ok(())
    }

    /// Interfaces leave the pools of a load balancer that is deleted.
    fn blocks_deletion(&self, _resource: &ArmResource, user: &ResourceId) -> bool {
        !user.key().contains("/microsoft.network/networkinterfaces/")
    }

    fn in_use(&self, resource: &ArmResource, user: &ResourceId) -> (String, String) {
        let id = &resource.id;
        match user.key().contains("/privatelinkservices/") {
            true => (
                "CannotDeleteLoadBalancerWithPrivateLinkService".to_owned(),
                format!(
                    "Cannot delete load balancer {id} since it is referenced by private link service {user}."
                ),
            ),
            false => (
                "InUseLoadBalancerCannotBeDeleted".to_owned(),
                format!("Load balancer {id} is in use by {user} and cannot be deleted."),
            ),
        }
    }

    fn act(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        action: &str,
        _query: &[(String, String)],
        _body: &Value,
    ) -> Result<Option<ActionOutcome>, Failure> {
        let words: Vec<&str> = action.split('/').collect();
        let [collection, rule, verb] = words[..] else { return Ok(None) };
        if !same(collection, "loadBalancingRules") || !same(verb, "health") {
            return Ok(None);
        }
        let result = health(cx, resource, rule)?;
        Ok(Some(ActionOutcome::Accepted { span: Duration::from_secs(1), result, change: None }))
    }
}

fn fill_frontends(
    cx: &CallContext<'_>,
    id: &ResourceId,
    sku: &str,
    before: Option<&ArmResource>,
    body: &mut Body,
) -> Result<(), Failure> {
    let mut allocation = Allocation::new(cx, id);
    let frontends = properties(body).get_mut("frontendIPConfigurations").and_then(Value::as_array_mut);
    for frontend in frontends.into_iter().flatten() {
        let name = text(frontend, "name").unwrap_or_default().to_owned();
        let had = before
            .into_iter()
            .flat_map(|it| parts(&it.body, "frontendIPConfigurations"))
            .find(|it| text(it, "name").is_some_and(|it| same(it, &name)));
        allocation.fill(frontend, had)?;
        let inner = frontend.get("properties").cloned().unwrap_or_default();
        match (reference(inner.get("publicIPAddress")), reference(inner.get("subnet"))) {
            (Some(address), None) => {
                let own = id.child("frontendIPConfigurations", &name);
                let found = rows::present(cx, &address)?.ok_or_else(|| missing_reference(&address, &own))?;
                let other = found.body.get("sku").and_then(|it| text(it, "name")).unwrap_or_default();
                if !same(other, sku) {
                    let message = format!(
                        "{sku} sku load balancer {id} cannot reference {other} sku publicIP {address}."
                    );
                    let code = "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed";
                    return Err(invalid(code, message));
                }
                addresses::check_free(cx, &address, id)?;
                if let Value::Object(frontend) = frontend {
                    let inner = object(frontend, "properties");
                    default(inner, "privateIPAllocationMethod", json!("Dynamic"));
                }
            }
            (None, Some(_)) => {}
            _ => {
                let message = format!(
                    "Frontend IP configuration {name} of load balancer {id} must reference either a subnet or a public IP address."
                );
                return Err(invalid(
                    "LoadBalancerFrontendIPConfigMustHaveEitherSubnetOrPublicIPAddress",
                    message,
                ));
            }
        }
    }
    Ok(())
}

/// The defaults of rules and probes.
fn fill_rules(body: &mut Body) {
    let defaults: [(&str, &[(&str, Value)]); 3] = [
        (
            "loadBalancingRules",
            &[
                ("idleTimeoutInMinutes", json!(4)),
                ("loadDistribution", json!("Default")),
                ("enableFloatingIP", json!(false)),
                ("disableOutboundSnat", json!(false)),
                ("enableTcpReset", json!(false)),
            ],
        ),
        (
            "probes",
            &[("intervalInSeconds", json!(15)), ("numberOfProbes", json!(2)), ("probeThreshold", json!(1))],
        ),
        ("outboundRules", &[("idleTimeoutInMinutes", json!(4)), ("enableTcpReset", json!(false))]),
    ];
    for (member, values) in defaults {
        for part in properties(body).get_mut(member).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Value::Object(part) = part {
                let inner = object(part, "properties");
                values.iter().for_each(|(name, value)| default(inner, name, value.clone()));
            }
        }
    }
}

/// The ids in a member that is a reference or an array of references.
fn targets(part: &Value, member: &str) -> Vec<ResourceId> {
    let Some(found) = part.get("properties").and_then(|it| it.get(member)) else { return Vec::new() };
    match found {
        Value::Array(found) => found.iter().filter_map(|it| reference(Some(it))).collect(),
        found => reference(Some(found)).into_iter().collect(),
    }
}

fn check_references(id: &ResourceId, body: &Body) -> Result<(), Failure> {
    for (rules, member, target) in REFERENCES {
        for rule in parts(body, rules) {
            for used in targets(rule, member) {
                let known = parts(body, target)
                    .filter_map(|it| text(it, "name"))
                    .any(|name| id.child(target, name) == used);
                if !known {
                    let user = id.child(rules, text(rule, "name").unwrap_or_default());
                    return Err(missing_reference(&used, user));
                }
            }
        }
    }
    Ok(())
}

/// Adds the ids of rules to the parts that they refer to.
fn show_back_references(stored: &Body, body: &mut Body, rules: &str, member: &str, target: &str) {
    for rule in parts(stored, rules) {
        for used in targets(rule, member) {
            push(body, target, used.name(), rules, rule.get("id"));
        }
    }
}

/// Adds a reference to an array of a part.
fn push(body: &mut Body, member: &str, name: &str, array: &str, id: Option<&Value>) {
    let found = properties(body).get_mut(member).and_then(Value::as_array_mut);
    let found = found.into_iter().flatten().find(|it| text(it, "name").is_some_and(|it| same(it, name)));
    let (Some(Value::Object(part)), Some(id)) = (found, id) else { return };
    let inner = object(part, "properties");
    default(inner, array, json!([]));
    if let Some(Value::Array(ids)) = inner.get_mut(array) {
        let entry = json!({ "id": id });
        if !ids.contains(&entry) {
            ids.push(entry);
        }
    }
}

/// The configurations of interfaces in the pools of a load balancer, with the pools' names.
fn members(cx: &CallContext<'_>, resource: &ArmResource) -> Result<Vec<(String, Value)>, Failure> {
    let mut found = Vec::new();
    for user in rows::users(cx, &resource.id)? {
        for configuration in parts(&user.body, "ipConfigurations") {
            let inner = configuration.get("properties").cloned().unwrap_or_default();
            for pool in items(&inner, "loadBalancerBackendAddressPools").filter_map(|it| reference(Some(it)))
            {
                if pool.parent().as_ref() == Some(&resource.id) {
                    found.push((pool.name().to_owned(), configuration.clone()));
                }
            }
        }
    }
    Ok(found)
}

/// The health of the members of a rule's pools: a member is up while its machine runs.
fn health(cx: &CallContext<'_>, resource: &ArmResource, rule: &str) -> Result<Value, Failure> {
    let found = parts(&resource.body, "loadBalancingRules")
        .find(|it| text(it, "name").is_some_and(|it| same(it, rule)))
        .ok_or_else(|| {
            let id = resource.id.child("loadBalancingRules", rule);
            ArmError::not_found("NotFound", format!("Resource {id} not found."))
        })?;
    let mut pools = targets(found, "backendAddressPool");
    pools.extend(targets(found, "backendAddressPools"));
    let (mut up, mut down, mut addresses) = (0, 0, Vec::new());
    for (pool, configuration) in members(cx, resource)? {
        if !pools.iter().any(|it| same(it.name(), &pool)) {
            continue;
        }
        let Some(id) = reference(Some(&configuration)) else { continue };
        let interface = id.parent().map(|it| rows::present(cx, &it)).transpose()?.flatten();
        let machine = interface.map(|it| interfaces::machine_of(cx, &it)).transpose()?.flatten();
        let is_up = machine.is_some_and(|it| machines::is_running(&it, cx.now));
        if is_up {
            up += 1;
        } else {
            down += 1;
        }
        addresses.push(json!({
            "networkInterfaceIPConfigurationId": { "id": id },
            "ipAddress": configuration.get("properties").and_then(|it| it.get("privateIPAddress")),
            "state": if is_up { "Up" } else { "Down" },
            "reason": if is_up { "Healthy" } else { "Unhealthy" },
        }));
    }
    Ok(json!({ "up": up, "down": down, "loadBalancerBackendAddresses": addresses }))
}
