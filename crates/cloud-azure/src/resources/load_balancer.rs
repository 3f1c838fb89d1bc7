//! Load balancers with the probes, rules and pools of a cluster, whose names clusters rely on.

use cloud::{LoadBalancerBackend, LoadBalancerFrontend, Properties, ResourceId};
use serde_json::{Value, json};

use crate::json::{id_at, items, optional_text, retain, set, set_reference, text, upsert};

const OUTBOUND_RULE: &str = "outbound-rule-v4";
/// Ports from which the machines of the control plane are reached by SSH, one for each.
const SSH_PORTS: std::ops::RangeInclusive<u16> = 2200..=2202;

/// The rule of a frontend's port.
struct PortRule {
    name: String,
    backend_port: u16,
    pool: String,
    probe: String,
    probe_path: Option<&'static str>,
    disable_outbound_snat: bool,
}

fn port_rule(infra: &str, port: u16) -> PortRule {
    let https = |name: &str, probe: &str, path, disable_outbound_snat| PortRule {
        name: name.to_owned(),
        backend_port: port,
        pool: infra.to_owned(),
        probe: probe.to_owned(),
        probe_path: Some(path),
        disable_outbound_snat,
    };
    match port {
        6443 => https("api-internal-v4", "api-internal-probe", "/readyz", true),
        22623 => https("sint-v4", "sint-probe", "/healthz", false),
        port if SSH_PORTS.contains(&port) => {
            let name = format!("ssh-{}", port - SSH_PORTS.start());
            PortRule {
                pool: name.clone(),
                name,
                backend_port: 22,
                probe: "ssh".to_owned(),
                probe_path: None,
                disable_outbound_snat: true,
            }
        }
        port => PortRule {
            name: format!("port-{port}"),
            backend_port: port,
            pool: infra.to_owned(),
            probe: format!("port-{port}-probe"),
            probe_path: None,
            disable_outbound_snat: true,
        },
    }
}

fn is_own_rule(name: &str) -> bool {
    name == "api-internal-v4" || name == "sint-v4" || name.starts_with("ssh-") || name.starts_with("port-")
}

/// The name of the cluster's infrastructure, after which the pool is named.
fn infra(id: &ResourceId) -> &str {
    id.name().strip_suffix("-internal").unwrap_or(id.name())
}

pub(super) fn apply(
    body: &mut Value,
    id: &ResourceId,
    frontends: &[LoadBalancerFrontend],
    outbound: &[ResourceId],
    is_new: bool,
) {
    let infra = infra(id);
    let part = |kind: &str, name: &str| format!("{id}/{kind}/{name}");
    if is_new {
        set(body, &["sku", "name"], json!("Standard"));
        for list in ["probes", "loadBalancingRules", "outboundRules"] {
            set(body, &["properties", list], json!([]));
        }
    }
    upsert(body, &["properties", "backendAddressPools"], infra, |_| {});
    drop_stale_outbound(body, frontends, outbound);
    for frontend in frontends {
        upsert(body, &["properties", "frontendIPConfigurations"], &frontend.name, |it| {
            if let Some(public) = &frontend.public_ip {
                set_reference(it, &["properties", "publicIPAddress"], Some(public.as_str()));
            } else if let Some(subnet) = &frontend.subnet {
                set_reference(it, &["properties", "subnet"], Some(subnet.as_str()));
                if text(it, "/properties/privateIPAllocationMethod").is_empty() {
                    let method = if frontend.address.is_some() { "Static" } else { "Dynamic" };
                    set(it, &["properties", "privateIPAllocationMethod"], json!(method));
                    set(
                        it,
                        &["properties", "privateIPAddress"],
                        frontend.address.as_ref().map_or(Value::Null, |it| json!(it)),
                    );
                }
            }
        });
        apply_rules(body, id, infra, frontend);
    }
    let shared = |address: &ResourceId| frontends.iter().find(|it| it.public_ip.as_ref() == Some(address));
    let mut references = Vec::new();
    for address in outbound {
        let name = shared(address).map_or_else(|| address.name().to_owned(), |it| it.name.clone());
        upsert(body, &["properties", "frontendIPConfigurations"], &name, |it| {
            set_reference(it, &["properties", "publicIPAddress"], Some(address.as_str()));
        });
        references.push(json!({ "id": part("frontendIPConfigurations", &name) }));
    }
    if references.is_empty() {
        retain(body, "/properties/outboundRules", |it| text(it, "/name") != OUTBOUND_RULE);
        return;
    }
    upsert(body, &["properties", "outboundRules"], OUTBOUND_RULE, |it| {
        let present = items(it, "/properties/frontendIPConfigurations");
        let is_in = |all: &[Value], one: &Value| {
            all.iter().any(|it| text(it, "/id").eq_ignore_ascii_case(text(one, "/id")))
        };
        // The order of the addresses means nothing.
        let is_same = present.len() == references.len() && present.iter().all(|one| is_in(&references, one));
        if !is_same {
            set(it, &["properties", "frontendIPConfigurations"], Value::Array(references));
        }
        set_reference(it, &["properties", "backendAddressPool"], Some(&part("backendAddressPools", infra)));
        set(it, &["properties", "protocol"], json!("All"));
        set(it, &["properties", "idleTimeoutInMinutes"], json!(30));
    });
}

