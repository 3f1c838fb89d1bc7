//! The machines of a cluster as resources of the resource manager: an interface in the pools of the load balancers, and a virtual machine
//! with its OS disk.

use std::collections::BTreeMap;

use api::install::InstallRequest;
use cloud::{ResourceFailure, ResourceId};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::machines::PlannedMachine;
use crate::arm::kinds::machines::{MACHINE, machines_of_group, next_power_change};
use crate::arm::resources::{self, known_kind};
use crate::arm::{ArmResource, Change, store};
use crate::call_context::CallContext;
use crate::failure::Failure;

const INTERFACE: &str = "Microsoft.Network/networkInterfaces";

/// The progress of a machine that is being created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MachineProgress {
    /// Complete.
    Ready,
    /// Not complete before this time.
    Pending(Timestamp),
    /// Creation failed.
    Failed(ResourceFailure),
    /// Deleted meanwhile.
    Missing,
}

/// Creates a machine unless it exists: its interface, then itself with its disk. Repeating it changes nothing.
pub(crate) fn ensure(
    cx: &CallContext<'_>,
    request: &InstallRequest,
    machine: &PlannedMachine,
) -> Result<(), Failure> {
    let id = machine.id(request);
    if store::find(cx.db, &id.key())?.is_some_and(|it| it.change != Change::Deleting) {
        return Ok(());
    }
    let interface = interface_id(request, machine);
    let pools = pools(cx, request, machine)?;
    resources::write(cx, known_kind(INTERFACE)?, &interface, interface_body(request, machine, &pools))?;
    resources::write(cx, known_kind(MACHINE)?, &id, machine_body(request, machine, &interface))?;
    Ok(())
}

/// How far the creation of a machine is.
pub(crate) fn progress(cx: &CallContext<'_>, id: &ResourceId) -> Result<MachineProgress, Failure> {
    let Some(found) = store::find(cx.db, &id.key())? else { return Ok(MachineProgress::Missing) };
    Ok(match (found.provisioning_state(cx.now), found.fault) {
        ("Succeeded", _) => MachineProgress::Ready,
        ("Failed", Some(failure)) => MachineProgress::Failed(failure),
        _ => MachineProgress::Pending(found.settles),
    })
}

/// The machines of a group by key, and whether the system of each answers. `Simulator::notifier` tells when to read them again.
pub(crate) fn running(cx: &CallContext<'_>, group: &ResourceId) -> Result<BTreeMap<String, bool>, Failure> {
    machines_of_group(cx, group)
}

/// The next time at which the power of a machine of a group changes without a request.
pub(crate) fn next_change(cx: &CallContext<'_>, group: &ResourceId) -> Result<Option<Timestamp>, Failure> {
    next_power_change(cx, group)
}

fn interface_id(request: &InstallRequest, machine: &PlannedMachine) -> ResourceId {
    request.group.sibling("Microsoft.Network", "networkInterfaces", &format!("{}-nic", machine.name))
}

/// The pools that a machine joins: that of the public load balancer, which gives it a way out; for the control plane and the bootstrap
/// machine also that of the internal one, and the pool for SSH of its number. Pools that do not exist are left out.
fn pools(
    cx: &CallContext<'_>,
    request: &InstallRequest,
    machine: &PlannedMachine,
) -> Result<Vec<ResourceId>, Failure> {
    let public = request.group.sibling("Microsoft.Network", "loadBalancers", &request.infra_id);
    let mut wanted = vec![(public, request.infra_id.clone())];
    if machine.set.is_none() {
        wanted.push((request.load_balancer.clone(), request.infra_id.clone()));
        let number = machine.name.rsplit('-').next().and_then(|it| it.parse::<u32>().ok());
        wanted.extend(number.map(|number| (request.load_balancer.clone(), format!("ssh-{number}"))));
    }
    let mut pools = Vec::new();
    for (balancer, pool) in wanted {
        let found = store::find(cx.db, &balancer.key())?.filter(|it| it.change != Change::Deleting);
        if found.is_some_and(|it| has_pool(&it, &pool)) {
            pools.push(balancer.child("backendAddressPools", &pool));
        }
    }
    Ok(pools)
}

fn has_pool(balancer: &ArmResource, pool: &str) -> bool {
    let pools = balancer.property("backendAddressPools").and_then(Value::as_array);
    pools.is_some_and(|it| {
        it.iter()
            .any(|it| it.get("name").and_then(Value::as_str).is_some_and(|it| it.eq_ignore_ascii_case(pool)))
    })
}

fn tags(request: &InstallRequest) -> Value {
    json!({ format!("kubernetes.io_cluster.{}", request.infra_id): "owned" })
}

