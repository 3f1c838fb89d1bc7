//! Lookup of objects by names, ids and prefixes of ids.

use anyhow::{Context as _, bail};
use api::admin::{AdminCluster, ManifestForm, ScheduleForm, TaskForm};
use client::{Client, TypedResponse};
use futures_util::StreamExt as _;
use futures_util::stream;
use uuid::Uuid;

/// Shortest accepted prefix of an id.
const PREFIX_MIN: usize = 8;

/// Concurrent requests for the manifests of clusters.
const AT_ONCE: usize = 8;

/// Finds a cluster by name, resource id, uuid or prefix of its uuid.
pub(super) async fn cluster(client: &Client, text: &str) -> anyhow::Result<AdminCluster> {
    let text = text.strip_prefix("cluster/").unwrap_or(text);
    if text.starts_with('/') {
        return Ok(client.cluster(text).await?.value);
    }
    let clusters = client.clusters().all().await?;
    select_cluster(clusters, text)
}

fn select_cluster(clusters: Vec<AdminCluster>, text: &str) -> anyhow::Result<AdminCluster> {
    let names: Vec<String> = clusters.iter().map(|it| it.name.clone()).collect();
    let matches = |it: &AdminCluster| {
        it.name.eq_ignore_ascii_case(text) || is_id_prefix(text, &it.properties.uuid.to_string())
    };
    let mut found: Vec<AdminCluster> = clusters.into_iter().filter(matches).collect();
    match (found.pop(), found.is_empty()) {
        (Some(cluster), true) => Ok(cluster),
        (Some(cluster), false) => {
            let ids: Vec<&str> = found.iter().chain([&cluster]).map(|it| it.id.as_str()).collect();
            bail!("{} clusters are named {text:?}; pass the id of one: {}", ids.len(), ids.join(", "))
        }
        (None, _) => bail!("cluster {text:?} not found; {}", remedy("cluster", text, &names)),
    }
}

/// Finds a task by name, id or prefix of its id.
pub(super) async fn task(client: &Client, text: &str) -> anyhow::Result<TaskForm> {
    let text = text.strip_prefix("task/").unwrap_or(text);
    match client.task(text).await {
        Ok(TypedResponse { value, .. }) => return Ok(value),
        Err(error) if !error.is_not_found() => return Err(error.into()),
        Err(_) => {}
    }
    let tasks = client.tasks().all().await?;
    let names: Vec<String> = tasks.iter().map(|it| it.name.clone()).collect();
    let matches = |it: &TaskForm| it.id.is_some_and(|id| is_id_prefix(text, &id.to_string()));
    let mut found: Vec<TaskForm> = tasks.into_iter().filter(matches).collect();
    match (found.pop(), found.len()) {
        (Some(task), 0) => Ok(task),
        (Some(_), more) => bail!("{} tasks have ids that start with {text}; pass a longer prefix", more + 1),
        (None, _) => bail!("task {text:?} not found; {}", remedy("task", text, &names)),
    }
}

/// Finds a schedule by id or prefix of its id.
pub(super) async fn schedule(client: &Client, text: &str) -> anyhow::Result<TypedResponse<ScheduleForm>> {
    let text = text.strip_prefix("schedule/").unwrap_or(text);
    match client.schedule(text).await {
        Ok(answer) => return Ok(answer),
        Err(error) if !error.is_not_found() => return Err(error.into()),
        Err(_) => {}
    }
    let ids: Vec<String> = client.schedules().all().await?.into_iter().map(|it| it.id).collect();
    let found: Vec<&String> = ids.iter().filter(|id| is_id_prefix(text, id)).collect();
    match found.as_slice() {
        [id] => Ok(client.schedule(id).await?),
        [] => bail!("schedule {text:?} not found; {}", remedy("schedule", text, &ids)),
        several => bail!("{} schedules have ids that start with {text}; pass a longer prefix", several.len()),
    }
}

/// Finds a manifest by id or prefix of its id, with the id of its cluster. The server searches all clusters;
/// with `in_cluster`, only the manifests of that cluster are searched.
pub(super) async fn manifest(
    client: &Client,
    text: &str,
    in_cluster: Option<&str>,
) -> anyhow::Result<(String, ManifestForm)> {
    let text = text.strip_prefix("manifest/").unwrap_or(text).to_ascii_lowercase();
    let is_id_or_prefix = text.len() >= PREFIX_MIN
        && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
        && text.len() <= 36;
    if !is_id_or_prefix {
        bail!(
            "{text:?} is not the id of a manifest; pass the id or its first {PREFIX_MIN} or more characters (run `shipshape manifest list`)"
        );
    }
    let found = match in_cluster {
        Some(name) => find_in_cluster(client, &text, cluster(client, name).await?.id).await?,
        None => match client.find_manifest(&text).await {
            Ok(answer) => Some(answer.value),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        },
    };
    let Some(form) = found else {
        bail!("manifest {text} not found; run `shipshape manifest list` to list the manifests")
    };
    let cluster =
        form.cluster_resource_id.clone().context("the server did not name the manifest's cluster")?;
    Ok((cluster, form))
}

