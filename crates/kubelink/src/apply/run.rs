//! The run of an apply: resolve, check, record, write, prune, record.

use std::collections::BTreeMap;
use std::time::Duration;

use api::error::Class;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PropagationPolicy};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::discovery::Scope;
use kube::{Api, ResourceExt};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::documents::{Document, Documents};
use super::inventory::{ApplySetName, Inventory, Member, PART_OF, unwanted};
use super::order::{ApplyPhase, Defined, defined, rank};
use super::{ApplyError, ApplyOptions, ApplyReport, DocumentError, Effect, Force, effect, unquoted};
use crate::delete::{DeleteOptions, delete};
use crate::error::{Failure, LinkError};
use crate::link::{FIELD_MANAGER, Link};
use crate::progress::ProgressSink;
use crate::target::Target;
use crate::wait::{ObjectSelection, WaitStatus, wait};

/// How long an API server may take to serve a kind after it is established.
const SERVED_WITHIN: Duration = Duration::from_secs(15);

/// A document that is resolved on the cluster.
struct ResolvedDocument {
    target: Target,
    rank: ApplyPhase,
    object: Value,
    /// Whether its kind is defined by these documents and not served yet.
    new_kind: bool,
    /// Uid and resourceVersion before the apply, if it existed when it was checked.
    before: Option<(Option<String>, Option<String>)>,
}

pub(super) async fn apply(
    link: &Link,
    documents: &Documents,
    options: &ApplyOptions,
    progress: &ProgressSink,
) -> Result<ApplyReport, ApplyError> {
    let stopped = |done: &ApplyReport, failure| ApplyError::Stopped { done: done.clone(), failure };
    let mut done = ApplyReport::default();
    let mut planned = plan(link, documents, options).await?;
    let mut inventory = match &options.set {
        Some(set) => Some(Inventory::read(link, set).await.map_err(|failure| stopped(&done, failure))?),
        None => None,
    };
    check(link, &mut planned, options, progress).await?;

    let targets: Vec<Target> = planned.iter().map(|it| it.target.clone()).collect();
    let wanted = targets.iter().map(Member::of).collect();
    if let Some(inventory) = &mut inventory {
        let union = inventory.members.union(&wanted).cloned().collect();
        inventory.write(link, union).await.map_err(|failure| stopped(&done, failure))?;
    }
    let mut established = false;
    for it in &planned {
        if it.rank > ApplyPhase::Definition && !established {
            let all = planned.iter().filter(|it| it.rank == ApplyPhase::Definition);
            for definition in all {
                establish(link, definition, options, progress)
                    .await
                    .map_err(|failure| stopped(&done, failure))?;
            }
            established = true;
        }
        progress.say(it.target.to_string(), "applying");
        let found = write(link, it, options).await.map_err(|failure| stopped(&done, failure))?;
        progress.say(it.target.to_string(), found.to_string());
        done.objects.push((it.target.clone(), found));
    }
    if !established {
        for definition in planned.iter().filter(|it| it.rank == ApplyPhase::Definition) {
            establish(link, definition, options, progress)
                .await
                .map_err(|failure| stopped(&done, failure))?;
        }
    }
    if let Some(inventory) = &mut inventory {
        let id = options.set.as_ref().map(ApplySetName::id).unwrap_or_default();
        // In reverse order, so that objects are deleted before their namespace or definition.
        let gone: Vec<Target> =
            unwanted(&inventory.members, &targets).into_iter().map(Member::target).collect();
        for target in last_first(gone) {
            if prune(link, &target, &id, progress).await.map_err(|failure| stopped(&done, failure))? {
                done.objects.push((target, Effect::Pruned));
            }
        }
        inventory.write(link, wanted).await.map_err(|failure| stopped(&done, failure))?;
    }
    Ok(done)
}

fn last_first(mut targets: Vec<Target>) -> Vec<Target> {
    targets.sort_by_key(|target| {
        let group = &target.resource.group;
        let api_version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
        let (kind, name) = (target.resource.kind.clone(), target.name.clone());
        std::cmp::Reverse(rank(&Document { api_version, kind, namespace: None, name, object: Value::Null }))
    });
    targets
}

