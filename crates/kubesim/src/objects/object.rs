//! One object at one revision: its JSON text, and the few summary that are asked of it again and again.

use std::sync::Arc;

use hyper::body::Bytes;
use jiff::Timestamp;
use serde_json::Value;

/// The labels of an object.
pub type Labels = Box<[(Box<str>, Box<str>)]>;

/// An object as it is stored: without `kind` and `apiVersion`, which its table tells.
#[derive(Debug)]
pub struct Object {
    key: Arc<str>,
    revision: u64,
    json: Bytes,
    uid: Arc<str>,
    labels: Labels,
    owners: Box<[Arc<str>]>,
    summary: ObjectSummary,
}

/// What controllers ask of many objects at once, so that they need not parse them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectSummary {
    /// It is being deleted.
    pub is_terminating: bool,
    /// A pod that succeeded or failed.
    pub is_finished: bool,
    /// Its condition `Ready` is true.
    pub is_ready: bool,
    /// A node with a taint that drives pods away.
    pub evicts_pods: bool,
    /// When a lease was renewed.
    pub renew_time: Option<Timestamp>,
    /// The node of a pod.
    pub node_name: Option<Box<str>>,
    /// The uid of the owner that controls it.
    pub controller_uid: Option<Arc<str>>,
}

impl ObjectSummary {
    fn from_value(value: &Value) -> ObjectSummary {
        let owners = value["metadata"]["ownerReferences"].as_array();
        let controller = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
        let conditions = value["status"]["conditions"].as_array();
        let taints = value["spec"]["taints"].as_array();
        let node = value["spec"]["nodeName"].as_str().filter(|node| !node.is_empty());
        ObjectSummary {
            is_terminating: !value["metadata"]["deletionTimestamp"].is_null(),
            is_finished: matches!(value["status"]["phase"].as_str(), Some("Succeeded" | "Failed")),
            is_ready: conditions
                .into_iter()
                .flatten()
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True"),
            evicts_pods: taints.into_iter().flatten().any(|taint| taint["effect"] == "NoExecute"),
            renew_time: value["spec"]["renewTime"].as_str().and_then(|time| time.parse().ok()),
            node_name: node.map(Into::into),
            controller_uid: controller.and_then(|owner| owner["uid"].as_str()).map(Into::into),
        }
    }
}

/// The key of an object: `namespace/name`, or the name alone.
pub fn object_key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

impl Object {
    /// Takes an object over, as of `revision`.
    pub fn new(mut value: Value, revision: u64) -> Object {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".into(), revision.to_string().into());
        }
        Object::from_value(value, revision)
    }

    /// An object that has no place in the cluster: what a dry run answers.
    pub fn unsaved(value: Value) -> Object {
        Object::from_value(value, 0)
    }

    fn from_value(mut value: Value, revision: u64) -> Object {
        if let Some(fields) = value.as_object_mut() {
            fields.remove("kind");
            fields.remove("apiVersion");
        }
        let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default();
        let labels = value["metadata"]["labels"].as_object();
        let owners = value["metadata"]["ownerReferences"].as_array();
        Object {
            key: object_key(text("namespace"), text("name")).into(),
            revision,
            uid: text("uid").into(),
            labels: labels
                .into_iter()
                .flatten()
                .filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into())))
                .collect(),
            owners: owners
                .into_iter()
                .flatten()
                .filter_map(|owner| Some(owner["uid"].as_str()?.into()))
                .collect(),
            summary: ObjectSummary::from_value(&value),
            // Without the room that a growing text leaves at its end.
            json: value.to_string().into_bytes().into_boxed_slice().into(),
        }
    }

    /// The same object under another revision: what a watcher is shown of one that was removed.
    pub fn at_revision(&self, revision: u64) -> Object {
        Object::new(self.value(), revision)
    }

    /// `namespace/name`, or the name alone.
    pub fn key(&self) -> Arc<str> {
        self.key.clone()
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.key.split_once('/').map_or(&*self.key, |(_, name)| name)
    }

    /// The namespace, empty if it has none.
    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The revision at which it was written.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Its uid.
    pub fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    /// The uids of its owners.
    pub fn owners(&self) -> &[Arc<str>] {
        &self.owners
    }

    /// What is asked of it often.
    pub fn summary(&self) -> &ObjectSummary {
        &self.summary
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| **name == *key).map(|(_, value)| &**value)
    }

    /// The JSON text, without `kind` and `apiVersion`.
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// The object, parsed, still without `kind` and `apiVersion`.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    /// The memory that it takes, roughly.
    pub fn size_bytes(&self) -> usize {
        self.json.len()
            + self.key.len()
            + 200
            + self.labels.iter().map(|(key, value)| key.len() + value.len() + 32).sum::<usize>()
    }
}
