//! Remediation requests in the cluster.

use api::crd::machine::{Condition, Machine};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt, discovery};

use super::external::{self, RequestKinds};
use crate::conditions::{self, ConditionType};

/// A template that exists, and the requests that are made from it.
pub(super) struct External {
    kinds: RequestKinds,
    template: DynamicObject,
    requests: Api<DynamicObject>,
}

impl External {
    /// Reads the template and finds out about its kinds. The error says what is missing.
    pub(super) async fn resolve(
        client: &Client,
        namespace: &str,
        reference: &ObjectReference,
    ) -> Result<External, String> {
        let kinds = external::kinds(reference)?;
        let api = async |kind: &GroupVersionKind| -> Result<Api<DynamicObject>, String> {
            let found = discovery::pinned_kind(client, kind).await;
            let (resource, _) =
                found.map_err(|error| format!("kind {} is not served: {error}", kind.kind))?;
            Ok(Api::namespaced_with(client.clone(), namespace, &resource))
        };
        let templates = api(&kinds.template).await?;
        let requests = api(&kinds.request).await?;
        let template = templates.get_opt(&kinds.template_name).await;
        let name = format!("{} {namespace}/{}", kinds.template.kind, kinds.template_name);
        let template = template.map_err(|error| format!("{name} could not be read: {error}"))?;
        let template = template.ok_or_else(|| format!("{name} does not exist"))?;
        Ok(External { kinds, template, requests })
    }

    /// Ensures that there is a request for the Machine.
    pub(super) async fn request(
        &self,
        machine: &Machine,
        conditions: &mut Vec<Condition>,
    ) -> Result<(), String> {
        conditions.push(ConditionType::ExternalRemediationTemplateAvailable.holds());
        let created = self.create(machine).await;
        conditions.push(match &created {
            Ok(()) => ConditionType::ExternalRemediationRequestAvailable.holds(),
            Err(error) => conditions::remediation_request_failed(error.clone()),
        });
        created
    }

    async fn create(&self, machine: &Machine) -> Result<(), String> {
        let name = machine.name_any();
        let failed =
            |error: kube::Error| format!("{} {name} could not be created: {error}", self.kinds.request.kind);
        if self.requests.get_opt(&name).await.map_err(failed)?.is_some() {
            return Ok(());
        }
        let request = external::request(&self.kinds, &self.template, machine)?;
        match self.requests.create(&PostParams::default(), &request).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop).map_err(failed),
        }
    }

    /// Deletes the request for a Machine that is healthy.
    pub(super) async fn withdraw(&self, machine: &Machine) -> Result<(), String> {
        let name = machine.name_any();
        let failed =
            |error: kube::Error| format!("{} {name} could not be deleted: {error}", self.kinds.request.kind);
        let Some(found) = self.requests.get_opt(&name).await.map_err(failed)? else { return Ok(()) };
        if found.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let preconditions = Some(Preconditions { uid: found.uid(), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match self.requests.delete(&name, &params).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            other => other.map(drop).map_err(failed),
        }
    }
}