/// Drops outbound frontends that are no longer requested. Those with rules belong to services of the cluster and stay.
fn drop_stale_outbound(body: &mut Value, frontends: &[LoadBalancerFrontend], outbound: &[ResourceId]) {
    let rule = items(body, "/properties/outboundRules").iter().find(|it| text(it, "/name") == OUTBOUND_RULE);
    let used: Vec<String> = rule
        .map(|it| items(it, "/properties/frontendIPConfigurations"))
        .unwrap_or_default()
        .iter()
        .filter_map(|it| text(it, "/id").rsplit('/').next().map(str::to_lowercase))
        .collect();
    let ruled: Vec<String> = items(body, "/properties/loadBalancingRules")
        .iter()
        .filter_map(|it| {
            text(it, "/properties/frontendIPConfiguration/id").rsplit('/').next().map(str::to_lowercase)
        })
        .collect();
    retain(body, "/properties/frontendIPConfigurations", |it| {
        let name = text(it, "/name").to_lowercase();
        let is_requested = frontends.iter().any(|it| it.name.to_lowercase() == name)
            || outbound.iter().any(|it| it.name().to_lowercase() == name);
        is_requested || ruled.contains(&name) || !used.contains(&name)
    });
}

fn apply_rules(body: &mut Value, id: &ResourceId, infra: &str, frontend: &LoadBalancerFrontend) {
    let part = |kind: &str, name: &str| format!("{id}/{kind}/{name}");
    let frontend_id = part("frontendIPConfigurations", &frontend.name);
    let rules: Vec<(u16, PortRule)> = frontend.ports.iter().map(|it| (*it, port_rule(infra, *it))).collect();
    retain(body, "/properties/loadBalancingRules", |it| {
        let name = text(it, "/name");
        let is_here = text(it, "/properties/frontendIPConfiguration/id").eq_ignore_ascii_case(&frontend_id);
        !(is_here && is_own_rule(name)) || rules.iter().any(|(_, rule)| rule.name == name)
    });
    for (port, rule) in rules {
        upsert(body, &["properties", "backendAddressPools"], &rule.pool, |_| {});
        upsert(body, &["properties", "probes"], &rule.probe, |it| {
            let protocol = if rule.probe_path.is_some() { "Https" } else { "Tcp" };
            set(it, &["properties", "protocol"], json!(protocol));
            set(it, &["properties", "port"], json!(rule.backend_port));
            set(it, &["properties", "requestPath"], rule.probe_path.map_or(Value::Null, |it| json!(it)));
            set(it, &["properties", "intervalInSeconds"], json!(5));
            set(it, &["properties", "numberOfProbes"], json!(2));
        });
        upsert(body, &["properties", "loadBalancingRules"], &rule.name, |it| {
            set_reference(it, &["properties", "frontendIPConfiguration"], Some(&frontend_id));
            set_reference(
                it,
                &["properties", "backendAddressPool"],
                Some(&part("backendAddressPools", &rule.pool)),
            );
            set_reference(it, &["properties", "probe"], Some(&part("probes", &rule.probe)));
            for (member, value) in [
                ("protocol", json!("Tcp")),
                ("frontendPort", json!(port)),
                ("backendPort", json!(rule.backend_port)),
                ("idleTimeoutInMinutes", json!(30)),
                ("loadDistribution", json!("Default")),
                ("disableOutboundSnat", json!(rule.disable_outbound_snat)),
            ] {
                set(it, &["properties", member], value);
            }
        });
    }
}

pub(super) fn load_balancer(id: &ResourceId, body: &Value) -> Properties {
    let outbound_names: Vec<String> = items(body, "/properties/outboundRules")
        .iter()
        .flat_map(|it| items(it, "/properties/frontendIPConfigurations"))
        .filter_map(|it| text(it, "/id").rsplit('/').next().map(str::to_lowercase))
        .collect();
    let (mut frontends, mut outbound) = (Vec::new(), Vec::new());
    for it in items(body, "/properties/frontendIPConfigurations") {
        let name = text(it, "/name").to_owned();
        let public_ip = id_at(it, "/properties/publicIPAddress/id");
        let is_outbound = outbound_names.contains(&name.to_lowercase());
        let mut ports: Vec<u16> = items(body, "/properties/loadBalancingRules")
            .iter()
            .filter(|rule| {
                let used = text(rule, "/properties/frontendIPConfiguration/id").rsplit('/').next();
                used.is_some_and(|it| it.eq_ignore_ascii_case(&name))
            })
            .filter_map(|rule| rule.pointer("/properties/frontendPort")?.as_u64()?.try_into().ok())
            .collect();
        ports.sort_unstable();
        outbound.extend(public_ip.clone().filter(|_| is_outbound));
        // A frontend for outbound traffic alone is named after its address.
        let is_outbound_only =
            public_ip.as_ref().is_some_and(|it| it.name().eq_ignore_ascii_case(&name)) && ports.is_empty();
        if !is_outbound_only {
            let subnet = id_at(it, "/properties/subnet/id");
            let address = optional_text(it, "/properties/privateIPAddress");
            frontends.push(LoadBalancerFrontend { name, public_ip, subnet, address, ports });
        }
    }
    let infra = infra(id);
    let pool = items(body, "/properties/backendAddressPools")
        .iter()
        .find(|it| text(it, "/name").eq_ignore_ascii_case(infra));
    let members = pool.map(|it| items(it, "/properties/backendIPConfigurations")).unwrap_or_default();
    let machine = |it: &Value| {
        let interface: Vec<&str> = text(it, "/id").split('/').take(9).collect();
        let interface: ResourceId = interface.join("/").parse().ok()?;
        let name = interface.name().strip_suffix("-nic").unwrap_or(interface.name()).to_owned();
        let machine = interface.sibling("Microsoft.Compute", "virtualMachines", &name);
        Some(LoadBalancerBackend { machine })
    };
    Properties::LoadBalancer { frontends, backends: members.iter().filter_map(machine).collect(), outbound }
}
