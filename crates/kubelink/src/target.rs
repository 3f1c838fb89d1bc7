//! The object that a verb works on.

use std::fmt;

use kube::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta};
use kube::discovery::{ApiCapabilities, Scope};

use crate::error::{Failure, LinkError};
use crate::link::Link;

/// One object by kind and name, whether it exists or not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Its API resource.
    pub resource: ApiResource,
    /// Its namespace, unless the kind has none.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl Target {
    /// An object of a typed kind.
    pub fn typed<K>(namespace: Option<&str>, name: &str) -> Target
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let resource = ApiResource::erase::<K>(&());
        Target { resource, namespace: namespace.map(str::to_owned), name: name.to_owned() }
    }

    pub(crate) fn api(&self, link: &Link) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(link.client(), namespace, &self.resource),
            None => Api::all_with(link.client(), &self.resource),
        }
    }

    /// Identifies the object across versions of its kind.
    pub(crate) fn key(&self) -> (&str, &str, &str, &str) {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        (&self.resource.group, &self.resource.kind, namespace, &self.name)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.resource.kind, self.name),
            None => write!(f, "{} {}", self.resource.kind, self.name),
        }
    }
}

impl Link {
    /// The API resource of `kind` of `api_version` (`apps/v1`, `v1`), and whether it is namespaced.
    pub async fn resolve(&self, api_version: &str, kind: &str) -> Result<(ApiResource, Scope), LinkError> {
        let unknown = || Failure::UnknownKind { api_version: api_version.to_owned(), kind: kind.to_owned() };
        let label = format!("{kind} of {api_version}");
        let served = self.served(api_version).await?;
        let served = served.into_iter().find(|(resource, _)| resource.kind == kind);
        let (resource, capabilities) = served.ok_or_else(|| self.error("find", &label, unknown()))?;
        Ok((resource, capabilities.scope))
    }

    /// All resources that the cluster serves of one group and version; none if it has no such group.
    pub(crate) async fn served(
        &self,
        api_version: &str,
    ) -> Result<Vec<(ApiResource, ApiCapabilities)>, LinkError> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, "");
        let wanted = kube::core::GroupVersion { group: gvk.group, version: gvk.version };
        match kube::discovery::pinned_group(&self.client(), &wanted).await {
            Ok(group) => Ok(group.versioned_resources(version)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(kube::Error::Discovery(_)) => Ok(Vec::new()),
            Err(error) => Err(self.failed("discover", format!("kinds of {api_version}"), error)),
        }
    }

    /// Reads `target`; `None` if it does not exist.
    pub async fn get(&self, target: &Target) -> Result<Option<DynamicObject>, LinkError> {
        target.api(self).get_opt(&target.name).await.map_err(|error| self.failed("read", target, error))
    }
}

/// The finalizers that delay the deletion of an object.
pub(crate) fn held_by(metadata: &ObjectMeta) -> &[String] {
    match metadata.deletion_timestamp {
        Some(_) => metadata.finalizers.as_deref().unwrap_or_default(),
        None => &[],
    }
}
