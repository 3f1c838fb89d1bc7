//! The infrastructure role: resources by their own contracts, each call returning as soon as Azure has accepted it.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use azure_core::http::Method;
use cloud::{
    CloudError, Infrastructure, Properties, ProviderRegistration, Resource, ResourceId, ResourceKind,
    ResourceRequest, ResourceState, Size, Usage,
};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use crate::arm::{CHANGE_ATTEMPTS_MAX, Call, Condition};
use crate::client::AzureClient;
use crate::error::CallName;
use crate::json::{items, same, set, text};
use crate::operations::{OperationKind, OperationState};
use crate::resources::{self, STORAGE, version};

/// Reads at the same time while a group is listed.
const PARALLEL_READS: usize = 8;

#[async_trait]
impl Infrastructure for AzureClient {
    async fn put(&self, put: ResourceRequest) -> Result<Resource, CloudError> {
        let kind = put.properties.kind();
        if ResourceKind::of_id(&put.id) != Some(kind) {
            let why = format!("{} is no id of a resource of kind {kind:?}", put.id);
            return Err(CloudError::Invalid { code: "InvalidResourceId".to_owned(), why });
        }
        let guard = self.inner.arm.exclusive(&resources::write_key(&put.id, kind)).await;
        let resource = match kind {
            ResourceKind::Machine => self.put_machine(&put).await,
            ResourceKind::StorageAccount => self.put_account(&put).await,
            ResourceKind::Identity => self.put_identity(&put).await,
            ResourceKind::PrivateEndpoint => self.put_endpoint(&put).await,
            _ => self.put_plain(&put).await.and_then(|body| self.resource(&put.id, kind, &body)),
        }?;
        drop(guard);
        Ok(resource)
    }

    async fn get(&self, id: &ResourceId) -> Result<Option<Resource>, CloudError> {
        let kind = known_kind(id)?;
        match self.read(id, kind).await? {
            Some(body) => self.complete(id, kind, &body).await.map(Some),
            None => self.absent(id).await,
        }
    }

