//! The metrics of this process. Wiring registers those of each service; the health endpoint serves them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::text;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::readiness::Readiness;
use crate::version::Version;

/// The registry; clones share it, so that services can register after the endpoint is open.
#[derive(Debug, Clone)]
pub(crate) struct Metrics(Arc<Mutex<Registry>>);

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
        Metrics(Arc::new(Mutex::new(registry)))
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

    /// All metrics in the OpenMetrics text format.
    pub(crate) fn to_text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.lock())?;
        Ok(text)
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
