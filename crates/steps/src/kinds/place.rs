//! Objects that a step names by kind and name, resolved on the cluster.

use kube::Api;
use kube::core::{ApiResource, DynamicObject};
use kube::discovery::Scope;
use kubelink::{Link, Target};

use super::with::With;
use crate::engine::StepError;
use crate::problem::Problem;

/// Namespace of namespaced objects that name none, as for kubectl.
const DEFAULT_NAMESPACE: &str = "default";

/// A kind, and where its objects are.
#[derive(Debug)]
pub(super) struct Place {
    api_version: String,
    kind: String,
    namespace: Option<String>,
}

impl Place {
    pub(super) fn read(with: &mut With<'_>) -> Result<Place, Problem> {
        let (api_version, kind) = with.kind()?;
        let namespace = with.namespace()?;
        Ok(Place { api_version, kind, namespace })
    }

    /// The API resource of the kind, and the namespace of its objects.
    pub(super) async fn find(&self, link: &Link) -> Result<(ApiResource, Option<String>), StepError> {
        let (resource, scope) = link.resolve(&self.api_version, &self.kind).await?;
        match (scope, &self.namespace) {
            (Scope::Namespaced, namespace) => {
                Ok((resource, Some(namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE).to_owned())))
            }
            (Scope::Cluster, None) => Ok((resource, None)),
            (Scope::Cluster, Some(_)) => {
                let message = format!("a {} has no namespace, and one is given", self.kind);
                Err(StepError::terminal("Invalid", message))
            }
        }
    }

    pub(super) async fn target(&self, link: &Link, name: &str) -> Result<Target, StepError> {
        let (resource, namespace) = self.find(link).await?;
        Ok(Target { resource, namespace, name: name.to_owned() })
    }

    pub(super) async fn api(&self, link: &Link) -> Result<Api<DynamicObject>, StepError> {
        let (resource, namespace) = self.find(link).await?;
        Ok(match &namespace {
            Some(namespace) => Api::namespaced_with(link.client(), namespace, &resource),
            None => Api::all_with(link.client(), &resource),
        })
    }

    /// `Deployment web/frontend`, or the kind with a selector.
    pub(super) fn describe(&self, which: &str) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} {namespace}/{which}", self.kind),
            None => format!("{} {which}", self.kind),
        }
    }
}
