//! The external forms of what is stored, built for many things at once: a page costs a few queries, however long it is.

use std::collections::{BTreeMap, HashMap};

use api::admin::{AdminCluster, AdminClusterProperties, Reachability};
use api::doc::{Cluster, Document as _, Manifest, Operation, Schedule, ScheduleOutlook, Task};
use api::rest::ApiVersion;
use serde_json::{Value, json};
use store::{HealthSample, Reader, StoreError, StoredDocument};
use uuid::Uuid;

use super::{Desk, manifest_form, schedules};

/// The resource type of clusters.
const CLUSTER_TYPE: &str = "Microsoft.RedHatOpenShift/openShiftClusters";

/// A cluster in the admin form.
pub(super) fn cluster(uuid: Uuid, document: &Cluster, health: Option<&HealthSample>) -> AdminCluster {
    let seen = health.map(|sample| &sample.details);
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
                .or_else(|| seen.and_then(|it| it.version.clone())),
            labels: document.labels.clone(),
            imported: document.imported,
            api_server: made.and_then(|it| it.record.api_url.clone()),
            reachability: health.map(|sample| Reachability {
                reachable: sample.reachable,
                since: sample.since,
                checked_at: sample.at,
                message: sample.details.message.clone(),
            }),
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

/// What a customer sees of a cluster that we made, and what we made for it. No secret is among it.
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
pub(super) async fn health(
    reader: &Reader,
    clusters: Vec<Uuid>,
) -> Result<HashMap<Uuid, HealthSample>, StoreError> {
    if clusters.is_empty() {
        return Ok(HashMap::new());
    }
    let samples = reader.health(clusters).await?;
    Ok(samples.into_iter().map(|sample| (sample.cluster, sample)).collect())
}

/// A document as its type; one that this release does not understand is passed over and told in the log.
pub(super) fn read<T: api::doc::Document>(stored: &StoredDocument) -> Option<T> {
    if stored.kind != T::KIND {
        return None;
    }
    match T::deserialize(&stored.body) {
        Ok(document) => Some(document),
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "The {} {} is not as this release understands it",
                stored.kind,
                stored.uuid
            );
            None
        }
    }
}

/// What becomes of a set of documents, as events show them; by uuid. Documents that are gone are absent.
pub(super) async fn of_many(desk: &Desk, uuids: Vec<Uuid>) -> Result<HashMap<Uuid, Value>, StoreError> {
    if uuids.is_empty() {
        return Ok(HashMap::new());
    }
    let reader = &desk.store;
    let stored = reader.get_many(uuids).await?;
    let clusters = stored.iter().filter(|it| it.kind == Cluster::KIND).map(|it| it.uuid);
    let health = health(reader, clusters.collect()).await?;
    let manifests: Vec<_> =
        stored.iter().filter_map(|it| Some((read::<Manifest>(it)?, it.created))).collect();
    let catalogue = desk.catalogue().await?;
    let names = desk.names(&catalogue, manifests.iter().map(|(manifest, _)| manifest.task_id));
    let tells_of_schedules =
        |it: &&StoredDocument| it.kind == Schedule::KIND || it.kind == ScheduleOutlook::KIND;
    let statuses = schedules::statuses(reader, stored.iter().filter(tells_of_schedules).count()).await?;
    let mut forms: HashMap<Uuid, Value> = HashMap::with_capacity(stored.len());
    for form in manifest_form::of_fleet(reader, manifests, &names).await? {
        forms.insert(form.id, as_value(&form));
    }
    for document in &stored {
        let value = if let Some(found) = read::<Cluster>(document) {
            as_value(&cluster(document.uuid, &found, health.get(&document.uuid)))
        } else if let Some(found) = read::<Operation>(document) {
            operation(&found)
        } else if let Some(found) = read::<Schedule>(document) {
            as_value(&planner::schedule::form(&found, statuses.get(&found.id).cloned()))
        } else if let Some(outlook) = read::<ScheduleOutlook>(document) {
            // How a schedule fares is shown with it.
            let path = format!("/maintenanceschedules/{}", outlook.schedule);
            let Some(found) = reader.documents::<Schedule>().find(&path).await? else { continue };
            as_value(&planner::schedule::form(&found.document, Some(outlook.status)))
        } else if let Some(found) = read::<Task>(document).and_then(|task| catalogue.get(task.id)) {
            as_value(&found.form())
        } else {
            continue;
        };
        forms.insert(document.uuid, value);
    }
    Ok(forms)
}

/// The id by which callers knew what is gone: that of its path.
pub(super) fn id_of_path(path: &str) -> &str {
    let named = ["/maintenanceschedules/", "/maintenancetasks/", "/maintenancemanifests/", "/operations/"];
    named.iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or(path)
}

fn as_value(form: &impl serde::Serialize) -> Value {
    serde_json::to_value(form).unwrap_or_default()
}

/// An operation, as the asynchronous part of the contract shows it.
fn operation(document: &Operation) -> Value {
    json!({
        "id": document.id,
        "clusterResourceID": document.cluster_path,
        "status": document.status,
        "startTime": document.start_time,
        "endTime": document.end_time,
        "error": document.error,
    })
}
