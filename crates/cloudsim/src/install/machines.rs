//! The machines of a cluster: their names, sizes and zones.

use api::install::{InstallRequest, MachinePool};
use cloud::ResourceId;

use crate::seed;

/// A machine that is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedMachine {
    pub(crate) name: String,
    pub(crate) pool: String,
    pub(crate) zone: Option<String>,
    pub(crate) size: String,
    pub(crate) disk_size_gb: u32,
    pub(crate) subnet: ResourceId,
    /// The machine set that it belongs to; none in the control plane.
    pub(crate) set: Option<String>,
}

impl PlannedMachine {
    pub(crate) fn id(&self, request: &InstallRequest) -> ResourceId {
        request.group.sibling("Microsoft.Compute", "virtualMachines", &self.name)
    }

    /// The part that it has in the cluster.
    pub(crate) fn role(&self) -> &'static str {
        if self.set.is_none() { "master" } else { "worker" }
    }

    /// What its node and its Machine say it is.
    pub(crate) fn provider_id(&self, request: &InstallRequest) -> String {
        // As the cloud's controller writes it: subscription and group in lower case.
        let (subscription, group) = (request.group.subscription(), request.group.resource_group());
        let group = ResourceId::group(&subscription.to_lowercase(), &group.to_lowercase());
        format!("azure://{}", group.sibling("Microsoft.Compute", "virtualMachines", &self.name))
    }
}

fn zone(request: &InstallRequest, number: u32) -> Option<String> {
    let count = u32::try_from(request.zones.len()).unwrap_or(0);
    (count > 0).then(|| request.zones[usize::try_from(number % count).unwrap_or(0)].clone())
}

/// The machine that begins it all.
pub(crate) fn bootstrap(request: &InstallRequest) -> PlannedMachine {
    PlannedMachine { name: format!("{}-bootstrap", request.infra_id), ..master(request, 0) }
}

fn master(request: &InstallRequest, number: u32) -> PlannedMachine {
    let MachinePool { name: pool, size, disk_size_gb, subnet, .. } = &request.masters;
    PlannedMachine {
        name: format!("{}-{pool}-{number}", request.infra_id),
        pool: pool.clone(),
        zone: zone(request, number),
        size: size.clone(),
        disk_size_gb: *disk_size_gb,
        subnet: subnet.clone(),
        set: None,
    }
}

/// The control plane.
pub(crate) fn masters(request: &InstallRequest) -> Vec<PlannedMachine> {
    (0..request.masters.count).map(|number| master(request, number)).collect()
}

/// The workers, spread over the zones: each zone has a machine set of its own.
pub(crate) fn workers(request: &InstallRequest, cloud_seed: u64) -> Vec<PlannedMachine> {
    let mut planned = Vec::new();
    for pool in &request.workers {
        for number in 0..pool.count {
            let cluster = request.cluster.to_string();
            let letters = seed::letters(cloud_seed, 5, &[&cluster, &pool.name, &number.to_string()]);
            let worker = worker(request, pool, number);
            planned.push(PlannedMachine { name: format!("{}-{letters}", worker.name), ..worker });
        }
    }
    planned
}

/// The machine sets of the workers: what their machines are, under the name of the set, and how many there are.
pub(crate) fn worker_sets(request: &InstallRequest) -> Vec<(PlannedMachine, u32)> {
    let zones = u32::try_from(request.zones.len()).unwrap_or(u32::MAX).max(1);
    let mut sets = Vec::new();
    for pool in &request.workers {
        for number in 0..zones {
            let replicas = pool.count / zones + u32::from(number < pool.count % zones);
            sets.push((worker(request, pool, number), replicas));
        }
    }
    sets
}

/// A worker under the name of its machine set.
fn worker(request: &InstallRequest, pool: &MachinePool, number: u32) -> PlannedMachine {
    let zone = zone(request, number);
    let place = format!("{}{}", request.location, zone.as_deref().unwrap_or_default());
    let set = format!("{}-{}-{place}", request.infra_id, pool.name);
    PlannedMachine {
        name: set.clone(),
        pool: pool.name.clone(),
        zone,
        size: pool.size.clone(),
        disk_size_gb: pool.disk_size_gb,
        subnet: pool.subnet.clone(),
        set: Some(set),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use uuid::Uuid;

    use super::*;

    pub(crate) fn request() -> InstallRequest {
        let group = ResourceId::group("s", "managed");
        let subnet = ResourceId::group("s", "net")
            .sibling("Microsoft.Network", "virtualNetworks", "v")
            .child("subnets", "a");
        let machines = |name: &str, count| MachinePool {
            name: name.to_owned(),
            count,
            size: "Standard_D8s_v5".to_owned(),
            disk_size_gb: 128,
            subnet: subnet.clone(),
        };
        InstallRequest {
            cluster: Uuid::nil(),
            name: "one".to_owned(),
            infra_id: "one-x7k2p".to_owned(),
            location: "westeurope".to_owned(),
            version: "4.17.3".to_owned(),
            domain: "one.example.test".to_owned(),
            load_balancer: group.sibling("Microsoft.Network", "loadBalancers", "one-x7k2p-internal"),
            group,
            zones: ["1", "2", "3"].map(str::to_owned).to_vec(),
            masters: machines("master", 3),
            workers: vec![machines("worker", 4)],
        }
    }

    #[test]
    fn machines_are_named_after_what_they_are_and_spread_over_zones() {
        let request = request();
        let names: Vec<String> = masters(&request).into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["one-x7k2p-master-0", "one-x7k2p-master-1", "one-x7k2p-master-2"]);
        let workers = workers(&request, 5);
        let sets: Vec<&str> = workers.iter().filter_map(|it| it.set.as_deref()).collect();
        assert_eq!(sets[0], "one-x7k2p-worker-westeurope1");
        assert_eq!(sets[3], sets[0]);
        let mut names: Vec<&str> = workers.iter().map(|it| it.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 4);
        assert_eq!(bootstrap(&request).name, "one-x7k2p-bootstrap");
    }
}
