//! What the resources of a cluster are called. All but the private endpoint and the names are in the group that we manage.

use cloud::{Properties, Resource, ResourceId};
use steps::engine::StepError;
use steps::lifecycle::{ClusterSnapshot, Lifecycle};

const NETWORK: &str = "Microsoft.Network";
/// How the names of further addresses of outgoing traffic go on after the infra id.
const FURTHER: &str = "outbound-pip-v4-";

/// The load balancer inside the cluster's network: the API server and the configuration of machines.
pub(crate) fn internal_load_balancer(ours: &ClusterSnapshot) -> Result<ResourceId, StepError> {
    Ok(ours.group()?.sibling(NETWORK, "loadBalancers", &format!("{}-internal", ours.infra_id()?)))
}

/// The public load balancer: the API server, the default ingress, and what goes out.
pub(crate) fn load_balancer(ours: &ClusterSnapshot) -> Result<ResourceId, StepError> {
    Ok(ours.group()?.sibling(NETWORK, "loadBalancers", ours.infra_id()?))
}

fn address(ours: &ClusterSnapshot, what: &str) -> Result<ResourceId, StepError> {
    Ok(ours.group()?.sibling(NETWORK, "publicIPAddresses", &format!("{}-{what}", ours.infra_id()?)))
}

/// The public address of the API server; outgoing traffic has it too.
pub(crate) fn api_address(ours: &ClusterSnapshot) -> Result<ResourceId, StepError> {
    address(ours, "pip-v4")
}

/// The public address of the default ingress.
pub(crate) fn ingress_address(ours: &ClusterSnapshot) -> Result<ResourceId, StepError> {
    address(ours, "default-v4")
}

/// The public addresses of outgoing traffic: the API server's first, further ones by number.
pub(crate) fn outbound_addresses(ours: &ClusterSnapshot, count: u32) -> Result<Vec<ResourceId>, StepError> {
    let further = (2..=count).map(|nth| address(ours, &format!("{FURTHER}{nth}")));
    std::iter::once(api_address(ours)).chain(further).collect()
}

/// Whether a resource is called as the further public addresses of outgoing traffic are.
pub(crate) fn is_further_outbound_address(ours: &ClusterSnapshot, id: &ResourceId) -> bool {
    ours.infra_id().is_ok_and(|infra_id| id.name().starts_with(&format!("{infra_id}-{FURTHER}")))
}

/// The security group of both subnets.
pub(crate) fn security_group(ours: &ClusterSnapshot) -> Result<ResourceId, StepError> {
    Ok(ours.group()?.sibling(NETWORK, "networkSecurityGroups", &format!("{}-nsg", ours.infra_id()?)))
}

/// A storage account: `cluster` or `imageregistry` with the suffix that was drawn.
pub(crate) fn storage_account(ours: &ClusterSnapshot, purpose: &str) -> Result<ResourceId, StepError> {
    let suffix = ours.record().storage_suffix.as_deref();
    let missing = || StepError::terminal("NotRecorded", "the cluster's storage suffix is not recorded");
    let name = format!("{purpose}{}", suffix.ok_or_else(missing)?);
    Ok(ours.group()?.sibling("Microsoft.Storage", "storageAccounts", &name))
}

/// The label of a cluster whose names we keep, and the zone that it is in.
pub(crate) fn label_and_zone(ours: &ClusterSnapshot) -> (&str, &str) {
    ours.domain.split_once('.').unwrap_or((&ours.domain, ""))
}

/// The names of the API server and of applications, in the service's zone.
pub(crate) fn records(cx: &Lifecycle, ours: &ClusterSnapshot) -> [ResourceId; 2] {
    let (label, zone) = label_and_zone(ours);
    let zone = cx.service.zone_id(zone);
    [zone.child("A", &format!("api.{label}")), zone.child("A", &format!("*.apps.{label}"))]
}

/// The tag of a record that says whose it is.
pub(crate) const OWNER: &str = "cluster";

/// Whether a record that was found is the cluster's. One that a build before this made says nothing, and is known by where it
/// leads.
pub(crate) fn is_own_record(cx: &Lifecycle, ours: &ClusterSnapshot, found: &Resource) -> bool {
    if let Some(owner) = found.tags.get(OWNER) {
        return *owner == cx.cluster().to_string();
    }
    let Properties::DnsRecord { addresses, .. } = &found.properties else { return false };
    let made = ours.record();
    addresses.iter().all(|it| [&made.api_ip, &made.ingress_ip].into_iter().flatten().any(|ours| ours == it))
}

/// The private endpoint by which this service reaches the API server; in the service's own group.
pub(crate) fn private_endpoint(cx: &Lifecycle) -> ResourceId {
    cx.service.group_id().sibling(NETWORK, "privateEndpoints", &format!("rp-pe-{}", cx.cluster()))
}