/// Resolves each kind on the cluster, and sorts the documents.
async fn plan(
    link: &Link,
    documents: &Documents,
    options: &ApplyOptions,
) -> Result<Vec<ResolvedDocument>, ApplyError> {
    let brought = defined(documents.all());
    let mut served: BTreeMap<&str, Vec<(ApiResource, Scope)>> = BTreeMap::new();
    for document in documents.all() {
        if !served.contains_key(document.api_version.as_str()) {
            let found = link.served(&document.api_version).await;
            let found =
                found.map_err(|failure| ApplyError::Stopped { done: ApplyReport::default(), failure })?;
            let found =
                found.into_iter().map(|(resource, capabilities)| (resource, capabilities.scope)).collect();
            served.insert(&document.api_version, found);
        }
    }
    let set = options.set.as_ref().map(ApplySetName::id);
    let mut planned = Vec::new();
    for document in documents.all() {
        let kinds = served.get(document.api_version.as_str()).into_iter().flatten();
        let found = kinds.clone().find(|(resource, _)| resource.kind == document.kind).cloned();
        let (resource, scope, new_kind) = match found {
            Some((resource, scope)) => (resource, scope, false),
            None => {
                let (resource, scope) = brought_by(&brought, document).ok_or_else(|| {
                    DocumentError(format!(
                        "the cluster does not serve {} of {}",
                        document.kind, document.api_version
                    ))
                })?;
                (resource, scope, true)
            }
        };
        planned.push(place(document, resource, scope, new_kind, options, set.as_deref())?);
    }
    planned.sort_by_key(|it| it.rank);
    let mut names: Vec<_> = planned.iter().map(|it| it.target.key()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(DocumentError(format!("{} {} appears twice", twice[0].1, twice[0].3)).into());
    }
    Ok(planned)
}

fn brought_by(brought: &[Defined], document: &Document) -> Option<(ApiResource, Scope)> {
    let (group, version) = document.api_version.split_once('/')?;
    let fits = |it: &&Defined| {
        it.group == group && it.kind == document.kind && it.versions.iter().any(|at| at == version)
    };
    let found = brought.iter().find(fits)?;
    let gvk = GroupVersionKind::gvk(group, version, &document.kind);
    let scope = if found.namespaced { Scope::Namespaced } else { Scope::Cluster };
    Some((ApiResource::from_gvk_with_plural(&gvk, &found.plural), scope))
}

fn place(
    document: &Document,
    resource: ApiResource,
    scope: Scope,
    new_kind: bool,
    options: &ApplyOptions,
    set: Option<&str>,
) -> Result<ResolvedDocument, DocumentError> {
    let namespace = match (scope, &document.namespace) {
        (Scope::Namespaced, Some(namespace)) => Some(namespace.clone()),
        (Scope::Namespaced, None) => Some(options.namespace.clone()),
        (Scope::Cluster, None) => None,
        (Scope::Cluster, Some(_)) => {
            return Err(DocumentError(format!(
                "{} names a namespace, but {} has none",
                document.describe(),
                document.kind
            )));
        }
    };
    let mut object = document.object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        if let Some(namespace) = &namespace {
            metadata.insert("namespace".to_owned(), Value::String(namespace.clone()));
        }
        if let Some(set) = set {
            let labels = metadata.entry("labels").or_insert_with(|| Value::Object(serde_json::Map::new()));
            match labels.as_object_mut() {
                Some(labels) => drop(labels.insert(PART_OF.to_owned(), Value::String(set.to_owned()))),
                None => {
                    return Err(DocumentError(format!(
                        "{} has labels that are not a map",
                        document.describe()
                    )));
                }
            }
        }
    }
    let target = Target { resource, namespace, name: document.name.clone() };
    Ok(ResolvedDocument { target, rank: rank(document), object, new_kind, before: None })
}

fn params(options: &ApplyOptions) -> PatchParams {
    let mut params = PatchParams::apply(FIELD_MANAGER).validation_strict();
    params.force = options.force == Force::Yes;
    params
}

