//! The name of an object within its kind.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

/// Namespace and name of an object. Its kind follows from where the key is used. Ordered by namespace, then by name; cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace; `None` for a cluster-scoped object.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of a cluster-scoped object.
    pub fn cluster(name: &str) -> ObjectKey {
        ObjectKey { namespace: None, name: name.into() }
    }

    /// The key of an object in a namespace.
    pub fn namespaced(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { namespace: Some(namespace.into()), name: name.into() }
    }

    /// The key of `object`.
    pub fn of<K: Resource>(object: &K) -> ObjectKey {
        ObjectKey::of_meta(object.meta())
    }

    /// The key of the object with this metadata.
    pub fn of_meta(meta: &ObjectMeta) -> ObjectKey {
        ObjectKey {
            namespace: meta.namespace.as_deref().filter(|it| !it.is_empty()).map(Into::into),
            name: meta.name.as_deref().unwrap_or_default().into(),
        }
    }

    /// The namespace, or an empty string.
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