/// Finds a manifest of one cluster by id or prefix of its id.
async fn find_in_cluster(
    client: &Client,
    text: &str,
    cluster: String,
) -> anyhow::Result<Option<ManifestForm>> {
    let mut found = match Uuid::parse_str(text).ok().filter(|_| text.len() == 36) {
        Some(id) => match client.manifest(&cluster, id).await {
            Ok(answer) => vec![answer.value],
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) => return Err(error.into()),
        },
        None => client.manifests(&cluster).all().await?,
    };
    found.retain(|it| it.id.to_string().starts_with(text));
    if found.len() > 1 {
        bail!("{} manifests have ids that start with {text}; pass a longer prefix", found.len());
    }
    Ok(found.pop().map(|form| ManifestForm { cluster_resource_id: Some(cluster), ..form }))
}

/// The manifests of these clusters with the ids of their clusters, newest first.
pub(super) async fn manifests_of_clusters(
    client: &Client,
    clusters: Vec<String>,
) -> anyhow::Result<Vec<ManifestForm>> {
    let lists = clusters.into_iter().map(|cluster| async move {
        let mut forms = client.manifests(&cluster).all().await?;
        forms.iter_mut().for_each(|form| form.cluster_resource_id = Some(cluster.clone()));
        Ok::<_, client::ClientError>(forms)
    });
    let mut lists = stream::iter(lists).buffer_unordered(AT_ONCE);
    let mut all = Vec::new();
    while let Some(forms) = lists.next().await {
        match forms {
            Ok(forms) => all.extend(forms),
            // The cluster was removed after it was listed.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(newest_first(all))
}

/// Sorts manifests by creation, newest first.
pub(super) fn newest_first(mut forms: Vec<ManifestForm>) -> Vec<ManifestForm> {
    forms.sort_by(|a, b| b.created_at.cmp(&a.created_at).then(b.id.cmp(&a.id)));
    forms
}

/// The last segment of a resource id: the name of the resource.
pub(super) fn last_segment(resource_id: &str) -> &str {
    resource_id.rsplit('/').next().unwrap_or(resource_id)
}

fn is_id_prefix(text: &str, id: &str) -> bool {
    text.len() >= PREFIX_MIN && id.starts_with(&text.to_ascii_lowercase())
}

fn remedy(kind: &str, text: &str, names: &[String]) -> String {
    let nearest = names
        .iter()
        .map(|name| (strsim::damerau_levenshtein(&text.to_lowercase(), &name.to_lowercase()), name))
        .min()
        .filter(|(distance, name)| *distance <= name.chars().count().max(3) / 2);
    match nearest {
        Some((_, name)) => format!("did you mean {name}?"),
        None => format!("run `shipshape {kind} list` to list the {kind}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet() -> Vec<AdminCluster> {
        let cluster = |number: u128, id: &str| {
            serde_json::from_value(serde_json::json!({
                "id": id, "name": last_segment(id), "type": "t", "location": "l",
                "properties": {
                    "uuid": Uuid::from_u128(number << 96), "provisioningState": "Succeeded",
                    "createdAt": "2026-01-01T00:00:00Z",
                },
            }))
            .unwrap()
        };
        vec![cluster(1, "/s/1/web"), cluster(2, "/s/2/web"), cluster(3, "/s/1/db")]
    }

    #[test]
    fn a_cluster_is_found_by_name_or_prefix_of_its_uuid() {
        assert_eq!(select_cluster(fleet(), "DB").unwrap().id, "/s/1/db");
        assert_eq!(select_cluster(fleet(), "00000002").unwrap().id, "/s/2/web");
        let error = |text: &str| select_cluster(fleet(), text).unwrap_err().to_string();
        assert!(error("web").starts_with("2 clusters are named \"web\"; pass the id of one: /s/1/web, "));
        assert_eq!(error("dbb"), "cluster \"dbb\" not found; did you mean db?");
        assert!(error("elsewhere").ends_with("run `shipshape cluster list` to list the clusters"));
        assert!(error("0000").starts_with("cluster \"0000\" not found"), "too short to be an id");
    }
}
