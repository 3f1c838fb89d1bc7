//! What a description of an instance says about it.

use aws_sdk_ec2::types::{Instance as Ec2Instance, InstanceLifecycleType, InstanceStateName};
use cloud::{AddressKind, Instance, InstanceAddress};
use serde_json::json;

/// The stage of an instance, as far as creation and deletion depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is there, running or not.
    Present,
    /// It is being terminated.
    Ending,
    /// It is gone; AWS shows it for about an hour more.
    Terminated,
}

pub(crate) fn stage(instance: &Ec2Instance) -> Stage {
    match state_name(instance) {
        Some(InstanceStateName::Terminated) => Stage::Terminated,
        Some(InstanceStateName::ShuttingDown) => Stage::Ending,
        _ => Stage::Present,
    }
}

pub(crate) fn is_running(instance: &Ec2Instance) -> bool {
    state_name(instance) == Some(&InstanceStateName::Running)
}

fn state_name(instance: &Ec2Instance) -> Option<&InstanceStateName> {
    instance.state().and_then(|it| it.name())
}

/// The id; empty in a description without one, which AWS does not give.
pub(crate) fn id(instance: &Ec2Instance) -> &str {
    instance.instance_id().unwrap_or_default()
}

/// Why AWS has ended an instance, as it says.
pub(crate) fn end_reason(instance: &Ec2Instance) -> String {
    let reason = instance.state_reason();
    let code = reason.and_then(|it| it.code()).unwrap_or_default();
    let message = reason.and_then(|it| it.message()).unwrap_or_default();
    match (code, message) {
        ("", "") => "AWS gives no reason".to_owned(),
        // The message begins with the code.
        (code, message) if message.starts_with(code) => message.to_owned(),
        (code, message) => format!("{code}: {message}"),
    }
}

/// The instance of a Machine.
pub(crate) fn instance(found: &Ec2Instance, region: &str) -> Instance {
    let state = state_name(found).map(|it| it.as_str().to_owned()).unwrap_or_default();
    let zone = found.placement().and_then(|it| it.availability_zone()).unwrap_or_default();
    let id = id(found);
    Instance {
        provider_id: format!("aws:///{zone}/{id}"),
        addresses: addresses(found),
        provider_status: json!({ "instanceId": id, "instanceState": state }),
        state,
        region: Some(region.to_owned()),
        zone: Some(zone.to_owned()).filter(|it| !it.is_empty()),
        instance_type: found.instance_type().map(|it| it.as_str().to_owned()),
        interruptible: found.instance_lifecycle() == Some(&InstanceLifecycleType::Spot),
    }
}

/// The addresses in the order of OpenShift's provider: those of each interface, then the names.
fn addresses(found: &Ec2Instance) -> Vec<InstanceAddress> {
    let mut all = Vec::new();
    let mut add = |kind: AddressKind, address: Option<&str>| {
        let Some(address) = address.filter(|it| !it.is_empty()) else { return };
        let address = InstanceAddress { kind, address: address.to_owned() };
        if !all.contains(&address) {
            all.push(address);
        }
    };
    for interface in found.network_interfaces() {
        for address in interface.ipv6_addresses() {
            add(AddressKind::InternalIp, address.ipv6_address());
        }
        for address in interface.private_ip_addresses() {
            add(AddressKind::InternalIp, address.private_ip_address());
            add(AddressKind::ExternalIp, address.association().and_then(|it| it.public_ip()));
        }
    }
    add(AddressKind::InternalIp, found.private_ip_address());
    add(AddressKind::InternalDns, found.private_dns_name());
    add(AddressKind::Hostname, found.private_dns_name());
    add(AddressKind::ExternalDns, found.public_dns_name());
    all
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::types::{
        InstanceNetworkInterface, InstanceNetworkInterfaceAssociation, InstancePrivateIpAddress,
        InstanceState, Placement, StateReason,
    };

    use super::*;

    fn described(state: InstanceStateName) -> Ec2Instance {
        let association = InstanceNetworkInterfaceAssociation::builder().public_ip("3.4.5.6").build();
        let address = InstancePrivateIpAddress::builder()
            .private_ip_address("10.0.0.4")
            .association(association)
            .build();
        Ec2Instance::builder()
            .instance_id("i-1")
            .state(InstanceState::builder().name(state).build())
            .placement(Placement::builder().availability_zone("eu-west-1b").build())
            .instance_type("m5.large".into())
            .private_ip_address("10.0.0.4")
            .private_dns_name("ip-10-0-0-4.eu-west-1.compute.internal")
            .public_dns_name("ec2-3-4-5-6.compute.amazonaws.com")
            .network_interfaces(InstanceNetworkInterface::builder().private_ip_addresses(address).build())
            .build()
    }

    #[test]
    fn a_stopped_instance_is_there_and_a_terminated_one_is_not() {
        use InstanceStateName as S;
        for state in [S::Pending, S::Running, S::Stopping, S::Stopped, "later".into()] {
            assert_eq!(stage(&described(state)), Stage::Present);
        }
        assert_eq!(stage(&described(S::ShuttingDown)), Stage::Ending);
        assert_eq!(stage(&described(S::Terminated)), Stage::Terminated);
    }

    #[test]
    fn an_instance_is_reported_in_the_terms_of_openshift() {
        let found = instance(&described(InstanceStateName::Running), "eu-west-1");
        assert_eq!(found.provider_id, "aws:///eu-west-1b/i-1");
        let addresses: Vec<(&str, &str)> =
            found.addresses.iter().map(|it| (it.kind.as_str(), it.address.as_str())).collect();
        assert_eq!(
            addresses,
            [
                ("InternalIP", "10.0.0.4"),
                ("ExternalIP", "3.4.5.6"),
                ("InternalDNS", "ip-10-0-0-4.eu-west-1.compute.internal"),
                ("Hostname", "ip-10-0-0-4.eu-west-1.compute.internal"),
                ("ExternalDNS", "ec2-3-4-5-6.compute.amazonaws.com"),
            ]
        );
        assert_eq!(found.provider_status, json!({"instanceId": "i-1", "instanceState": "running"}));
        assert_eq!((found.region.as_deref(), found.zone.as_deref()), (Some("eu-west-1"), Some("eu-west-1b")));
        assert_eq!(found.instance_type.as_deref(), Some("m5.large"));
    }

    #[test]
    fn the_reason_of_an_end_is_reported_once() {
        let ended = |code: &str, message: &str| {
            let reason = StateReason::builder().code(code).message(message).build();
            end_reason(&Ec2Instance::builder().state_reason(reason).build())
        };
        assert_eq!(
            ended("Server.InternalError", "Server.InternalError: on launch"),
            "Server.InternalError: on launch"
        );
        assert_eq!(ended("A.B", "c"), "A.B: c");
        assert_eq!(end_reason(&Ec2Instance::builder().build()), "AWS gives no reason");
    }
}
