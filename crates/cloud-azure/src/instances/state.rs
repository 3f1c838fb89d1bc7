//! What the bodies of a machine and its parts say about it.

use cloud::{AddressKind, Instance, InstanceAddress};
use serde_json::{Value, json};

use crate::json::{id_at, items, optional_text, text};

/// The stage of a machine, as far as creation and deletion depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its creation runs.
    Creating,
    /// Its creation failed: it never ran.
    CreationFailed,
    /// It is there, running or not.
    Present,
    /// Its deletion runs.
    Deleting,
}

pub(super) fn stage(machine: &Value) -> Stage {
    match text(machine, "/properties/provisioningState").to_lowercase().as_str() {
        "creating" => Stage::Creating,
        "deleting" => Stage::Deleting,
        // A machine that ran once has a power state, whatever failed later.
        "failed" | "canceled" if power(machine).is_empty() => Stage::CreationFailed,
        _ => Stage::Present,
    }
}

/// Why the creation failed, as the instance view says.
pub(super) fn failure(machine: &Value) -> String {
    let statuses = items(machine, "/properties/instanceView/statuses");
    let status = statuses.iter().find(|it| text(it, "/code").starts_with("ProvisioningState/failed"));
    let code = status.map(|it| text(it, "/code").rsplit('/').next().unwrap_or_default()).unwrap_or_default();
    let message = status.map(|it| text(it, "/message")).unwrap_or_default();
    match (code, message) {
        ("" | "failed", "") => "Azure gives no reason".to_owned(),
        ("" | "failed", message) => message.to_owned(),
        (code, "") => code.to_owned(),
        (code, message) => format!("{code}: {message}"),
    }
}

fn power(machine: &Value) -> &str {
    let mut statuses = items(machine, "/properties/instanceView/statuses").iter();
    statuses.find_map(|it| text(it, "/code").strip_prefix("PowerState/")).unwrap_or_default()
}

/// The state in the words of OpenShift's provider: that of provisioning until it succeeded, then that of power.
pub(super) fn vm_state(machine: &Value) -> String {
    let provisioning = text(machine, "/properties/provisioningState");
    if !provisioning.eq_ignore_ascii_case("Succeeded") {
        return provisioning.to_owned();
    }
    match power(machine) {
        "" => "",
        "starting" => "Starting",
        "running" => "Running",
        "stopping" => "Stopping",
        "stopped" => "Stopped",
        "deallocating" => "Deallocating",
        "deallocated" => "Deallocated",
        _ => "Unknown",
    }
    .to_owned()
}

/// The ids of a machine's interfaces.
pub(super) fn interfaces(machine: &Value) -> Vec<cloud::ResourceId> {
    let all = items(machine, "/properties/networkProfile/networkInterfaces");
    all.iter().filter_map(|it| id_at(it, "/id")).collect()
}

/// The ids of the public addresses of an interface.
pub(super) fn public_addresses(interface: &Value) -> Vec<cloud::ResourceId> {
    let all = items(interface, "/properties/ipConfigurations");
    all.iter().filter_map(|it| id_at(it, "/properties/publicIPAddress/id")).collect()
}

/// The instance, from the bodies of the machine, its interfaces and their public addresses.
pub(super) fn instance(machine: &Value, interfaces: &[Value], addresses: &[Value]) -> Instance {
    let state = vm_state(machine);
    let zones: Vec<&str> = items(machine, "/zones").iter().filter_map(Value::as_str).collect();
    Instance {
        provider_id: provider_id(machine),
        addresses: all_addresses(machine, interfaces, addresses),
        provider_status: json!({ "vmId": text(machine, "/id"), "vmState": state }),
        state,
        region: optional_text(machine, "/location"),
        zone: (!zones.is_empty()).then(|| zones.join(",")),
        instance_type: optional_text(machine, "/properties/hardwareProfile/vmSize"),
        interruptible: text(machine, "/properties/priority").eq_ignore_ascii_case("Spot"),
    }
}

/// The id by which the cloud's node controller knows the machine: subscription and group in lower case, and the name of the computer.
fn provider_id(machine: &Value) -> String {
    let id = id_at(machine, "/id");
    let name = optional_text(machine, "/properties/osProfile/computerName")
        .or_else(|| id.as_ref().map(|it| it.name().to_owned()))
        .unwrap_or_default();
    let (subscription, group) = id
        .map(|it| (it.subscription().to_lowercase(), it.resource_group().to_lowercase()))
        .unwrap_or_default();
    format!(
        "azure:///subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachines/{name}"
    )
}

