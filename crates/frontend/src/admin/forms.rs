//! The external forms of stored documents, built for many at once: the number of queries does not depend on the length of a page.

use std::collections::HashMap;

use api::doc::{Cluster, Document as _, Manifest, Operation, Schedule, ScheduleOutlook, Task};
use serde_json::{Value, json};
use store::{StoreError, StoredDocument};
use uuid::Uuid;

use super::{AdminState, manifest_form, schedules};
use crate::cluster_form;

/// Parses a document as its type. A document that this release cannot parse is logged and skipped.
pub(super) fn read<T: api::doc::Document>(stored: &StoredDocument) -> Option<T> {
    if stored.kind != T::KIND {
        return None;
    }
    match T::deserialize(&stored.body) {
        Ok(document) => Some(document),
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "Cannot parse {} {}",
                stored.kind,
                stored.uuid
            );
            None
        }
    }
}

/// The forms of documents for events, by UUID. Deleted documents are absent.
pub(super) async fn for_documents(
    state: &AdminState,
    uuids: Vec<Uuid>,
) -> Result<HashMap<Uuid, Value>, StoreError> {
    if uuids.is_empty() {
        return Ok(HashMap::new());
    }
    let reader = &state.store;
    let stored = reader.get_many(uuids).await?;
    let clusters = stored.iter().filter(|it| it.kind == Cluster::KIND).map(|it| it.uuid);
    let health = cluster_form::health(reader, clusters.collect()).await?;
    let manifests: Vec<_> =
        stored.iter().filter_map(|it| Some((read::<Manifest>(it)?, it.created))).collect();
    let catalogue = state.catalogue().await?;
    let names = state.names(&catalogue, manifests.iter().map(|(manifest, _)| manifest.task_id));
    let is_of_schedule = |it: &&StoredDocument| it.kind == Schedule::KIND || it.kind == ScheduleOutlook::KIND;
    let statuses = schedules::statuses(reader, stored.iter().filter(is_of_schedule).count()).await?;
    let mut forms: HashMap<Uuid, Value> = HashMap::with_capacity(stored.len());
    for form in manifest_form::for_manifests(reader, manifests, &names).await? {
        forms.insert(form.id, as_value(&form));
    }
    for document in &stored {
        let value = if let Some(found) = read::<Cluster>(document) {
            as_value(&cluster_form::form(document.uuid, &found, health.get(&document.uuid)))
        } else if let Some(found) = read::<Operation>(document) {
            operation(&found)
        } else if let Some(found) = read::<Schedule>(document) {
            as_value(&planner::schedule::form(&found, statuses.get(&found.id).cloned()))
        } else if let Some(outlook) = read::<ScheduleOutlook>(document) {
            // The status of a schedule is part of its form.
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

/// The public id of a deleted document, from its path.
pub(super) fn id_from_path(path: &str) -> &str {
    let named = ["/maintenanceschedules/", "/maintenancetasks/", "/maintenancemanifests/", "/operations/"];
    named.iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or(path)
}

fn as_value(form: &impl serde::Serialize) -> Value {
    serde_json::to_value(form).unwrap_or_default()
}

/// The form of an operation.
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
