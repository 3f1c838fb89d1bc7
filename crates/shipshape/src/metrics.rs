//! The metrics of this process. Wiring registers those of each service; the health endpoint serves them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::text;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::readiness::Readiness;
use crate::version::Version;

/// The registry; clones share it, so that services can register after the endpoint is open.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    ours: Arc<Mutex<Registry>>,
    /// Metrics whose whole names others know.
    others: Arc<Mutex<Registry>>,
}

impl Metrics {
    /// A registry with the metrics of every process. Every name starts with `shipshape_`.
    pub(crate) fn new(readiness: Readiness) -> Metrics {
        let mut registry = Registry::with_prefix("shipshape");
        let version = Version::current();
        let labels = vec![
            ("version", version.version),
            ("commit", version.commit.unwrap_or("unknown")),
            ("rustc", version.rustc),
        ];
        registry.register("build", "What this executable was built from", Info::new(labels));
        registry.register_collector(Box::new(readiness));
        Metrics { ours: Arc::new(Mutex::new(registry)), others: Arc::default() }
    }

    /// Registers the metrics of a service; their names start with `shipshape_<service>_`.
    #[cfg(feature = "services")]
    pub(crate) fn register<M: Default>(
        &self,
        service: &'static str,
        register: impl FnOnce(&M, &mut Registry),
    ) -> M {
        let metrics = M::default();
        register(&metrics, self.lock().sub_registry_with_prefix(service));
        metrics
    }

    /// Registers metrics of clusters, whose names follow `shipshape_` at once.
    #[cfg(feature = "services")]
    pub(crate) fn register_clusters(&self, register: impl FnOnce(&mut Registry)) {
        register(self.lock().sub_registry_with_label(("scope".into(), "cluster".into())));
    }

    /// Registers metrics under `shipshape_<part>_`, and others under names that are known elsewhere, such as those of OpenShift.
    #[cfg(feature = "agent")]
    pub(crate) fn register_controllers(
        &self,
        part: &'static str,
        ours: impl FnOnce(&mut Registry),
        others: impl FnOnce(&mut Registry),
    ) {
        ours(self.lock().sub_registry_with_prefix(part));
        others(&mut self.others.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// All metrics in the OpenMetrics text format.
    pub(crate) fn to_text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        text::encode_registry(&mut text, &self.lock())?;
        text::encode_registry(&mut text, &self.others.lock().unwrap_or_else(PoisonError::into_inner))?;
        text::encode_eof(&mut text)?;
        Ok(text)
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.ours.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