/// Reads the existing objects, and tries each object as a dry run if its kind and namespace exist already.
async fn check(
    link: &Link,
    planned: &mut [ResolvedDocument],
    options: &ApplyOptions,
    progress: &ProgressSink,
) -> Result<(), ApplyError> {
    let namespaces: Vec<String> = planned
        .iter()
        .filter(|it| it.rank == ApplyPhase::Namespace)
        .map(|it| it.target.name.clone())
        .collect();
    let mut failures = Vec::new();
    let set = options.set.as_ref().map(ApplySetName::id);
    for it in planned.iter_mut().filter(|it| !it.new_kind) {
        progress.say(it.target.to_string(), "checking by a dry run");
        let seen = link.get(&it.target).await.map_err(stopped)?;
        let other = seen
            .as_ref()
            .and_then(|seen| seen.labels().get(PART_OF))
            .filter(|other| set.as_ref() != Some(*other));
        if let (Some(other), Some(_)) = (other, &set) {
            let why = format!("it belongs to another apply-set, {other}");
            failures.push(link.error("apply", &it.target, Failure::Precondition { why }));
            continue;
        }
        it.before = seen.map(|seen| (seen.uid(), seen.resource_version()));
        let mut params = params(options);
        params.dry_run = true;
        let tried = it.target.api(link).patch(&it.target.name, &params, &Patch::Apply(&it.object)).await;
        let Err(error) = tried else { continue };
        let failure = failed(link, it, error);
        let comes = it.target.namespace.as_ref().is_some_and(|namespace| namespaces.contains(namespace));
        let says = |words: &str| matches!(&failure.failure, Failure::Invalid { message, .. } if message.contains(words));
        match failure.failure.class() {
            // A dry run fails before the namespace exists, or at a webhook that does not support it.
            _ if failure.is_not_found() && comes || says("does not support dry run") => {}
            Class::Terminal => failures.push(failure),
            Class::Transient => return Err(stopped(failure)),
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(ApplyError::Refused { failures }) }
}

fn stopped(failure: LinkError) -> ApplyError {
    ApplyError::Stopped { done: ApplyReport::default(), failure }
}

fn failed(link: &Link, it: &ResolvedDocument, error: kube::Error) -> LinkError {
    let ApiResource { group, kind, .. } = &it.target.resource;
    unquoted(link.failed("apply", &it.target, error), group, kind)
}

async fn write(link: &Link, it: &ResolvedDocument, options: &ApplyOptions) -> Result<Effect, LinkError> {
    let api: Api<DynamicObject> = it.target.api(link);
    let until = Instant::now() + SERVED_WITHIN;
    loop {
        match api.patch(&it.target.name, &params(options), &Patch::Apply(&it.object)).await {
            Ok(after) => return Ok(effect(it.before.clone(), (after.uid(), after.resource_version()))),
            // Established, but this API server does not serve it yet.
            Err(kube::Error::Api(status)) if status.code == 404 && it.new_kind && Instant::now() < until => {
                sleep(Duration::from_millis(100)).await;
            }
            Err(error) => return Err(failed(link, it, error)),
        }
    }
}

async fn establish(
    link: &Link,
    definition: &ResolvedDocument,
    options: &ApplyOptions,
    progress: &ProgressSink,
) -> Result<(), LinkError> {
    let api: Api<CustomResourceDefinition> = Api::all(link.client());
    let which = ObjectSelection::Named(definition.target.name.clone());
    let label = format!("{} to be established", definition.target);
    let judge = |found: &[&CustomResourceDefinition]| {
        let conditions = found.iter().filter_map(|it| it.status.as_ref()?.conditions.as_deref()).flatten();
        let of = |type_: &str| conditions.clone().find(|condition| condition.type_ == type_);
        if of("Established").is_some_and(|condition| condition.status == "True") {
            return WaitStatus::Done(());
        }
        match of("NamesAccepted").filter(|condition| condition.status == "False") {
            Some(refused) => WaitStatus::Impossible(format!(
                "its names are taken: {}",
                refused.message.clone().unwrap_or_default()
            )),
            None => WaitStatus::Waiting("it to be established".to_owned()),
        }
    };
    wait(link, api, &which, &label, options.definitions_within, progress, judge).await
}

/// Deletes an object of the inventory, if it is still the set's. Returns whether it existed.
async fn prune(link: &Link, target: &Target, id: &str, progress: &ProgressSink) -> Result<bool, LinkError> {
    let seen = match link.get(target).await {
        Ok(Some(seen)) => seen,
        // Its kind may be gone with its definition.
        Ok(None) => return Ok(false),
        Err(error) => return Err(error),
    };
    if seen.labels().get(PART_OF).map(String::as_str) != Some(id) {
        progress.say(target.to_string(), "no longer belongs to the set and is kept");
        return Ok(false);
    }
    progress.say(target.to_string(), "pruning");
    let options = DeleteOptions {
        propagation: PropagationPolicy::Background,
        uid: seen.uid(),
        wait: None,
        ..DeleteOptions::default()
    };
    delete(link, target, &options, progress).await?;
    Ok(true)
}
