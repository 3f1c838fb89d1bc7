//! Lookup of objects by what users type: names, ids and prefixes of ids.

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
    one_cluster(clusters, text)
}

fn one_cluster(clusters: Vec<AdminCluster>, text: &str) -> anyhow::Result<AdminCluster> {
    let names: Vec<String> = clusters.iter().map(|it| it.name.clone()).collect();
    let meant = |it: &AdminCluster| {
        it.name.eq_ignore_ascii_case(text) || is_beginning(text, &it.properties.uuid.to_string())
    };
    let mut found: Vec<AdminCluster> = clusters.into_iter().filter(meant).collect();
    match (found.pop(), found.is_empty()) {
        (Some(cluster), true) => Ok(cluster),
        (Some(cluster), false) => {
            let ids: Vec<&str> = found.iter().chain([&cluster]).map(|it| it.id.as_str()).collect();
            bail!("{} clusters are called {text:?}; name one by its id: {}", ids.len(), ids.join(", "))
        }
        (None, _) => bail!("there is no cluster {text:?}; {}", remedy("cluster", text, &names)),
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
    let meant = |it: &TaskForm| it.id.is_some_and(|id| is_beginning(text, &id.to_string()));
    let mut found: Vec<TaskForm> = tasks.into_iter().filter(meant).collect();
    match (found.pop(), found.len()) {
        (Some(task), 0) => Ok(task),
        (Some(_), more) => bail!("{} tasks have ids that begin with {text}; write more of it", more + 1),
        (None, _) => bail!("there is no task {text:?}; {}", remedy("task", text, &names)),
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
    let found: Vec<&String> = ids.iter().filter(|id| is_beginning(text, id)).collect();
    match found.as_slice() {
        [id] => Ok(client.schedule(id).await?),
        [] => bail!("there is no schedule {text:?}; {}", remedy("schedule", text, &ids)),
        several => bail!("{} schedules have ids that begin with {text}; write more of it", several.len()),
    }
}

/// Finds a manifest by id or prefix of its id, with the id of its cluster. The server searches all clusters;
/// with `of`, only the manifests of that cluster are searched.
pub(super) async fn manifest(
    client: &Client,
    text: &str,
    of: Option<&str>,
) -> anyhow::Result<(String, ManifestForm)> {
    let text = text.strip_prefix("manifest/").unwrap_or(text).to_ascii_lowercase();
    let looks_like_one = text.len() >= PREFIX_MIN
        && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
        && text.len() <= 36;
    if !looks_like_one {
        bail!(
            "{text:?} is no manifest's id; write it whole, or at least {PREFIX_MIN} characters of it (`shipshape manifest list` shows them)"
        );
    }
    let found = match of {
        Some(name) => of_cluster(client, &text, cluster(client, name).await?.id).await?,
        None => match client.find_manifest(&text).await {
            Ok(answer) => Some(answer.value),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        },
    };
    let Some(form) = found else {
        bail!("there is no manifest {text}; `shipshape manifest list` shows those that there are")
    };
    let cluster =
        form.cluster_resource_id.clone().context("the server did not name the manifest's cluster")?;
    Ok((cluster, form))
}

/// Finds a manifest of one cluster by id or prefix of its id.
async fn of_cluster(client: &Client, text: &str, cluster: String) -> anyhow::Result<Option<ManifestForm>> {
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
        bail!("{} manifests have ids that begin with {text}; write more of it", found.len());
    }
    Ok(found.pop().map(|form| ManifestForm { cluster_resource_id: Some(cluster), ..form }))
}

/// The manifests of these clusters with the ids of their clusters, newest first.
pub(super) async fn manifests_of(
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

fn is_beginning(text: &str, id: &str) -> bool {
    text.len() >= PREFIX_MIN && id.starts_with(&text.to_ascii_lowercase())
}

fn remedy(kind: &str, wanted: &str, known: &[String]) -> String {
    let near = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(&wanted.to_lowercase(), &name.to_lowercase()), name))
        .min()
        .filter(|(distance, name)| *distance <= name.chars().count().max(3) / 2);
    match near {
        Some((_, name)) => format!("did you mean {name}?"),
        None => format!("`shipshape {kind} list` shows those that there are"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet() -> Vec<AdminCluster> {
        let one = |number: u128, id: &str| {
            serde_json::from_value(serde_json::json!({
                "id": id, "name": last_segment(id), "type": "t", "location": "l",
                "properties": {
                    "uuid": Uuid::from_u128(number << 96), "provisioningState": "Succeeded",
                    "createdAt": "2026-01-01T00:00:00Z",
                },
            }))
            .unwrap()
        };
        vec![one(1, "/s/1/web"), one(2, "/s/2/web"), one(3, "/s/1/db")]
    }

    #[test]
    fn a_cluster_is_found_by_name_or_the_beginning_of_its_uuid() {
        assert_eq!(one_cluster(fleet(), "DB").unwrap().id, "/s/1/db");
        assert_eq!(one_cluster(fleet(), "00000002").unwrap().id, "/s/2/web");
        let say = |text: &str| one_cluster(fleet(), text).unwrap_err().to_string();
        assert!(say("web").starts_with("2 clusters are called \"web\"; name one by its id: /s/1/web, "));
        assert_eq!(say("dbb"), "there is no cluster \"dbb\"; did you mean db?");
        assert!(say("elsewhere").ends_with("`shipshape cluster list` shows those that there are"));
        assert!(say("0000").starts_with("there is no cluster"), "too short to be an id");
    }
}
