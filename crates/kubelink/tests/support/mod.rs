//! Support for tests on a real API server: a link whose requests are recorded and can be failed, and a stand-in for
//! the kubelet.

use std::sync::Arc;

use api::clock::SystemClock;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{PostParams, ResourceExt};
use kube::{Api, Client};
use kubelink::{AllowedRisks, Kubeconfig, Link, Timeouts};
use serde_json::{Value, json};
use testkit::kube::TestCluster;

mod kubelet;
mod logs;
mod tap;

pub(crate) use kubelet::Kubelet;
pub(crate) use logs::LogServer;
pub(crate) use tap::{Fault, Tap};

/// A namespace on the shared cluster, and a link to it.
pub(crate) struct World {
    /// The link under test: all its requests go through the tap.
    pub(crate) link: Link,
    /// The client of the test itself.
    backstage: Client,
    pub(crate) namespace: String,
    pub(crate) tap: Tap,
}

/// A namespace of the test's own on the shared cluster; `None`, with a message, if this machine has no cluster.
pub(crate) fn world(prefix: &str) -> Option<World> {
    let Some(cluster) = testkit::kube::shared() else {
        testkit::prerequisites::skip(testkit::prerequisites::KUBERNETES, testkit::kube::MISSING);
        return None;
    };
    Some(world_on(cluster, prefix))
}

pub(crate) fn world_on(cluster: &TestCluster, prefix: &str) -> World {
    let namespace = cluster.namespace(prefix).unwrap();
    let tap = Tap::default();
    let link = link_to(cluster.kubeconfig(), &tap, Timeouts::default());
    let backstage = link_to(cluster.kubeconfig(), &Tap::default(), Timeouts::default()).client();
    World { link, backstage, namespace, tap }
}

/// A world in the default namespace of a simulated cluster. Requests of the test itself have no faults.
pub(crate) fn world_of(sim: &kubesim::SimulatedCluster) -> World {
    let tap = Tap::default();
    let link = link_to(&sim.kubeconfig(), &tap, Timeouts::default());
    World { link, backstage: sim.client(), namespace: "default".to_owned(), tap }
}

pub(crate) fn link_to(kubeconfig: &str, tap: &Tap, timeouts: Timeouts) -> Link {
    let kubeconfig = Kubeconfig::parse(kubeconfig, None, &AllowedRisks::nothing()).unwrap();
    Link::open_through("test", &kubeconfig, timeouts, Arc::new(SystemClock), tap).unwrap()
}

impl World {
    pub(crate) fn client(&self) -> Client {
        self.backstage.clone()
    }

    /// Creates a typed object.
    pub(crate) async fn create<K>(&self, api: Api<K>, object: Value) -> K
    where
        K: kube::Resource + Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    /// A node without scheduled pods, named after the namespace so that it is unique.
    pub(crate) async fn node(&self, name: &str) -> String {
        let name = format!("{}-{name}", self.namespace);
        let _: Node = self.create(Api::all(self.client()), json!({"metadata": {"name": name}})).await;
        name
    }

    /// An existing object that pods can name as their controller. No controller manages a ConfigMap's pods, so they
    /// are what the test makes them.
    pub(crate) async fn owner(&self) -> Value {
        let owner: ConfigMap = self.create(self.api(), json!({"metadata": {"generateName": "owner-"}})).await;
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid(), "controller": true}])
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// A pod on `node`.
    pub(crate) async fn pod(&self, node: &str, name: &str, owners: Option<&Value>) -> Pod {
        self.create(self.api(), pod(node, name, owners)).await
    }
}

/// A pod as an object, for tests that change it before it is created.
pub(crate) fn pod(node: &str, name: &str, owners: Option<&Value>) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "web"}, "ownerReferences": owners},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "example.invalid/c"}],
            "terminationGracePeriodSeconds": 1},
    })
}
