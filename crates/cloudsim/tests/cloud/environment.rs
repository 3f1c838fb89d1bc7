//! A service that runs, with what a customer brings to it.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use api::install::{InstallRequest, InstallStage, Installation, Installer as _, MachinePool};
use cloud::{
    CloudError, Infrastructure as _, LoadBalancerFrontend, Properties, Resource, ResourceId, ResourceRequest,
    ResourceState,
};
use cloudsim::SimClient;
use cloudsim::{Endpoints, Faults, Options, ResourceProviders, Service};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) const LOCATION: &str = "westeurope";
pub(crate) const SUBSCRIPTION: &str = "11111111-1111-1111-1111-111111111111";

/// Nothing here takes longer on a busy machine, unless it is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running service. Dropping it kills it.
pub(crate) struct Environment {
    pub(crate) cloud: SimClient,
    pub(crate) faults: Faults,
    pub(crate) providers: ResourceProviders,
    pub(crate) endpoints: Endpoints,
    stop: CancellationToken,
    task: JoinHandle<Result<(), cloudsim::ServeError>>,
}

impl Environment {
    pub(crate) async fn new() -> Environment {
        Environment::with(Options::default()).await
    }

    pub(crate) async fn at(directory: &Path) -> Environment {
        Environment::with(Options { directory: Some(directory.to_owned()), ..Options::default() }).await
    }

    pub(crate) async fn with(options: Options) -> Environment {
        let service = Service::open(options).await.expect("the service opens");
        let (cloud, faults) = (service.client().expect("a client"), service.faults());
        let (endpoints, providers) = (service.endpoints(), service.providers());
        let stop = CancellationToken::new();
        #[expect(clippy::disallowed_methods, reason = "the handle is kept, and its end is awaited or forced")]
        let task = tokio::spawn(service.serve(stop.clone()));
        Environment { cloud, faults, providers, endpoints, stop, task }
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        (&mut self.task).await.expect("it does not panic").expect("it stops well");
    }

    /// Ends it at once, wherever it is.
    pub(crate) async fn kill(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    /// A group, a network and two subnets.
    pub(crate) async fn network(&self) -> [ResourceId; 2] {
        self.put(group("net"), Properties::ResourceGroup { managed_by: None }).await;
        let network = network_id();
        self.put(
            network.clone(),
            Properties::VirtualNetwork { address_space: vec!["10.0.0.0/16".to_owned()] },
        )
        .await;
        let subnets = [("master", "10.0.0.0/23"), ("worker", "10.0.2.0/23")];
        for (name, prefix) in subnets {
            self.put(network.child("subnets", name), subnet(prefix)).await;
        }
        subnets.map(|(name, _)| network.child("subnets", name))
    }

    pub(crate) async fn put(&self, id: ResourceId, properties: Properties) -> Resource {
        self.try_put(id, properties).await.expect("the put is accepted")
    }

    pub(crate) async fn try_put(
        &self,
        id: ResourceId,
        properties: Properties,
    ) -> Result<Resource, CloudError> {
        self.cloud.azure().put(request(id, properties)).await
    }

    pub(crate) async fn get(&self, id: &ResourceId) -> Option<Resource> {
        self.cloud.azure().get(id).await.expect("the get is answered")
    }

    /// What a cluster needs before its installer is called, and its request.
    pub(crate) async fn prepared(&self, name: &str) -> InstallRequest {
        let [master, worker] = self.network().await;
        let managed = group(&format!("{name}-managed"));
        self.put(managed.clone(), Properties::ResourceGroup { managed_by: Some(name.to_owned()) }).await;
        let balancer =
            managed.sibling("Microsoft.Network", "loadBalancers", &format!("{name}-x7k2p-internal"));
        let frontend = LoadBalancerFrontend {
            name: "internal".to_owned(),
            public_ip: None,
            subnet: Some(master.clone()),
            address: None,
            ports: vec![6443],
        };
        let properties = Properties::LoadBalancer {
            frontends: vec![frontend],
            backends: Vec::new(),
            outbound: Vec::new(),
        };
        self.put(balancer.clone(), properties).await;
        let machines = |pool: &str, size: &str, subnet: ResourceId| MachinePool {
            name: pool.to_owned(),
            count: 3,
            size: size.to_owned(),
            disk_size_gb: 128,
            subnet,
        };
        InstallRequest {
            cluster: Uuid::new_v4(),
            name: name.to_owned(),
            infra_id: format!("{name}-x7k2p"),
            location: LOCATION.to_owned(),
            version: "4.17.3".to_owned(),
            domain: format!("{name}.example.test"),
            group: managed,
            zones: ["1", "2", "3"].map(str::to_owned).to_vec(),
            masters: machines("master", "Standard_D8s_v5", master),
            workers: vec![machines("worker", "Standard_D4s_v5", worker)],
            load_balancer: balancer,
        }
    }

    pub(crate) async fn installed(&self, request: &InstallRequest) -> Installation {
        self.cloud.installer().install(request).await.expect("the order is accepted");
        self.ended(request.cluster).await
    }

    /// An installation that is complete or has failed.
    pub(crate) async fn ended(&self, cluster: Uuid) -> Installation {
        eventually("the installation stops", async || {
            let found = self.cloud.installer().installation(cluster).await.expect("a look")?;
            (found.stage == InstallStage::Complete || found.failure.is_some()).then_some(found)
        })
        .await
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn group(name: &str) -> ResourceId {
    ResourceId::group(SUBSCRIPTION, name)
}

pub(crate) fn network_id() -> ResourceId {
    group("net").sibling("Microsoft.Network", "virtualNetworks", "v")
}

pub(crate) fn subnet(prefix: &str) -> Properties {
    Properties::Subnet {
        address_prefix: prefix.to_owned(),
        security_group: None,
        route_table: None,
        nat_gateway: None,
        service_endpoints: Vec::new(),
        private_link_policies: true,
    }
}

pub(crate) fn machine(subnet: &ResourceId) -> Properties {
    Properties::Machine {
        size: "Standard_D4s_v5".to_owned(),
        subnet: subnet.clone(),
        zone: Some("1".to_owned()),
        disk_size_gb: 128,
        address: None,
        running: true,
    }
}

pub(crate) fn request(id: ResourceId, properties: Properties) -> ResourceRequest {
    ResourceRequest { id, location: LOCATION.to_owned(), tags: BTreeMap::new(), properties }
}

pub(crate) fn is_done(resource: &Resource) -> bool {
    resource.state == ResourceState::Succeeded
}

/// Waits until something can be seen; tries again at once after a short rest, and gives up only when it is broken.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let seen = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(what, seen).await
}

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("in time: {what}"))
}