fn all_addresses(machine: &Value, interfaces: &[Value], public: &[Value]) -> Vec<InstanceAddress> {
    let mut all = Vec::new();
    let mut add = |kind: AddressKind, address: &str| {
        let address = InstanceAddress { kind, address: address.to_owned() };
        if !address.address.is_empty() && !all.contains(&address) {
            all.push(address);
        }
    };
    let name = text(machine, "/properties/osProfile/computerName");
    add(AddressKind::Hostname, name);
    // The name of the node is among the addresses, which the approval of its certificate requests checks.
    add(AddressKind::InternalDns, name);
    for interface in interfaces {
        let suffix = text(interface, "/properties/dnsSettings/internalDomainNameSuffix");
        if !suffix.is_empty() && !name.is_empty() {
            add(AddressKind::InternalDns, &format!("{name}.{suffix}"));
        }
        for configuration in items(interface, "/properties/ipConfigurations") {
            add(AddressKind::InternalIp, text(configuration, "/properties/privateIPAddress"));
        }
    }
    for address in public {
        add(AddressKind::ExternalIp, text(address, "/properties/ipAddress"));
        add(AddressKind::ExternalDns, text(address, "/properties/dnsSettings/fqdn"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(provisioning: &str, statuses: &[&str]) -> Value {
        let statuses: Vec<Value> = statuses.iter().map(|it| json!({ "code": it })).collect();
        json!({
            "id": "/subscriptions/S1/resourceGroups/Aro-G/providers/Microsoft.Compute/virtualMachines/m",
            "location": "westeurope", "zones": ["2"],
            "properties": {
                "provisioningState": provisioning, "hardwareProfile": { "vmSize": "Standard_D4s_v5" },
                "osProfile": { "computerName": "m" }, "instanceView": { "statuses": statuses }
            }
        })
    }

    #[test]
    fn a_machine_that_never_ran_is_a_failed_creation_and_one_that_ran_is_there() {
        let check = |provisioning: &str, statuses: &[&str], expect: Stage| {
            assert_eq!(stage(&machine(provisioning, statuses)), expect, "{provisioning} {statuses:?}");
        };
        check("Creating", &[], Stage::Creating);
        check("Failed", &["ProvisioningState/failed/AllocationFailed"], Stage::CreationFailed);
        check("Failed", &["ProvisioningState/failed/X", "PowerState/running"], Stage::Present);
        check("Succeeded", &["PowerState/deallocated"], Stage::Present);
        check("Updating", &[], Stage::Present);
        check("Deleting", &["PowerState/stopped"], Stage::Deleting);
    }

    #[test]
    fn the_state_is_that_of_provisioning_until_it_succeeded_and_then_that_of_power() {
        let check = |provisioning: &str, statuses: &[&str], expect: &str| {
            assert_eq!(vm_state(&machine(provisioning, statuses)), expect);
        };
        check("Creating", &["PowerState/running"], "Creating");
        check("Failed", &[], "Failed");
        check("Succeeded", &[], "");
        check("Succeeded", &["ProvisioningState/succeeded", "PowerState/running"], "Running");
        check("Succeeded", &["PowerState/deallocated"], "Deallocated");
        check("Succeeded", &["PowerState/hibernated"], "Unknown");
    }

    #[test]
    fn addresses_come_in_the_order_of_openshift_and_the_provider_id_in_lower_case() {
        let interface = json!({ "properties": {
            "dnsSettings": { "internalDomainNameSuffix": "x.internal.cloudapp.net" },
            "ipConfigurations": [{ "properties": { "privateIPAddress": "10.0.0.4" } }]
        } });
        let public = json!({ "properties": { "ipAddress": "20.1.2.3" } });
        let found = instance(&machine("Succeeded", &["PowerState/running"]), &[interface], &[public]);
        assert_eq!(
            found.provider_id,
            "azure:///subscriptions/s1/resourceGroups/aro-g/providers/Microsoft.Compute/virtualMachines/m"
        );
        let addresses: Vec<(&str, &str)> =
            found.addresses.iter().map(|it| (it.kind.as_str(), it.address.as_str())).collect();
        assert_eq!(
            addresses,
            [
                ("Hostname", "m"),
                ("InternalDNS", "m"),
                ("InternalDNS", "m.x.internal.cloudapp.net"),
                ("InternalIP", "10.0.0.4"),
                ("ExternalIP", "20.1.2.3")
            ]
        );
        assert_eq!((found.zone.as_deref(), found.region.as_deref()), (Some("2"), Some("westeurope")));
        assert_eq!(found.provider_status["vmState"], "Running");
    }

    #[test]
    fn a_failure_is_reported_with_code_and_message() {
        let mut failed = machine("Failed", &["ProvisioningState/failed/ZonalAllocationFailed"]);
        assert_eq!(failure(&failed), "ZonalAllocationFailed");
        failed["properties"]["instanceView"]["statuses"][0]["message"] = json!("No capacity.");
        assert_eq!(failure(&failed), "ZonalAllocationFailed: No capacity.");
        assert_eq!(failure(&machine("Failed", &[])), "Azure gives no reason");
    }
}
