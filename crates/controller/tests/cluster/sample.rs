//! A small controller: a ConfigMap with `data.children` gets that many ConfigMaps of its own, and `data.ready` says how many it has.

use std::sync::Arc;

use controller::{
    Action, Controller, FieldManager, Informer, Informers, ObjectKey, Observability, Precondition,
    RequestError, Selection,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

const MANAGER: FieldManager = FieldManager::new("sample");

/// What the reconcile uses.
#[derive(Clone)]
struct Context {
    parents: Arc<Informer<ConfigMap>>,
    children: Arc<Informer<ConfigMap>>,
}

/// Runs the controller until it is dropped.
pub(crate) async fn run(client: Client, namespace: String) {
    let informers = Informers::new(client, Observability::default());
    let (context, shutdown) = (context(&informers, &namespace), CancellationToken::new());
    let controller =
        Controller::new("sample", context.parents.clone()).owns(context.children.clone()).workers(2);
    let reconcile = move |key| reconcile(context.clone(), key);
    tokio::select! {
        ended = informers.run(shutdown.clone()) => ended.unwrap(),
        () = controller.run(reconcile, shutdown.clone()) => {}
    }
}

fn context(informers: &Informers, namespace: &str) -> Context {
    let select = |labels: &str| {
        let api = Api::namespaced(informers.client().clone(), namespace);
        informers.select(api, Selection::all().labels(labels))
    };
    Context { parents: select("role=parent"), children: select("role=child") }
}

/// What is missing.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Create,
    Delete(usize),
    Report(usize),
}

fn decide(wanted: usize, found: usize) -> Decision {
    match found {
        _ if found < wanted => Decision::Create,
        _ if found > wanted => Decision::Delete(found - 1),
        _ => Decision::Report(found),
    }
}

async fn reconcile(context: Context, key: ObjectKey) -> Result<Action, RequestError> {
    let Some(parent) = context.parents.get(&key) else { return Ok(Action::Done) };
    let wanted = number(&parent, "children");
    loop {
        let children = children_of(&context.children.list(), &parent);
        match decide(wanted, children.len()) {
            Decision::Create => {
                // A name that is not known before: nothing but the cache tells that a child exists.
                let child: ConfigMap = serde_json::from_value(json!({"metadata": {
                    "generateName": "child-", "namespace": parent.namespace(), "labels": {"role": "child"},
                    "ownerReferences": [parent.controller_owner_ref(&())],
                }}))
                .expect("a ConfigMap");
                if let Err(error) = MANAGER.create(&context.children, &child).await {
                    // The child may exist, under a name that nobody knows.
                    if error.is_ambiguous() {
                        context.children.catch_up().await;
                    }
                    return Err(error);
                }
            }
            Decision::Delete(at) => MANAGER.delete(&context.children, &children[at]).await?,
            Decision::Report(found) => {
                let mut reported = parent.as_ref().clone();
                reported.data.get_or_insert_default().insert("ready".to_owned(), found.to_string());
                MANAGER.patch(&context.parents, &parent, &reported, Precondition::None).await?;
                return Ok(Action::Done);
            }
        }
    }
}

pub(crate) fn number(parent: &ConfigMap, name: &str) -> usize {
    let text = parent.data.as_ref().and_then(|data| data.get(name));
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

pub(crate) fn children_of(children: &[Arc<ConfigMap>], parent: &ConfigMap) -> Vec<Arc<ConfigMap>> {
    let is_child = |child: &&Arc<ConfigMap>| {
        child.owner_references().iter().any(|owner| Some(&owner.uid) == parent.uid().as_ref())
    };
    children.iter().filter(is_child).cloned().collect()
}
