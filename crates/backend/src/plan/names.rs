//! Names of a cluster's resources. All but the private endpoint and the DNS records are in the managed resource group.

use cloud::{Properties, Resource, ResourceId};
use steps::engine::StepError;
use steps::lifecycle::{ClusterSnapshot, Lifecycle};

const NETWORK: &str = "Microsoft.Network";
/// Part of the names of additional outbound addresses after the infra id.
const ADDITIONAL_OUTBOUND: &str = "outbound-pip-v4-";

/// The internal load balancer, for the API server and the machine config server.
pub(crate) fn internal_load_balancer(snapshot: &ClusterSnapshot) -> Result<ResourceId, StepError> {
    Ok(snapshot.group()?.sibling(NETWORK, "loadBalancers", &format!("{}-internal", snapshot.infra_id()?)))
}

/// The public load balancer, for the API server, the default ingress and outbound traffic.
pub(crate) fn load_balancer(snapshot: &ClusterSnapshot) -> Result<ResourceId, StepError> {
    Ok(snapshot.group()?.sibling(NETWORK, "loadBalancers", snapshot.infra_id()?))
}

fn address(snapshot: &ClusterSnapshot, suffix: &str) -> Result<ResourceId, StepError> {
    Ok(snapshot.group()?.sibling(NETWORK, "publicIPAddresses", &format!("{}-{suffix}", snapshot.infra_id()?)))
}

/// The public address of the API server; outbound traffic uses it too.
pub(crate) fn api_address(snapshot: &ClusterSnapshot) -> Result<ResourceId, StepError> {
    address(snapshot, "pip-v4")
}

/// The public address of the default ingress.
pub(crate) fn ingress_address(snapshot: &ClusterSnapshot) -> Result<ResourceId, StepError> {
    address(snapshot, "default-v4")
}

/// The public addresses of outbound traffic: that of the API server first, additional ones by number.
pub(crate) fn outbound_addresses(
    snapshot: &ClusterSnapshot,
    count: u32,
) -> Result<Vec<ResourceId>, StepError> {
    let additional = (2..=count).map(|nth| address(snapshot, &format!("{ADDITIONAL_OUTBOUND}{nth}")));
    std::iter::once(api_address(snapshot)).chain(additional).collect()
}

/// Whether a resource has the name of an additional outbound address.
pub(crate) fn is_additional_outbound_address(snapshot: &ClusterSnapshot, id: &ResourceId) -> bool {
    snapshot
        .infra_id()
        .is_ok_and(|infra_id| id.name().starts_with(&format!("{infra_id}-{ADDITIONAL_OUTBOUND}")))
}

/// The security group of both subnets.
pub(crate) fn security_group(snapshot: &ClusterSnapshot) -> Result<ResourceId, StepError> {
    Ok(snapshot.group()?.sibling(NETWORK, "networkSecurityGroups", &format!("{}-nsg", snapshot.infra_id()?)))
}

/// A storage account: `cluster` or `imageregistry` with the recorded suffix.
pub(crate) fn storage_account(snapshot: &ClusterSnapshot, purpose: &str) -> Result<ResourceId, StepError> {
    let suffix = snapshot.record().storage_suffix.as_deref();
    let missing = || StepError::terminal("NotRecorded", "the cluster's storage suffix is not recorded");
    let name = format!("{purpose}{}", suffix.ok_or_else(missing)?);
    Ok(snapshot.group()?.sibling("Microsoft.Storage", "storageAccounts", &name))
}

/// First label of the cluster's managed domain, and the zone that contains it.
pub(crate) fn label_and_zone(snapshot: &ClusterSnapshot) -> (&str, &str) {
    snapshot.domain.split_once('.').unwrap_or((&snapshot.domain, ""))
}

/// The DNS records of the API server and of applications, in the service's zone.
pub(crate) fn records(cx: &Lifecycle, snapshot: &ClusterSnapshot) -> [ResourceId; 2] {
    let (label, zone) = label_and_zone(snapshot);
    let zone = cx.service.zone_id(zone);
    [zone.child("A", &format!("api.{label}")), zone.child("A", &format!("*.apps.{label}"))]
}

/// The tag of a DNS record that names the cluster that owns it.
pub(crate) const OWNER: &str = "cluster";

/// Whether the cluster owns a DNS record. Records of earlier releases have no owner tag and are recognized by their addresses.
pub(crate) fn is_own_record(cx: &Lifecycle, snapshot: &ClusterSnapshot, found: &Resource) -> bool {
    if let Some(owner) = found.tags.get(OWNER) {
        return *owner == cx.cluster().to_string();
    }
    let Properties::DnsRecord { addresses, .. } = &found.properties else { return false };
    let recorded = snapshot.record();
    addresses
        .iter()
        .all(|it| [&recorded.api_ip, &recorded.ingress_ip].into_iter().flatten().any(|own| own == it))
}

/// The private link service in front of the internal load balancer, which the service's private endpoint connects to.
pub(crate) fn private_link_service(snapshot: &ClusterSnapshot) -> Result<ResourceId, StepError> {
    let name = format!("{}-pls", snapshot.infra_id()?);
    Ok(snapshot.group()?.sibling(NETWORK, "privateLinkServices", &name))
}

/// The private endpoint through which the service reaches the API server; in the service's own group.
pub(crate) fn private_endpoint(cx: &Lifecycle) -> ResourceId {
    cx.service.group_id().sibling(NETWORK, "privateEndpoints", &format!("rp-pe-{}", cx.cluster()))
}
