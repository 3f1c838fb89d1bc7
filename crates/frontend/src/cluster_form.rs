//! The admin form of a cluster. The forms of many clusters are built at once: a page costs a few queries, however long it is.

use std::collections::{BTreeMap, HashMap};

use api::admin::{AdminCluster, AdminClusterProperties, ClusterHealth, Reachability};
use api::doc::Cluster;
use api::rest::ApiVersion;
use http::StatusCode;
use kubelink::{AllowedRisks, Kubeconfig};
use serde_json::{Value, json};
use store::{HealthSample, KUBECONFIG, Reader, StoreError, VersionedDocument};
use uuid::Uuid;

use crate::wire::{ApiError, ApiRequest, ApiResponse, Code, ResourceId};

/// Reads clusters and shows them in the admin form.
#[derive(Debug, Clone)]
pub(crate) struct ClusterForms {
    reader: Reader,
    allow: AllowedRisks,
}

impl ClusterForms {
    /// `allow` has the risks that a kubeconfig may contain, for the address of an imported cluster.
    pub(crate) fn new(reader: Reader, allow: AllowedRisks) -> ClusterForms {
        ClusterForms { reader, allow }
    }

    /// The cluster in the path of a request.
    pub(crate) async fn respond(&self, request: &ApiRequest) -> Result<ApiResponse, ApiError> {
        let read = self.find(&request.resource_id()?).await?;
        Ok(ApiResponse::ok(&self.complete(read.uuid, &read.document).await?).with_etag(read.etag))
    }

    /// The cluster with this id.
    pub(crate) async fn find(&self, id: &ResourceId) -> Result<VersionedDocument<Cluster>, ApiError> {
        self.reader.documents::<Cluster>().find(&id.path).await?.ok_or_else(|| not_found(id))
    }

    /// The whole form. The API server's address of an imported cluster is in its sealed kubeconfig.
    pub(crate) async fn complete(&self, uuid: Uuid, cluster: &Cluster) -> Result<AdminCluster, ApiError> {
        let health = health(&self.reader, vec![uuid]).await?;
        let mut form = form(uuid, cluster, health.get(&uuid));
        if cluster.imported
            && let Some(sealed) = self.reader.secret(uuid, KUBECONFIG).await?
        {
            let text = String::from_utf8_lossy(sealed.expose());
            let parsed = Kubeconfig::parse(&text, None, &self.allow);
            form.properties.api_server = parsed.ok().map(|kubeconfig| kubeconfig.server().to_string());
        }
        Ok(form)
    }
}

/// The error for an id that no cluster has.
pub(crate) fn not_found(id: &ResourceId) -> ApiError {
    let message = format!("The cluster {} was not found.", id.spelled);
    ApiError::new(StatusCode::NOT_FOUND, Code::ResourceNotFound, message)
}

/// The resource type of clusters.
const CLUSTER_TYPE: &str = "Microsoft.RedHatOpenShift/openShiftClusters";

/// A cluster in the admin form.
pub(crate) fn form(uuid: Uuid, document: &Cluster, health: Option<&HealthSample>) -> AdminCluster {
    let details = health.map(|sample| &sample.details);
    let made = document.provisioned.as_deref();
    AdminCluster {
        id: document.id.clone(),
        name: document.name.clone(),
        kind: CLUSTER_TYPE.to_owned(),
        location: document.location.clone(),
        properties: AdminClusterProperties {
            uuid,
            provisioning_state: document.provisioning_state,
            failed_provisioning_state: document.failed_provisioning_state,
            version: document
                .installed_version()
                .map(str::to_owned)
                .or_else(|| details.and_then(|it| it.version.clone())),
            labels: document.labels.clone(),
            imported: document.imported,
            api_server: made.and_then(|it| it.record.api_url.clone()),
            reachability: health.map(|sample| Reachability {
                reachable: sample.reachable,
                since: sample.since,
                checked_at: sample.at,
                message: sample.details.message.clone(),
            }),
            health: health.map(ClusterHealth::from),
            created_at: document.created_at,
            more: properties(document),
        },
        more: top(document),
    }
}

/// Tags and identity, as the customer sees them.
fn top(document: &Cluster) -> BTreeMap<String, Value> {
    let shown = ApiVersion::V2025_07_25.show(document).value();
    let kept =
        ["tags", "identity"].into_iter().filter_map(|name| Some((name.to_owned(), shown.get(name)?.clone())));
    kept.collect()
}

/// The customer's view of a provisioned cluster, and the resources that the service created for it. Without secrets.
fn properties(document: &Cluster) -> BTreeMap<String, Value> {
    let Some(provisioned) = document.provisioned.as_deref() else { return BTreeMap::new() };
    let record = &provisioned.record;
    let mut shown = ApiVersion::V2025_07_25.show(document).value()["properties"].take();
    let mut put = |pointer: &str, name: &str, value: Value| {
        if let Some(Value::Object(members)) = shown.pointer_mut(pointer)
            && !value.is_null()
        {
            members.insert(name.to_owned(), value);
        }
    };
    put("", "architectureVersion", json!(1));
    put("", "lastProvisioningState", json!(document.last_provisioning_state));
    put("", "lastAdminUpdateError", json!(provisioned.last_admin_update_error));
    put("", "createdBy", json!(provisioned.created_by));
    put("", "provisionedBy", json!(provisioned.provisioned_by));
    put("", "infraId", json!(record.infra_id));
    put("", "storageSuffix", json!(record.storage_suffix));
    put("", "imageRegistryStorageAccountName", json!(record.image_registry_storage_account));
    put("/networkProfile", "mtuSize", json!(record.mtu));
    put("/networkProfile", "privateEndpointIp", json!(record.private_endpoint_ip));
    put("/apiserverProfile", "intIp", json!(record.api_internal_ip));
    put("/servicePrincipalProfile", "spObjectId", json!(record.service_principal_object_id));
    if let Some(token) = &record.registry_token {
        put("", "registryProfiles", json!([{"name": token.registry, "username": token.name}]));
    }
    let Value::Object(members) = shown else { return BTreeMap::new() };
    // It is a member of the admin form itself.
    members.into_iter().filter(|(name, _)| name != "provisioningState").collect()
}

/// The newest sample of each of these clusters.
pub(crate) async fn health(
    reader: &Reader,
    clusters: Vec<Uuid>,
) -> Result<HashMap<Uuid, HealthSample>, StoreError> {
    if clusters.is_empty() {
        return Ok(HashMap::new());
    }
    let samples = reader.health(clusters).await?;
    Ok(samples.into_iter().map(|sample| (sample.cluster, sample)).collect())
}
