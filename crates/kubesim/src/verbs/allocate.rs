//! Addresses and ports of services.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::kinds;
use crate::state::State;
use crate::status::{ApiResult, StatusError};

/// The first node port.
const NODE_PORT_MIN: i64 = 30_000;
/// The last node port.
const NODE_PORT_MAX: i64 = 32_767;

/// Allocates the cluster IP and the node ports of a service, unless it states them.
pub(super) fn service(state: &State, value: &mut Value) -> ApiResult<()> {
    let kind = value["spec"]["type"].as_str().unwrap_or_default().to_owned();
    if kind == "ExternalName" {
        return Ok(());
    }
    let others: Vec<Value> = kinds::find("", "Service")
        .map(|kind| state.objects.range(kind.table(), "", "").map(|(_, service)| service.value()).collect())
        .unwrap_or_default();
    let spec = &mut value["spec"];
    let requested = spec["clusterIP"].as_str().or(spec["clusterIPs"][0].as_str()).filter(|ip| !ip.is_empty());
    let address = match requested {
        Some(address) => address.to_owned(),
        None => free_address(&others)?,
    };
    spec["clusterIP"] = json!(address);
    spec["clusterIPs"] = json!([address]);
    if kind == "NodePort" || (kind == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] != false) {
        assign_node_ports(spec, &others)?;
    }
    Ok(())
}

fn free_address(others: &[Value]) -> ApiResult<String> {
    let taken: HashSet<&str> =
        others.iter().filter_map(|service| service["spec"]["clusterIP"].as_str()).collect();
    (1_u32..65_534)
        .map(|host| format!("10.0.{}.{}", host >> 8, host & 255))
        .find(|address| !taken.contains(address.as_str()))
        .ok_or_else(|| StatusError::internal("failed to allocate a serviceIP: range is full"))
}

fn assign_node_ports(spec: &mut Value, others: &[Value]) -> ApiResult<()> {
    let mut taken: HashSet<i64> = others
        .iter()
        .flat_map(|service| service["spec"]["ports"].as_array().into_iter().flatten())
        .filter_map(|port| port["nodePort"].as_i64())
        .collect();
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        if port["nodePort"].as_i64().unwrap_or(0) == 0 {
            let free = (NODE_PORT_MIN..=NODE_PORT_MAX).find(|port| !taken.contains(port));
            let free =
                free.ok_or_else(|| StatusError::internal("failed to allocate a nodePort: range is full"))?;
            taken.insert(free);
            port["nodePort"] = json!(free);
        }
    }
    Ok(())
}