    async fn list(&self, group: &ResourceId) -> Result<Vec<Resource>, CloudError> {
        let path = format!("{group}/resources");
        let items = match self.inner.arm.list(&path, version(ResourceKind::ResourceGroup), &[], None).await {
            Ok(items) => items,
            Err(CloudError::NotFound { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let ids = items.iter().filter_map(|it| text(it, "/id").parse::<ResourceId>().ok());
        let ids: Vec<(ResourceId, ResourceKind)> =
            ids.filter_map(|id| ResourceKind::of_id(&id).map(|kind| (id, kind))).collect();
        let (machines, others): (Vec<_>, Vec<_>) =
            ids.into_iter().partition(|(_, kind)| *kind == ResourceKind::Machine);
        let bodies: Vec<(ResourceId, ResourceKind, Option<Value>)> = stream::iter(others)
            .map(|(id, kind)| async move { self.read(&id, kind).await.map(|body| (id, kind, body)) })
            .buffer_unordered(PARALLEL_READS)
            .try_collect()
            .await?;
        let interfaces: HashMap<String, &Value> = bodies
            .iter()
            .filter(|(_, kind, _)| *kind == ResourceKind::NetworkInterface)
            .filter_map(|(id, _, body)| Some((id.key(), body.as_ref()?)))
            .collect();
        let mut found = Vec::new();
        for (id, kind, body) in &bodies {
            let Some(body) = body else { continue };
            found.push(self.complete(id, *kind, body).await?);
            found.extend(self.children(id, *kind, body).await?);
        }
        let machines: Vec<Option<Resource>> = stream::iter(machines)
            .map(|(id, kind)| {
                let interfaces = &interfaces;
                async move {
                    let Some(body) = self.read(&id, kind).await? else { return Ok(None) };
                    let interface = interface_id(&body).and_then(|it| interfaces.get(&it.key()).copied());
                    match interface {
                        Some(interface) => self.machine(&id, &body, Some(interface)).await.map(Some),
                        None => self.complete(&id, kind, &body).await.map(Some),
                    }
                }
            })
            .buffer_unordered(PARALLEL_READS)
            .try_collect()
            .await?;
        found.extend(machines.into_iter().flatten());
        found.sort_by(|one, other| one.id.cmp(&other.id));
        found.dedup_by(|one, other| one.id == other.id);
        Ok(found)
    }

    async fn delete(&self, id: &ResourceId) -> Result<(), CloudError> {
        let kind = known_kind(id)?;
        let guard = self.inner.arm.exclusive(&resources::write_key(id, kind)).await;
        if let Some(operation) =
            self.inner.operations.of(id).filter(|it| matches!(it.kind, OperationKind::Delete))
        {
            match self.inner.operations.state(&self.inner.arm, id, &operation).await? {
                OperationState::InProgress => return Ok(()),
                OperationState::Failed(error) => {
                    self.inner.operations.forget(id);
                    let principal = self.inner.credentials.principal();
                    return Err(error.into_cloud_error(CallName {
                        method: "DELETE",
                        subject: id.as_str(),
                        principal,
                    }));
                }
                OperationState::Succeeded | OperationState::Unknown => self.inner.operations.forget(id),
            }
        }
        let is_gone = self.start_delete(id, kind).await?;
        if kind == ResourceKind::Machine && is_gone {
            self.delete_parts(id).await?;
        }
        drop(guard);
        Ok(())
    }

    async fn sizes(&self, subscription: &str, location: &str) -> Result<Vec<Size>, CloudError> {
        self.list_sizes(subscription, location).await
    }

    async fn usages(&self, subscription: &str, location: &str) -> Result<Vec<Usage>, CloudError> {
        self.list_usages(subscription, location).await
    }

    async fn providers(&self, subscription: &str) -> Result<Vec<ProviderRegistration>, CloudError> {
        self.list_providers(subscription).await
    }

    async fn feature(&self, subscription: &str, feature: &str) -> Result<Option<bool>, CloudError> {
        self.find_feature(subscription, feature).await
    }

    async fn register_provider(&self, subscription: &str, namespace: &str) -> Result<(), CloudError> {
        self.start_provider_registration(subscription, namespace).await
    }

    async fn register_feature(&self, subscription: &str, feature: &str) -> Result<(), CloudError> {
        self.start_feature_registration(subscription, feature).await
    }
}

fn known_kind(id: &ResourceId) -> Result<ResourceKind, CloudError> {
    ResourceKind::of_id(id).ok_or_else(|| CloudError::Invalid {
        code: "InvalidResourceType".to_owned(),
        why: format!("{id} is of a type that is not managed here"),
    })
}

/// The id of a machine's first interface.
fn interface_id(body: &Value) -> Option<ResourceId> {
    items(body, "/properties/networkProfile/networkInterfaces")
        .first()
        .and_then(|it| text(it, "/id").parse().ok())
}

impl AzureClient {
    pub(crate) async fn read(
        &self,
        id: &ResourceId,
        kind: ResourceKind,
    ) -> Result<Option<Value>, CloudError> {
        self.inner.arm.find(id.as_str(), version(kind), resources::expansion(kind)).await
    }

    /// Reads, changes and writes a resource under its etag, unless it is as requested; the body that is then in force.
    async fn put_plain(&self, put: &ResourceRequest) -> Result<Value, CloudError> {
        let kind = put.properties.kind();
        for _ in 0..CHANGE_ATTEMPTS_MAX {
            let present = self.read(&put.id, kind).await?;
            let mut body = resources::target(put, present.as_ref(), &self.inner.settings.machines)?;
            let mut condition = Condition::None;
            let mut etag = String::new();
            if let Some(present) = &present {
                let mut compared = present.clone();
                for assigned in ["etag", "systemData", "resources"] {
                    set(&mut compared, &[assigned], Value::Null);
                }
                for reported in ["instanceView", "vmId", "timeCreated"] {
                    set(&mut compared, &["properties", reported], Value::Null);
                }
                let is_failed = matches!(resources::state(present), ResourceState::Failed { .. });
                if same(&strip_reported(&body), &strip_reported(&compared)) && !is_failed {
                    return Ok(present.clone());
                }
                text(present, "/etag").clone_into(&mut etag);
                if resources::has_etag(kind) && !etag.is_empty() {
                    condition = Condition::Unchanged(&etag);
                }
            } else if matches!(kind, ResourceKind::DnsRecord | ResourceKind::PrivateDnsRecord) {
                // The claim on a name: of two who create it, one succeeds.
                condition = Condition::Absent;
            }
            if kind == ResourceKind::VirtualNetwork && present.is_some() {
                // Tags alone would differ; a put could take the customer's subnets.
                return present.ok_or(CloudError::NotFound { what: put.id.to_string() });
            }
            if kind == ResourceKind::Machine {
                set(&mut body, &["etag"], Value::Null);
            }
            match self.write(put, kind, &body, condition).await {
                Err(CloudError::PreconditionFailed { .. }) => {}
                written => return written,
            }
        }
        Err(CloudError::PreconditionFailed { what: put.id.to_string() })
    }

    async fn write(
        &self,
        put: &ResourceRequest,
        kind: ResourceKind,
        body: &Value,
        condition: Condition<'_>,
    ) -> Result<Value, CloudError> {
        let path = put.id.as_str();
        let call = Call { body: Some(body), condition, ..Call::new(Method::Put, path, version(kind)) };
        let answer = self.inner.arm.send(call).await?;
        match answer.operation() {
            Some(url) => {
                self.inner.operations.remember(&put.id, url, OperationKind::Put(Box::new(put.clone())));
            }
            None => self.inner.operations.forget(&put.id),
        }
        let mut written = answer.json(path)?;
        if !written.is_object() {
            // Accepted without a body: the resource follows.
            written = body.clone();
            set(&mut written, &["properties", "provisioningState"], json!("Creating"));
        }
        Ok(written)
    }

    /// A resource from its body alone.
    pub(crate) fn resource(
        &self,
        id: &ResourceId,
        kind: ResourceKind,
        body: &Value,
    ) -> Result<Resource, CloudError> {
        let properties = resources::decode(id, kind, body).ok_or_else(|| CloudError::UnexpectedResponse {
            what: format!("GET {id}: members of a {kind:?} are missing"),
            source: None,
        })?;
        Ok(Resource {
            id: id.clone(),
            location: text(body, "/location").to_owned(),
            tags: resources::tags(kind, body),
            properties,
            state: resources::state(body),
        })
    }

    /// A resource from its body and what further calls tell: the reason of a failure, containers, credentials, addresses.
    async fn complete(
        &self,
        id: &ResourceId,
        kind: ResourceKind,
        body: &Value,
    ) -> Result<Resource, CloudError> {
        let mut resource = match kind {
            ResourceKind::Machine => {
                let interface = match interface_id(body) {
                    Some(id) => self.read(&id, ResourceKind::NetworkInterface).await?,
                    None => None,
                };
                return self.machine(id, body, interface.as_ref()).await;
            }
            ResourceKind::StorageAccount => self.account(id, body).await?,
            ResourceKind::Identity => self.identity(id, body).await?,
            ResourceKind::PrivateEndpoint => self.endpoint(id, body).await?,
            _ => self.resource(id, kind, body)?,
        };
        self.explain_failure(id, &mut resource).await?;
        Ok(resource)
    }

    async fn machine(
        &self,
        id: &ResourceId,
        body: &Value,
        interface: Option<&Value>,
    ) -> Result<Resource, CloudError> {
        let mut resource = self.resource(id, ResourceKind::Machine, body)?;
        resource.properties = resources::decode_machine(body, interface);
        if resource.state == ResourceState::Succeeded && resources::power_change(body) {
            resource.state = ResourceState::Updating;
        }
        self.explain_failure(id, &mut resource).await?;
        Ok(resource)
    }

    /// Asks the operation why a resource failed.
    async fn explain_failure(&self, id: &ResourceId, resource: &mut Resource) -> Result<(), CloudError> {
        let ResourceState::Failed { failure } = &mut resource.state else { return Ok(()) };
        if let Some(operation) = self.inner.operations.of(id)
            && let OperationState::Failed(error) =
                self.inner.operations.state(&self.inner.arm, id, &operation).await?
        {
            *failure = error.into_failure();
        }
        Ok(())
    }

    /// What is known of a resource that is not there: an accepted put may not be visible yet, or has failed.
    async fn absent(&self, id: &ResourceId) -> Result<Option<Resource>, CloudError> {
        let Some(operation) = self.inner.operations.of(id) else { return Ok(None) };
        let OperationKind::Put(request) = &operation.kind else {
            self.inner.operations.forget(id);
            return Ok(None);
        };
        let state = match self.inner.operations.state(&self.inner.arm, id, &operation).await? {
            OperationState::InProgress => ResourceState::Creating,
            OperationState::Failed(error) => ResourceState::Failed { failure: error.into_failure() },
            OperationState::Succeeded | OperationState::Unknown => {
                self.inner.operations.forget(id);
                return Ok(None);
            }
        };
        let ResourceRequest { id, location, tags, properties, .. } = request.as_ref().clone();
        Ok(Some(Resource { id, location, tags, properties, state }))
    }

    async fn put_machine(&self, put: &ResourceRequest) -> Result<Resource, CloudError> {
        let Properties::Machine { subnet, running, .. } = &put.properties else {
            return Err(CloudError::NotFound { what: put.id.to_string() });
        };
        let present = self.read(&put.id, ResourceKind::Machine).await?;
        if present.is_none() {
            let nic =
                put.id.sibling("Microsoft.Network", "networkInterfaces", &resources::nic_name(put.id.name()));
            let kind = ResourceKind::NetworkInterface;
            let ready = match self.read(&nic, kind).await? {
                Some(body) => resources::state(&body),
                None => {
                    let body = resources::machine_body(&put.location, subnet);
                    let call =
                        Call { body: Some(&body), ..Call::new(Method::Put, nic.as_str(), version(kind)) };
                    resources::state(&self.inner.arm.send(call).await?.json(nic.as_str())?)
                }
            };
            if let ResourceState::Failed { failure } = ready {
                return Ok(with_state(put, ResourceState::Failed { failure }));
            }
        }
        let body = self.put_plain(put).await?;
        // The put of a machine tells no power state; that of the read does.
        let power = present.as_ref().unwrap_or(&body);
        let mut resource = match interface_id(&body) {
            Some(id) => {
                let interface = self.read(&id, ResourceKind::NetworkInterface).await?;
                self.machine(&put.id, &body, interface.as_ref()).await?
            }
            None => self.resource(&put.id, ResourceKind::Machine, &body)?,
        };
        if present.is_some()
            && resources::running(power) != *running
            && resource.state == ResourceState::Succeeded
        {
            self.power(&put.id, if *running { "start" } else { "deallocate" }).await?;
            resource.state = ResourceState::Updating;
        }
        Ok(resource)
    }

    /// Starts or stops a machine. The call is sent once; whether it took effect is seen in the machine's state.
    pub(crate) async fn power(&self, id: &ResourceId, action: &str) -> Result<(), CloudError> {
        let path = format!("{id}/{action}");
        let answer =
            self.inner.arm.send(Call::new(Method::Post, &path, version(ResourceKind::Machine))).await?;
        tracing::debug!(machine.id = %id, status = answer.status, "Azure accepted {action} of {id}");
        Ok(())
    }

    async fn put_account(&self, put: &ResourceRequest) -> Result<Resource, CloudError> {
        let Properties::StorageAccount { containers, .. } = &put.properties else {
            return Err(CloudError::NotFound { what: put.id.to_string() });
        };
        let body = self.put_plain(put).await?;
        if resources::state(&body) != ResourceState::Succeeded
            || !body.is_object()
            || body.get("id").is_none()
        {
            return Ok(Resource {
                state: busy(resources::state(&body)),
                ..with_state(put, ResourceState::Creating)
            });
        }
        let mut resource = self.account(&put.id, &body).await?;
        if let Properties::StorageAccount { containers: present, .. } = &mut resource.properties {
            for container in containers.iter().filter(|it| !present.contains(it)).cloned().collect::<Vec<_>>()
            {
                let path = format!("{}/blobServices/default/containers/{container}", put.id);
                let empty = json!({});
                let call = Call { body: Some(&empty), ..Call::new(Method::Put, &path, STORAGE) };
                self.inner.arm.send(call).await?;
                present.push(container);
            }
        }
        Ok(resource)
    }

    async fn account(&self, id: &ResourceId, body: &Value) -> Result<Resource, CloudError> {
        let mut resource = self.resource(id, ResourceKind::StorageAccount, body)?;
        let path = format!("{id}/blobServices/default/containers");
        let listed = match resource.state {
            ResourceState::Succeeded => self.inner.arm.list(&path, STORAGE, &[], None).await,
            _ => Ok(Vec::new()),
        };
        let listed = match listed {
            Err(CloudError::NotFound { .. }) => Vec::new(),
            listed => listed?,
        };
        if let Properties::StorageAccount { containers, .. } = &mut resource.properties {
            *containers = listed.iter().map(|it| text(it, "/name").to_owned()).collect();
        }
        Ok(resource)
    }

    async fn put_identity(&self, put: &ResourceRequest) -> Result<Resource, CloudError> {
        let Properties::Identity { federated, .. } = &put.properties else {
            return Err(CloudError::NotFound { what: put.id.to_string() });
        };
        let body = self.put_plain(put).await?;
        let present = self.federated(&put.id).await?;
        // One write at a time: Azure refuses two for one identity.
        let version = version(ResourceKind::Identity);
        for (key, (name, subject)) in &present {
            if federated.get(key) != Some(subject) {
                let path = format!("{}/federatedIdentityCredentials/{name}", put.id);
                self.inner.arm.send(Call::new(Method::Delete, &path, version)).await?;
            }
        }
        for (key, subject) in federated {
            if present.get(key).is_some_and(|(_, there)| there == subject) {
                continue;
            }
            let path = format!("{}/federatedIdentityCredentials/{}", put.id, resources::credential_name(key));
            let credential = resources::credential_body(key, subject);
            self.inner
                .arm
                .send(Call { body: Some(&credential), ..Call::new(Method::Put, &path, version) })
                .await?;
        }
        let mut resource = self.resource(&put.id, ResourceKind::Identity, &body)?;
        resource.properties = resources::decode_identity(&body, federated.clone());
        Ok(resource)
    }

    /// The federated credentials of an identity: name and subject by key.
    async fn federated(&self, id: &ResourceId) -> Result<BTreeMap<String, (String, String)>, CloudError> {
        let path = format!("{id}/federatedIdentityCredentials");
        let listed = match self.inner.arm.list(&path, version(ResourceKind::Identity), &[], None).await {
            Err(CloudError::NotFound { .. }) => Vec::new(),
            listed => listed?,
        };
        let entry = |it: &Value| {
            let (key, subject) = resources::credential_key(it);
            (key, (text(it, "/name").to_owned(), subject))
        };
        Ok(listed.iter().map(entry).collect())
    }

    async fn identity(&self, id: &ResourceId, body: &Value) -> Result<Resource, CloudError> {
        let federated =
            self.federated(id).await?.into_iter().map(|(key, (_, subject))| (key, subject)).collect();
        let mut resource = self.resource(id, ResourceKind::Identity, body)?;
        resource.properties = resources::decode_identity(body, federated);
        Ok(resource)
    }

    async fn put_endpoint(&self, put: &ResourceRequest) -> Result<Resource, CloudError> {
        let body = self.put_plain(put).await?;
        self.approve(&put.id, &put.properties).await?;
        let mut resource = self.endpoint(&put.id, &body).await?;
        self.explain_failure(&put.id, &mut resource).await?;
        Ok(resource)
    }

    /// Approves the connection of an endpoint to a link service that this service owns.
    async fn approve(&self, id: &ResourceId, properties: &Properties) -> Result<(), CloudError> {
        let Properties::PrivateEndpoint { target, .. } = properties else { return Ok(()) };
        let Some(service) = self.link_service(target).await? else { return Ok(()) };
        let Some(connection) = resources::connection_of(&service, id) else { return Ok(()) };
        let status = text(connection, "/properties/privateLinkServiceConnectionState/status");
        if !status.eq_ignore_ascii_case("Pending") {
            return Ok(());
        }
        let name = text(connection, "/name");
        let path = format!("{target}/privateEndpointConnections/{name}");
        let mut body = connection.clone();
        set(&mut body, &["etag"], Value::Null);
        let approved = json!({"status": "Approved", "description": "Approved by the service"});
        set(&mut body, &["properties", "privateLinkServiceConnectionState"], approved);
        let call = Call {
            body: Some(&body),
            ..Call::new(Method::Put, &path, version(ResourceKind::PrivateLinkService))
        };
        self.inner.arm.send(call).await.map(drop)
    }

    async fn link_service(&self, target: &ResourceId) -> Result<Option<Value>, CloudError> {
        if ResourceKind::of_id(target) != Some(ResourceKind::PrivateLinkService) {
            return Ok(None);
        }
        match self.read(target, ResourceKind::PrivateLinkService).await {
            // The service of another owner cannot be read.
            Err(CloudError::Denied { .. }) => Ok(None),
            found => found,
        }
    }

    async fn endpoint(&self, id: &ResourceId, body: &Value) -> Result<Resource, CloudError> {
        let mut resource = self.resource(id, ResourceKind::PrivateEndpoint, body)?;
        if let Properties::PrivateEndpoint { target, link_id, .. } = &mut resource.properties
            && let Some(service) = self.link_service(target).await?
        {
            let connections = resources::link_connections(&service).into_iter();
            let own = connections
                .filter(|it| it.endpoint.eq_ignore_ascii_case(id.as_str()))
                .map(|it| it.link_id)
                .next();
            *link_id = own.filter(|it| !it.is_empty());
        }
        Ok(resource)
    }

    /// The children that are listed with their parent: subnets of a network, records and links of a zone.
    async fn children(
        &self,
        id: &ResourceId,
        kind: ResourceKind,
        body: &Value,
    ) -> Result<Vec<Resource>, CloudError> {
        let lists: &[(&str, ResourceKind)] = match kind {
            ResourceKind::VirtualNetwork => {
                let subnets = items(body, "/properties/subnets").iter();
                let subnets =
                    subnets.filter_map(|it| Some((text(it, "/id").parse::<ResourceId>().ok()?, it)));
                return subnets.map(|(id, it)| self.resource(&id, ResourceKind::Subnet, it)).collect();
            }
            ResourceKind::DnsZone => &[("A", ResourceKind::DnsRecord)],
            ResourceKind::PrivateDnsZone => &[
                ("A", ResourceKind::PrivateDnsRecord),
                ("virtualNetworkLinks", ResourceKind::PrivateDnsLink),
            ],
            _ => return Ok(Vec::new()),
        };
        let mut found = Vec::new();
        for (segment, kind) in lists {
            let listed =
                match self.inner.arm.list(&format!("{id}/{segment}"), version(*kind), &[], None).await {
                    Err(CloudError::NotFound { .. }) => Vec::new(),
                    listed => listed?,
                };
            for it in &listed {
                found.push(self.resource(&id.child(segment, text(it, "/name")), *kind, it)?);
            }
        }
        Ok(found)
    }

    /// Starts a deletion; whether the resource was gone already.
    async fn start_delete(&self, id: &ResourceId, kind: ResourceKind) -> Result<bool, CloudError> {
        let answer = match self.inner.arm.send(Call::new(Method::Delete, id.as_str(), version(kind))).await {
            Err(CloudError::NotFound { .. }) => {
                self.inner.operations.forget(id);
                return Ok(true);
            }
            // A failed interface cannot be deleted before it is written back.
            Err(CloudError::Conflict { .. } | CloudError::Invalid { .. })
                if kind == ResourceKind::NetworkInterface =>
            {
                self.rewrite_failed(id, kind).await?;
                self.inner.arm.send(Call::new(Method::Delete, id.as_str(), version(kind))).await?
            }
            answer => answer?,
        };
        match answer.operation() {
            Some(url) => self.inner.operations.remember(id, url, OperationKind::Delete),
            None => self.inner.operations.forget(id),
        }
        Ok(answer.status == 204)
    }

    async fn rewrite_failed(&self, id: &ResourceId, kind: ResourceKind) -> Result<(), CloudError> {
        let Some(mut body) = self.read(id, kind).await? else { return Ok(()) };
        set(&mut body, &["etag"], Value::Null);
        self.inner
            .arm
            .send(Call { body: Some(&body), ..Call::new(Method::Put, id.as_str(), version(kind)) })
            .await
            .map(drop)
    }

    /// Deletes interface and disk of a machine that is gone, for machines whose parts do not go with them.
    async fn delete_parts(&self, id: &ResourceId) -> Result<(), CloudError> {
        let disk = id.sibling("Microsoft.Compute", "disks", &resources::os_disk_name(id.name()));
        let nic = id.sibling("Microsoft.Network", "networkInterfaces", &resources::nic_name(id.name()));
        self.start_delete(&disk, ResourceKind::Disk).await?;
        self.start_delete(&nic, ResourceKind::NetworkInterface).await.map(drop)
    }
}

fn with_state(put: &ResourceRequest, state: ResourceState) -> Resource {
    let ResourceRequest { id, location, tags, properties, .. } = put.clone();
    Resource { id, location, tags, properties, state }
}

/// The state of a resource whose parts are still missing.
fn busy(state: ResourceState) -> ResourceState {
    match state {
        ResourceState::Succeeded => ResourceState::Creating,
        other => other,
    }
}

/// A body without what the cloud alone reports, for comparison.
fn strip_reported(body: &Value) -> Value {
    let mut body = body.clone();
    set(&mut body, &["etag"], Value::Null);
    body
}
