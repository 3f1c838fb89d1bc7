//! The names and tags of what belongs to a machine. All follow from the machine and its cluster, so that a repeated call finds what an
//! earlier one has made. They are those of OpenShift's provider, so that machines which that has made are found too.

use std::collections::BTreeMap;

use cloud::ResourceId;
use serde_json::Value;

use super::spec::{DataDisk, ProviderSpec};
use crate::resources::{nic_name, os_disk_name};

/// The first part of the tag that names the owning cluster.
const CLUSTER_TAG: &str = "kubernetes.io_cluster.";
/// Longest name of a public address: it may become a DNS label.
const ADDRESS_NAME_MAX: usize = 63;
/// Longest name of an availability set, without its suffix.
const SET_NAME_MAX: usize = 77;

/// The ids of a machine's resources.
#[derive(Debug, Clone)]
pub(super) struct Names {
    group: ResourceId,
    network_group: ResourceId,
    machine: String,
    cluster: String,
    /// The MachineSet that the machine belongs to.
    machine_set: Option<String>,
}

impl Names {
    pub(super) fn new(
        subscription: &str,
        spec: &ProviderSpec,
        machine: &str,
        cluster: &str,
        machine_set: Option<&String>,
    ) -> Names {
        Names {
            group: ResourceId::group(subscription, &spec.resource_group),
            network_group: ResourceId::group(subscription, &spec.network_resource_group),
            machine: machine.to_owned(),
            cluster: cluster.to_owned(),
            machine_set: machine_set.filter(|it| !it.is_empty()).cloned(),
        }
    }

    pub(super) fn machine(&self) -> ResourceId {
        self.compute("virtualMachines", &self.machine)
    }

    pub(super) fn interface(&self) -> ResourceId {
        self.network("networkInterfaces", &nic_name(&self.machine))
    }

    pub(super) fn os_disk(&self) -> ResourceId {
        self.compute("disks", &os_disk_name(&self.machine))
    }

    pub(super) fn data_disk(&self, disk: &DataDisk) -> ResourceId {
        self.compute("disks", &format!("{}_{}", self.machine, disk.name_suffix))
    }

    /// The public address; `None` when its name would be too long.
    pub(super) fn public_address(&self) -> Option<ResourceId> {
        let name = format!("{}-{}", self.cluster, self.machine);
        (name.len() <= ADDRESS_NAME_MAX).then(|| self.network("publicIPAddresses", &name))
    }

    /// The availability set that is made for the machines of a MachineSet where there are no zones.
    pub(super) fn own_availability_set(&self) -> Option<ResourceId> {
        let set = self.machine_set.as_ref()?;
        let name =
            if set.starts_with(&self.cluster) { set.clone() } else { format!("{}_{set}", self.cluster) };
        let name: String = name.chars().take(SET_NAME_MAX).collect();
        Some(self.availability_set(&format!("{name}-as")))
    }

    pub(super) fn availability_set(&self, name: &str) -> ResourceId {
        self.compute("availabilitySets", name)
    }

    pub(super) fn load_balancer(&self, name: &str) -> ResourceId {
        self.network("loadBalancers", name)
    }

    pub(super) fn security_group(&self, name: &str) -> ResourceId {
        self.network("networkSecurityGroups", name)
    }

    pub(super) fn application_security_group(&self, name: &str) -> ResourceId {
        self.network("applicationSecurityGroups", name)
    }

    pub(super) fn identity(&self, name: &str) -> ResourceId {
        self.group.sibling("Microsoft.ManagedIdentity", "userAssignedIdentities", name)
    }

    pub(super) fn subnet(&self, vnet: &str, subnet: &str) -> ResourceId {
        self.network_group.sibling("Microsoft.Network", "virtualNetworks", vnet).child("subnets", subnet)
    }

    fn compute(&self, kind: &str, name: &str) -> ResourceId {
        self.group.sibling("Microsoft.Compute", kind, name)
    }

    fn network(&self, kind: &str, name: &str) -> ResourceId {
        self.group.sibling("Microsoft.Network", kind, name)
    }
}

