//! The controllers of machines in a simulated cluster, with this provider: the life of a MachineSet on AWS.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::clock::SystemClock;
use api::crd::machine::{Machine, MachineSet};
use cloud_aws::{AwsInstances, AwsSettings};
use controller::Observability;
use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kubesim::{ClusterOptions, SimulatedCluster};
use machines::payload::{Release, manifests};
use machines::{Metrics, Settings};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::balancers;
use crate::environment::{Environment, SECRET_KEY, USER_DATA, own_moto, settings};
use crate::proxy::Fault;

const NAMESPACE: &str = "openshift-machine-api";
/// Longest time for a state to be reached; only a test that fails waits for it.
const DEADLINE: Duration = Duration::from_secs(90);

/// A simulated cluster with the definitions, the controllers, and a stand-in for the kubelets of its instances.
struct World {
    environment: Arc<Environment>,
    client: Client,
    _cluster: SimulatedCluster,
    _running: JoinSet<()>,
}

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

async fn create<T>(api: &Api<T>, value: Value)
where
    T: Clone + std::fmt::Debug + DeserializeOwned + serde::Serialize + kube::Resource,
{
    api.create(&PostParams::default(), &object(value)).await.unwrap();
}

impl World {
    async fn new(environment: Environment) -> World {
        let cluster = SimulatedCluster::start("aws", ClusterOptions::default()).await.unwrap();
        let (client, environment) = (cluster.client(), Arc::new(environment));
        let release = Release::new("image.invalid/shipshape:1", "1").unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for manifest in manifests(&release) {
            if manifest.object["kind"] == "CustomResourceDefinition" {
                create(&definitions, manifest.object).await;
            }
        }
        create(&Api::<Namespace>::all(client.clone()), json!({"metadata": {"name": NAMESPACE}})).await;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
        let credential = json!({"aws_access_key_id": "AKIATEST", "aws_secret_access_key": SECRET_KEY});
        for (name, data) in
            [("aws-cloud-credentials", credential), ("worker-user-data", json!({"userData": USER_DATA}))]
        {
            create(&secrets, json!({"metadata": {"name": name}, "stringData": data})).await;
        }
        let mut running = JoinSet::new();
        running.spawn(run_kubelets(client.clone(), environment.clone()));
        // Waits for what AWS may not show yet are tested elsewhere.
        let aws = AwsSettings { consistency: Duration::ZERO, ..settings(&environment.proxy) };
        let provider = Arc::new(AwsInstances::new(aws, Arc::new(SystemClock)).unwrap());
        let controllers = Settings {
            lease: None,
            resync: Duration::from_secs(1),
            ..Settings::new(NAMESPACE, "test", "aws")
        };
        let for_controllers = client.clone();
        running.spawn(async move {
            let (observability, metrics) = (Observability::default(), Metrics::default());
            let clock = Arc::new(SystemClock);
            let never = CancellationToken::new();
            machines::run(for_controllers, provider, controllers, clock, observability, metrics, never)
                .await
                .unwrap();
        });
        World { environment, client, _cluster: cluster, _running: running }
    }

    fn machines(&self) -> Api<Machine> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn sets(&self) -> Api<MachineSet> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn list(&self) -> Vec<Machine> {
        self.machines().list(&ListParams::default()).await.unwrap().items
    }

