//! Lists: the resources of a group with their parts, and its machines alone.

use std::collections::HashMap;

use cloud::{CloudError, Resource, ResourceId, ResourceKind};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::Value;

use super::machines::interface_id;
use crate::client::AzureClient;
use crate::json::{items, text};
use crate::resources::version;

/// Reads at the same time while a group is listed.
const PARALLEL_READS: usize = 8;

impl AzureClient {
    /// The resources of a group. The list of the group names them without their properties, and lags; what it names and what is gone
    /// is left out, and so is what is of no kind that is managed here.
    pub(super) async fn list_group(&self, group: &ResourceId) -> Result<Vec<Resource>, CloudError> {
        let path = format!("{group}/resources");
        let listed = self.list_or_none(&path, ResourceKind::ResourceGroup).await?;
        let ids = listed.iter().filter_map(|it| text(it, "/id").parse::<ResourceId>().ok());
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
        let machines = self.read_machines(machines.into_iter().map(|(id, _)| id).collect(), &interfaces);
        let others: Vec<_> = bodies
            .iter()
            .filter_map(|(id, kind, body)| Some(self.with_children(id, *kind, body.as_ref()?)))
            .collect();
        let others = stream::iter(others).buffer_unordered(PARALLEL_READS).try_concat();
        let (mut found, machines) = futures_util::future::try_join(others, machines).await?;
        found.extend(machines);
        found.sort_by(|one, other| one.id.cmp(&other.id));
        found.dedup_by(|one, other| one.id == other.id);
        Ok(found)
    }

    /// The machines of a group: one list of them, one of the interfaces, and a read of each for its power state.
    pub(crate) async fn list_machines(&self, group: &ResourceId) -> Result<Vec<Resource>, CloudError> {
        let list = async |kind: ResourceKind| {
            let (namespace, types) = kind.provider().unwrap_or_default();
            self.list_or_none(&format!("{group}/providers/{namespace}/{types}"), kind).await
        };
        let machines = list(ResourceKind::Machine).await?;
        if machines.is_empty() {
            return Ok(Vec::new());
        }
        let interfaces = list(ResourceKind::NetworkInterface).await?;
        let interfaces: HashMap<String, &Value> =
            interfaces.iter().map(|it| (text(it, "/id").to_lowercase(), it)).collect();
        let ids = machines.iter().filter_map(|it| text(it, "/id").parse().ok()).collect();
        let mut found = self.read_machines(ids, &interfaces).await?;
        found.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(found)
    }

    async fn read_machines(
        &self,
        ids: Vec<ResourceId>,
        interfaces: &HashMap<String, &Value>,
    ) -> Result<Vec<Resource>, CloudError> {
        let kind = ResourceKind::Machine;
        let machines: Vec<Option<Resource>> = stream::iter(ids)
            .map(|id| async move {
                let Some(body) = self.read(&id, kind).await? else { return Ok(None) };
                match interface_id(&body).and_then(|it| interfaces.get(&it.key()).copied()) {
                    Some(interface) => self.machine(&id, &body, Some(interface)).await.map(Some),
                    None => self.complete(&id, kind, &body).await.map(Some),
                }
            })
            .buffer_unordered(PARALLEL_READS)
            .try_collect()
            .await?;
        Ok(machines.into_iter().flatten().collect())
    }

    async fn with_children(
        &self,
        id: &ResourceId,
        kind: ResourceKind,
        body: &Value,
    ) -> Result<Vec<Resource>, CloudError> {
        let mut found = vec![self.complete(id, kind, body).await?];
        found.extend(self.children(id, kind, body).await?);
        Ok(found)
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
            for it in &self.list_or_none(&format!("{id}/{segment}"), *kind).await? {
                found.push(self.resource(&id.child(segment, text(it, "/name")), *kind, it)?);
            }
        }
        Ok(found)
    }

    /// The items of a list; none when its parent does not exist.
    async fn list_or_none(&self, path: &str, kind: ResourceKind) -> Result<Vec<Value>, CloudError> {
        match self.inner.arm.list(path, version(kind), &[], None).await {
            Err(CloudError::NotFound { .. }) => Ok(Vec::new()),
            listed => listed,
        }
    }
}
