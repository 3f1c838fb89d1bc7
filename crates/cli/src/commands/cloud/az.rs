//! The commands of Azure's own command line that prepare a cluster, for subscriptions that this service does not manage.

use std::fmt::Write as _;

use super::super::target::ClusterTarget;
use super::prepare::{MASTERS, NETWORK, NETWORK_ROLE, WORKERS};

/// The commands that do what `shipshape cloud prepare` does, one per line.
pub(super) fn prepare(place: &ClusterTarget) -> String {
    let ClusterTarget { subscription, group, location, name } = place;
    let scope = format!("/subscriptions/{subscription}/resourceGroups/{group}");
    let network = format!("{name}-vnet");
    let network_id = format!("{scope}/providers/Microsoft.Network/virtualNetworks/{network}");
    let mut text = String::new();
    let mut line = |command: String| {
        let _ = writeln!(text, "{command}");
    };
    line(format!("az group create --subscription {subscription} --name {group} --location {location}"));
    line(format!(
        "az network vnet create --subscription {subscription} --resource-group {group} --name {network} --location {location} --address-prefixes {NETWORK}"
    ));
    for (subnet, prefix) in [("master", MASTERS), ("worker", WORKERS)] {
        line(format!(
            "az network vnet subnet create --subscription {subscription} --resource-group {group} --vnet-name {network} --name {subnet} --address-prefixes {prefix} --disable-private-link-service-network-policies true"
        ));
    }
    // The backend assigns the role in the managed group itself; the network belongs to the customer.
    line(format!(
        "az ad sp create-for-rbac --name {group}-{name} --role \"{NETWORK_ROLE}\" --scopes {network_id}"
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prepared_resource_has_its_command() {
        let place = ClusterTarget {
            subscription: "s".to_owned(),
            group: "g".to_owned(),
            location: "westeurope".to_owned(),
            name: "harbour".to_owned(),
        };
        let text = prepare(&place);
        let starts = [
            "az group create ",
            "az network vnet create ",
            "az network vnet subnet create ",
            "az network vnet subnet create ",
            "az ad sp create-for-rbac ",
        ];
        assert_eq!(text.lines().count(), starts.len(), "{text}");
        for (line, start) in text.lines().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
        assert!(
            text.contains("--vnet-name harbour-vnet --name worker --address-prefixes 10.0.2.0/23"),
            "{text}"
        );
    }
}
