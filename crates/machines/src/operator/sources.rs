//! The caches of the operator. Every watch is limited to one name, but for what is counted: Machines, MachineSets and the controllers' pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::crd::machine::{Machine, MachineHealthCheck, MachineSet};
use controller::{Informer, Informers, Object, ObjectKey, Selection};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, NamespaceResourceScope};
use serde_json::Value;

use super::configuration::{CLUSTER, IMAGES};
use super::desired::{CONTROLLERS, TERMINATION_HANDLER};
use crate::webhooks::registration;

/// The name of the ClusterOperator.
pub(super) const CLUSTER_OPERATOR: &str = "machine-api";

/// The definitions of the machine API, without which nothing can be available.
pub(super) const MACHINE_DEFINITIONS: [&str; 3] = [
    "machines.machine.openshift.io",
    "machinesets.machine.openshift.io",
    "machinehealthchecks.machine.openshift.io",
];

/// Everything that may be served or not.
pub(super) const DEFINITIONS: [&str; 7] = [
    MACHINE_DEFINITIONS[0],
    MACHINE_DEFINITIONS[1],
    MACHINE_DEFINITIONS[2],
    "clusteroperators.config.openshift.io",
    "infrastructures.config.openshift.io",
    "proxies.config.openshift.io",
    "featuregates.config.openshift.io",
];

/// One object of a kind of OpenShift's configuration, if the kind is served.
pub(super) struct ConfigSource {
    pub(super) resource: ApiResource,
    pub(super) informer: Option<Arc<Informer<DynamicObject>>>,
    name: &'static str,
}

impl ConfigSource {
    fn new(
        informers: &Informers,
        served: &BTreeSet<&'static str>,
        kind: &str,
        plural: &str,
        name: &'static str,
    ) -> ConfigSource {
        let kind = GroupVersionKind::gvk("config.openshift.io", "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let is_served = served.contains(format!("{plural}.config.openshift.io").as_str());
        let informer = is_served.then(|| {
            let api = Api::all_with(informers.client().clone(), &resource);
            informers.select_dynamic(api, &resource, Selection::named(name))
        });
        ConfigSource { resource, informer, name }
    }

    /// The object, if there is one.
    pub(super) fn get(&self) -> Option<Arc<DynamicObject>> {
        self.informer.as_ref()?.get(&ObjectKey::cluster(self.name))
    }

    /// The fields of the object but its metadata.
    pub(super) fn data(&self) -> Option<Value> {
        self.get().map(|object| object.data.clone())
    }
}

/// All caches.
pub(super) struct Sources {
    pub(super) served: BTreeSet<&'static str>,
    pub(super) images: Arc<Informer<ConfigMap>>,
    pub(super) deployments: Arc<Informer<Deployment>>,
    pub(super) daemon_sets: Arc<Informer<DaemonSet>>,
    pub(super) pods: Arc<Informer<Pod>>,
    pub(super) mutating: Arc<Informer<MutatingWebhookConfiguration>>,
    pub(super) validating: Arc<Informer<ValidatingWebhookConfiguration>>,
    pub(super) health_checks: Option<Arc<Informer<MachineHealthCheck>>>,
    pub(super) machines: Option<Arc<Informer<Machine>>>,
    pub(super) machine_sets: Option<Arc<Informer<MachineSet>>>,
    pub(super) cluster_operator: ConfigSource,
    pub(super) infrastructure: ConfigSource,
    pub(super) proxy: ConfigSource,
    pub(super) feature_gate: ConfigSource,
}

impl Sources {
    pub(super) fn new(informers: &Informers, served: BTreeSet<&'static str>, namespace: &str) -> Sources {
        let client = informers.client();
        let [machines, machine_sets, health_checks] = MACHINE_DEFINITIONS.map(|it| served.contains(it));
        let config =
            |kind: &str, plural: &str, name| ConfigSource::new(informers, &served, kind, plural, name);
        Sources {
            images: named(informers, namespace, IMAGES),
            deployments: named(informers, namespace, CONTROLLERS),
            daemon_sets: named(informers, namespace, TERMINATION_HANDLER),
            pods: informers.select(
                Api::namespaced(client.clone(), namespace),
                Selection::all().labels("api=clusterapi,k8s-app=controller"),
            ),
            mutating: informers.select(Api::all(client.clone()), Selection::named(registration::NAME)),
            validating: informers.select(Api::all(client.clone()), Selection::named(registration::NAME)),
            health_checks: health_checks.then(|| named(informers, namespace, TERMINATION_HANDLER)),
            machines: machines.then(|| informers.namespaced(namespace)),
            machine_sets: machine_sets.then(|| informers.namespaced(namespace)),
            cluster_operator: config("ClusterOperator", "clusteroperators", CLUSTER_OPERATOR),
            infrastructure: config("Infrastructure", "infrastructures", CLUSTER),
            proxy: config("Proxy", "proxies", CLUSTER),
            feature_gate: config("FeatureGate", "featuregates", CLUSTER),
            served,
        }
    }

    /// A sentence about each definition of the machine API that is not served.
    pub(super) fn missing_definitions(&self) -> Vec<String> {
        let missing = MACHINE_DEFINITIONS.into_iter().filter(|name| !self.served.contains(name));
        missing
            .map(|name| {
                format!("CustomResourceDefinition {name}: status.conditions[Established] is not True")
            })
            .collect()
    }
}

fn named<K>(informers: &Informers, namespace: &str, name: &str) -> Arc<Informer<K>>
where
    K: Object + kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    informers.select(Api::namespaced(informers.client().clone(), namespace), Selection::named(name))
}