/// The tags of a machine's resources: those of the cluster's infrastructure, then those of the machine, then the owner. Names of tags
/// are compared without regard to case, and nobody overrides the owner.
pub(super) fn tags(
    cluster: &str,
    of_infrastructure: &BTreeMap<String, String>,
    of_machine: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut tags: BTreeMap<String, (String, String)> = BTreeMap::new();
    let owner = (format!("{CLUSTER_TAG}{cluster}"), "owned".to_owned());
    let given = of_infrastructure.iter().chain(of_machine).map(|(name, value)| (name.clone(), value.clone()));
    for (name, value) in given.chain([owner]) {
        tags.insert(name.to_lowercase(), (name, value));
    }
    tags.into_values().collect()
}

/// Whether a resource belongs to another cluster, by its tags. One without such a tag is taken as ours: its name is.
pub(super) fn is_foreign(body: &Value, cluster: &str) -> bool {
    let mut owners =
        body.get("tags").and_then(Value::as_object).into_iter().flatten().filter_map(|(name, value)| {
            let name = name.to_lowercase();
            let is_owned = value.as_str().is_some_and(|it| it.eq_ignore_ascii_case("owned"));
            name.strip_prefix(CLUSTER_TAG).filter(|_| is_owned).map(str::to_owned)
        });
    let ours = cluster.to_lowercase();
    let mut is_any = false;
    let is_ours = owners.any(|it| {
        is_any = true;
        it == ours
    });
    is_any && !is_ours
}

/// The tags of a resource with the wanted ones; `None` when it has them all.
pub(super) fn with_missing_tags(body: &Value, wanted: &BTreeMap<String, String>) -> Option<Value> {
    let mut present = body.get("tags").and_then(Value::as_object).cloned().unwrap_or_default();
    let missing: Vec<(&String, &String)> = wanted
        .iter()
        .filter(|(name, value)| {
            let found = present.iter().find(|(it, _)| it.eq_ignore_ascii_case(name));
            found.and_then(|(_, it)| it.as_str()) != Some(value.as_str())
        })
        .collect();
    if missing.is_empty() {
        return None;
    }
    for (name, value) in missing {
        present.retain(|it, _| !it.eq_ignore_ascii_case(name));
        present.insert(name.clone(), Value::String(value.clone()));
    }
    Some(Value::Object(present))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(tags: &[(&str, &str)]) -> BTreeMap<String, String> {
        tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_machine_overrides_tags_of_the_infrastructure_but_not_the_owner() {
        let tags = tags(
            "one",
            &map(&[("Team", "a"), ("env", "test")]),
            &map(&[("team", "b"), ("Kubernetes.io_cluster.one", "shared")]),
        );
        assert_eq!(tags, map(&[("env", "test"), ("team", "b"), ("kubernetes.io_cluster.one", "owned")]));
    }

    #[test]
    fn the_tag_of_another_cluster_marks_a_resource_as_foreign() {
        let body = |tags: Value| json!({ "tags": tags });
        assert!(!is_foreign(&body(json!(null)), "one"));
        assert!(!is_foreign(&body(json!({"kubernetes.io_cluster.one": "owned"})), "one"));
        assert!(!is_foreign(&body(json!({"Kubernetes.io_cluster.ONE": "owned"})), "one"));
        assert!(is_foreign(&body(json!({"kubernetes.io_cluster.two": "owned"})), "one"));
        // A shared network carries the tags of several clusters.
        assert!(!is_foreign(
            &body(json!({"kubernetes.io_cluster.two": "owned", "kubernetes.io_cluster.one": "owned"})),
            "one"
        ));
    }

    #[test]
    fn only_missing_tags_are_written() {
        let body = json!({"tags": {"Team": "a", "by-hand": "x"}});
        assert_eq!(with_missing_tags(&body, &map(&[("team", "a")])), None);
        let expect = json!({"team": "b", "by-hand": "x"});
        assert_eq!(with_missing_tags(&body, &map(&[("team", "b")])), Some(expect));
    }

    #[test]
    fn the_availability_set_is_named_after_cluster_and_machine_set() {
        let name = |set: &str| {
            let names = Names::new("s", &ProviderSpec::default(), "m", "one", Some(&set.to_owned()));
            names.own_availability_set().map(|it| it.name().to_owned())
        };
        assert_eq!(name("one-worker").as_deref(), Some("one-worker-as"));
        assert_eq!(name("worker").as_deref(), Some("one_worker-as"));
        assert_eq!(name("").as_deref(), None);
        assert_eq!(name(&"x".repeat(90)).map(|it| it.len()), Some(80));
    }
}
