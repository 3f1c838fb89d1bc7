//! What the controllers have in common: the cluster, its caches, the clock.

use std::sync::Arc;
use std::time::Duration;

use api::clock::SharedClock;
use api::crd::machine::{Machine, MachineHealthCheck, MachineSet};
use controller::{EventRecorder, Informer, Informers, ObjectKey, Selection};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{Api, Client};
use kubelink::Link;

use crate::metrics::Metrics;

/// Time until an object that changed while it was written is looked at again.
pub(crate) const CONFLICT_REQUEUE: Duration = Duration::from_millis(100);

/// The parts of one controller.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) clock: SharedClock,
    pub(crate) events: EventRecorder,
    pub(crate) metrics: Metrics,
    /// Whether objects say which API is authoritative for them.
    pub(crate) migration: bool,
    pub(crate) caches: Caches,
}

impl Context {
    /// The cluster as the verbs of kubelink see it.
    pub(crate) fn link(&self) -> Link {
        Link::from_client("this cluster", self.client.clone(), self.clock.clone())
    }
}

/// The caches, each filled by one watch that all controllers of the process share.
#[derive(Clone)]
pub(crate) struct Caches {
    informers: Arc<Informers>,
    namespace: Arc<str>,
}

impl Caches {
    pub(crate) fn new(informers: Arc<Informers>, namespace: &str) -> Caches {
        Caches { informers, namespace: namespace.into() }
    }

    /// The namespace of everything but Nodes and certificate requests.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn machines(&self) -> Arc<Informer<Machine>> {
        self.informers.namespaced(&self.namespace)
    }

    pub(crate) fn machine_sets(&self) -> Arc<Informer<MachineSet>> {
        self.informers.namespaced(&self.namespace)
    }

    pub(crate) fn health_checks(&self) -> Arc<Informer<MachineHealthCheck>> {
        self.informers.namespaced(&self.namespace)
    }

    pub(crate) fn secrets(&self) -> Arc<Informer<Secret>> {
        self.informers.namespaced(&self.namespace)
    }

    pub(crate) fn nodes(&self) -> Arc<Informer<Node>> {
        self.informers.all()
    }

    pub(crate) fn certificate_requests(&self) -> Arc<Informer<CertificateSigningRequest>> {
        self.informers.select(Api::all(self.informers.client().clone()), Selection::all())
    }
}

/// The cached Node of this name.
pub(crate) fn node(nodes: &Informer<Node>, name: &str) -> Option<Arc<Node>> {
    nodes.get(&ObjectKey::cluster(name))
}