    async fn scale(&self, replicas: u32) {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.sets().patch("workers", &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until so many Machines run, each with the instance of its providerID, and AWS has no other instance of the cluster.
    async fn running(&self, count: usize) -> Vec<Machine> {
        let what = format!("{count} Machines run");
        eventually(&what, async || {
            let machines = self.list().await;
            let is_running =
                |it: &Machine| phase(it) == "Running" && it.metadata.deletion_timestamp.is_none();
            let wanted: BTreeSet<String> =
                machines.iter().filter_map(|it| it.spec.provider_id.clone()).collect();
            let present: BTreeSet<String> = instances(&self.environment).await.into_keys().collect();
            let is_reached = machines.len() == count && machines.iter().all(is_running) && wanted == present;
            is_reached.then_some(machines).ok_or_else(|| format!("{present:?}"))
        })
        .await
    }
}

fn phase(machine: &Machine) -> String {
    let phase = machine.status.as_ref().and_then(|it| it.phase.as_ref());
    phase.map(|it| it.as_str().to_owned()).unwrap_or_default()
}

/// The instances of the cluster that are not terminated, by their providerID, with the name of their host.
async fn instances(environment: &Environment) -> BTreeMap<String, String> {
    let owner = aws_sdk_ec2::types::Filter::builder()
        .name(format!("tag:kubernetes.io/cluster/{}", environment.cluster))
        .values("owned")
        .build();
    let found = environment.ec2.describe_instances().filters(owner).send().await.unwrap();
    let all = found.reservations().iter().flat_map(aws_sdk_ec2::types::Reservation::instances);
    all.filter(|it| it.state().unwrap().name().unwrap().as_str() == "running")
        .map(|it| {
            let zone = it.placement().unwrap().availability_zone().unwrap();
            let provider_id = format!("aws:///{zone}/{}", it.instance_id().unwrap());
            (provider_id, it.private_dns_name().unwrap().to_owned())
        })
        .collect()
}

/// Registers a ready Node for every instance.
async fn run_kubelets(client: Client, environment: Arc<Environment>) {
    let nodes: Api<Node> = Api::all(client);
    let mut known = BTreeSet::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(200));
    loop {
        ticks.tick().await;
        for (provider_id, name) in instances(&environment).await {
            if !known.insert(provider_id.clone()) {
                continue;
            }
            let node = json!({"metadata": {"name": name}, "spec": {"providerID": provider_id}});
            create(&nodes, node).await;
            let since = "2026-01-01T00:00:00Z";
            let condition = json!({"type": "Ready", "status": "True", "reason": "Test", "message": "",
                "lastTransitionTime": since, "lastHeartbeatTime": since});
            let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
            nodes.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
        }
    }
}

/// Polls until a state is reached; until then it is described.
async fn eventually<T>(what: &str, reached: impl AsyncFn() -> Result<T, String>) -> T {
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let last = std::cell::RefCell::new(String::new());
    let wait = async {
        loop {
            ticks.tick().await;
            match reached().await {
                Ok(found) => return found,
                Err(state) => *last.borrow_mut() = state,
            }
        }
    };
    match tokio::time::timeout(DEADLINE, wait).await {
        Ok(found) => found,
        Err(_) => panic!("{what}: not within {DEADLINE:?}; at last {}", last.borrow()),
    }
}

#[tokio::test]
async fn a_machine_set_is_created_refreshed_scaled_healed_and_deleted_on_aws() {
    let Some(server) = own_moto() else { return };
    let environment = Environment::in_region(&server, "walk", "ap-southeast-2").await;
    balancers::create(&environment).await;
    let mut spec = environment.spec();
    spec["loadBalancers"] = balancers::spec(&environment);
    let world = World::new(environment).await;
    let environment = &world.environment;
    let labels = json!({"machine.openshift.io/cluster-api-cluster": "walk", "set": "workers"});
    let set = json!({
        "metadata": {"name": "workers"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"set": "workers"}},
            "template": {"metadata": {"labels": labels}, "spec": {"providerSpec": {"value": spec}}},
        },
    });
    create(&world.sets(), set).await;

    // Created: two instances with what the Machines say about them, in the load balancers.
    let machines = world.running(2).await;
    for machine in &machines {
        let label = |name: &str| machine.labels().get(&format!("machine.openshift.io/{name}")).cloned();
        assert_eq!(label("region").as_deref(), Some("ap-southeast-2"));
        assert_eq!(label("zone").as_deref(), Some("ap-southeast-2a"));
        assert_eq!(label("instance-type").as_deref(), Some("m5.large"));
        assert_eq!(machine.annotations()["machine.openshift.io/instance-state"], "running");
        let status = machine.status.as_ref().unwrap();
        assert!(status.addresses.iter().any(|it| it.type_ == "InternalIP"));
        assert_eq!(status.provider_status.as_ref().unwrap()["instanceState"], "running");
    }
    assert_eq!(balancers::all_members(environment).await, 6);

    // Refreshed: a tag that somebody has removed comes back.
    let id = machines[0].spec.provider_id.clone().unwrap();
    let id = id.rsplit('/').next().unwrap();
    let team = aws_sdk_ec2::types::Tag::builder().key("team").build();
    environment.ec2.delete_tags().resources(id).tags(team).send().await.unwrap();
    eventually("the tag comes back", async || {
        let [found] = environment.present(&machines[0].name_any()).await.try_into().unwrap();
        let tags: Vec<&str> = found.tags().iter().filter_map(|it| it.key()).collect();
        if tags.contains(&"team") { Ok(()) } else { Err(format!("{tags:?}")) }
    })
    .await;

    // Scaled, while AWS fails: one more instance, not two.
    environment.proxy.fail_next("RunInstances", Fault::Html(502));
    environment.proxy.fail_next("RunInstances", Fault::LostResponse);
    world.scale(3).await;
    world.running(3).await;
    // One for each Machine: the one whose response was lost is found.
    assert_eq!(environment.proxy.launches().len(), 3);

    // Deleted and replaced: the instance is terminated, and another one takes its place.
    let name = machines[0].name_any();
    world.machines().delete(&name, &DeleteParams::default()).await.unwrap();
    let after = eventually("the Machine is replaced", async || {
        let machines = world.list().await;
        let is_replaced = machines.len() == 3 && machines.iter().all(|it| it.name_any() != name);
        if is_replaced { Ok(()) } else { Err(format!("{}", machines.len())) }
    });
    after.await;
    let machines = world.running(3).await;
    assert_eq!(environment.present(&name).await.len(), 0);

    // Missing: a Machine whose instance somebody has terminated fails.
    let lost = &machines[0];
    let id = lost.spec.provider_id.clone().unwrap();
    let id = id.rsplit('/').next().unwrap();
    environment.ec2.terminate_instances().instance_ids(id).send().await.unwrap();
    eventually("the Machine fails", async || {
        let machine = world.machines().get(&lost.name_any()).await.unwrap();
        let message = machine.status.as_ref().and_then(|it| it.error_message.clone()).unwrap_or_default();
        match phase(&machine).as_str() {
            "Failed" if message == "can't find created instance" => Ok(()),
            other => Err(format!("{other} {message}")),
        }
    })
    .await;

    // Deleted: nothing is left, neither in the cluster nor on AWS.
    world.scale(0).await;
    eventually("everything is deleted", async || {
        let (machines, instances) = (world.list().await, instances(environment).await);
        let nodes = Api::<Node>::all(world.client.clone()).list(&ListParams::default()).await.unwrap().items;
        let is_empty = machines.is_empty() && instances.is_empty() && nodes.is_empty();
        if is_empty { Ok(()) } else { Err(format!("{} {instances:?} {}", machines.len(), nodes.len())) }
    })
    .await;
    // All but the address of the instance that somebody else has terminated: AWS does not say any more which it was.
    assert_eq!(balancers::all_targets(environment).await, 1);
}
