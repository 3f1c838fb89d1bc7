//! Controller revisions: the templates that a stateful set or daemon set had, for `kubectl rollout history` and `undo`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::context::{ControllerContext, key};
use super::pods;
use crate::fields;
use crate::status::ApiResult;
use crate::verbs::Propagation;

/// Ensures that the revision with this hash of the set's template is the newest one, and deletes the oldest beyond the
/// set's history limit. `live` names revisions that pods still have.
pub(super) fn ensure(
    context: &mut ControllerContext<'_>,
    set: &Value,
    hash: &str,
    label: &str,
    live: &BTreeSet<String>,
) -> ApiResult<()> {
    let kind = ControllerContext::built_in_kind("apps", "ControllerRevision")?;
    let text = |field: &str| set["metadata"][field].as_str().unwrap_or_default();
    let name = format!("{}-{hash}", text("name"));
    let mut owned = context.controlled(kind, text("uid"));
    owned.sort_by_key(number);
    let newest = owned.last().map_or(0, number);
    let present = owned.iter().position(|revision| revision["metadata"]["name"] == name.as_str());
    match present.map(|index| owned.remove(index)) {
        None => {
            let revision = revision_object(set, &name, (label, hash), newest + 1);
            context.create(kind, text("namespace"), revision)?;
        }
        // The template of an older revision is desired again.
        Some(mut revision) if number(&revision) < newest => {
            fields::set(&mut revision, &["revision"], json!(newest + 1));
            context.update(kind, revision)?;
        }
        Some(_) => {}
    }
    for surplus in surplus(&owned, set, live) {
        context.delete(kind, &surplus, Propagation::Background)?;
    }
    Ok(())
}

fn number(revision: &Value) -> i64 {
    revision["revision"].as_i64().unwrap_or(0)
}

fn revision_object(set: &Value, name: &str, (label, hash): (&str, &str), number: i64) -> Value {
    let template = &set["spec"]["template"];
    // What replaces the template when the revision is applied as a strategic merge patch.
    let mut patch = template.clone();
    fields::set(&mut patch, &["$patch"], json!("replace"));
    let mut labels = template["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.insert(label.to_owned(), json!(hash));
    let mut revision = json!({
        "metadata": {"name": name, "labels": labels, "ownerReferences": [pods::controller(set)]},
        "data": {"spec": {"template": patch}}, "revision": number,
    });
    if set["metadata"]["annotations"].is_object() {
        revision["metadata"]["annotations"] = set["metadata"]["annotations"].clone();
    }
    revision
}

/// The keys of the oldest revisions beyond the history limit; `old` is sorted by age.
fn surplus(old: &[Value], set: &Value, live: &BTreeSet<String>) -> Vec<String> {
    let limit = usize::try_from(set["spec"]["revisionHistoryLimit"].as_i64().unwrap_or(10)).unwrap_or(0);
    let is_live =
        |revision: &&Value| revision["metadata"]["name"].as_str().is_some_and(|name| live.contains(name));
    let history: Vec<&Value> = old.iter().filter(|revision| !is_live(revision)).collect();
    let count = history.len().saturating_sub(limit);
    history.into_iter().take(count).map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_revisions_that_no_pod_has_are_surplus() {
        let revision = |name: &str| json!({"metadata": {"namespace": "ns", "name": name}});
        let old = [revision("a"), revision("b"), revision("c"), revision("d")];
        let set = json!({"spec": {"revisionHistoryLimit": 1}});
        let live = BTreeSet::from(["b".to_owned()]);
        assert_eq!(surplus(&old, &set, &live), ["ns/a", "ns/c"]);
        assert_eq!(surplus(&old[..1], &set, &live), Vec::<String>::new());
    }
}