fn interface_body(
    request: &InstallRequest,
    machine: &PlannedMachine,
    pools: &[ResourceId],
) -> Map<String, Value> {
    let pools: Vec<Value> = pools.iter().map(|it| json!({ "id": it })).collect();
    let configuration = json!({
        "name": "pipConfig",
        "properties": {
            "subnet": { "id": machine.subnet }, "primary": true, "privateIPAllocationMethod": "Dynamic",
            "loadBalancerBackendAddressPools": pools
        }
    });
    Map::from_iter([
        ("location".to_owned(), json!(request.location)),
        ("tags".to_owned(), tags(request)),
        ("properties".to_owned(), json!({ "ipConfigurations": [configuration] })),
    ])
}

fn machine_body(
    request: &InstallRequest,
    machine: &PlannedMachine,
    interface: &ResourceId,
) -> Map<String, Value> {
    let mut body = Map::from_iter([
        ("location".to_owned(), json!(request.location)),
        ("tags".to_owned(), tags(request)),
        (
            "properties".to_owned(),
            json!({
                "hardwareProfile": { "vmSize": machine.size },
                "storageProfile": { "osDisk": {
                    "name": format!("{}_OSDisk", machine.name), "createOption": "FromImage", "caching": "ReadOnly",
                    "diskSizeGB": machine.disk_size_gb, "managedDisk": { "storageAccountType": "Premium_LRS" }
                } },
                "osProfile": { "computerName": machine.name, "adminUsername": "core" },
                "networkProfile": { "networkInterfaces": [{ "id": interface, "properties": { "primary": true } }] },
                "diagnosticsProfile": { "bootDiagnostics": { "enabled": true } }
            }),
        ),
    ]);
    if let Some(zone) = &machine.zone {
        body.insert("zones".to_owned(), json!([zone]));
    }
    body
}

#[cfg(test)]
mod tests {
    use super::super::machines::{bootstrap, masters, tests::request, workers};
    use super::*;
    use crate::arm::{find_kind, groups, type_of};
    use crate::call_context::FaultEffects;
    use crate::database;
    use crate::endpoints::Endpoints;
    use crate::entra::VerifiedTokens;

    fn write(cx: &CallContext<'_>, id: &ResourceId, body: &Value) {
        let kind = find_kind(&type_of(id).unwrap()).unwrap();
        resources::write(cx, kind, id, body.as_object().unwrap().clone()).unwrap();
    }

    #[test]
    fn masters_join_the_internal_load_balancer_and_workers_do_not() {
        let (db, request) = (database::open(None).unwrap(), request());
        let endpoints = Endpoints::default();
        let cx = CallContext {
            db: &db,
            now: Timestamp::UNIX_EPOCH,
            seed: 1,
            pace: 0.0,
            effects: FaultEffects::default(),
            endpoints: &endpoints,
            tokens: &VerifiedTokens::default(),
        };
        let place = json!({ "location": "westeurope" }).as_object().unwrap().clone();
        let subnet = &request.masters.subnet;
        for group in [&request.group, &store::group_of(subnet)] {
            groups::write(&cx, group, &place).unwrap();
        }
        let network = json!({ "location": "westeurope", "properties": {
            "addressSpace": { "addressPrefixes": ["10.0.0.0/16"] },
            "subnets": [{ "name": "a", "properties": { "addressPrefix": "10.0.0.0/24" } }] } });
        write(&cx, &subnet.parent().unwrap(), &network);
        let balancer = json!({ "location": "westeurope", "properties": {
            "frontendIPConfigurations": [{ "name": "internal-lb-ip-v4", "properties": { "subnet": { "id": subnet } } }],
            "backendAddressPools": [{ "name": request.infra_id }, { "name": "ssh-0" }] } });
        write(&cx, &request.load_balancer, &balancer);
        let all = [vec![bootstrap(&request)], masters(&request), workers(&request, 1)].concat();
        for machine in &all {
            ensure(&cx, &request, machine).unwrap();
            ensure(&cx, &request, machine).unwrap();
            assert_eq!(progress(&cx, &machine.id(&request)).unwrap(), MachineProgress::Ready);
        }
        let running = running(&cx, &request.group).unwrap();
        assert_eq!(running.len(), all.len());
        assert!(running.values().all(|it| *it));
        let found = store::find(&db, &request.load_balancer.key()).unwrap().unwrap();
        let shown = resources::shown(&cx, &found, None).unwrap();
        let members: Vec<usize> = shown["properties"]["backendAddressPools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["properties"]["backendIPConfigurations"].as_array().map_or(0, Vec::len))
            .collect();
        assert_eq!(members, [4, 1]);
    }
}
