//! One object at one revision: its JSON text, and a summary of the fields that are read often.

use std::sync::Arc;

use hyper::body::Bytes;
use jiff::Timestamp;
use serde_json::Value;

/// The labels of an object.
pub type Labels = Box<[(Box<str>, Box<str>)]>;

/// An object as it is stored: without `kind` and `apiVersion`, which follow from its table.
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

/// Fields that controllers read of many objects, so that they need not parse them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectSummary {
    /// The object has a deletion timestamp.
    pub is_terminating: bool,
    /// The object is a pod in phase Succeeded or Failed.
    pub is_finished: bool,
    /// The Ready condition is true.
    pub is_ready: bool,
    /// The object is a node with a NoExecute taint.
    pub evicts_pods: bool,
    /// The renew time of a lease.
    pub renew_time: Option<Timestamp>,
    /// The node of a pod.
    pub node_name: Option<Box<str>>,
    /// The uid of the controlling owner.
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
    /// An object at `revision`.
    pub fn new(mut value: Value, revision: u64) -> Object {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".into(), revision.to_string().into());
        }
        Object::from_value(value, revision)
    }

    /// An object that is not stored: the result of a dry run.
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
            // Without the spare capacity of a string that grew.
            json: value.to_string().into_bytes().into_boxed_slice().into(),
        }
    }

    /// The same object at another revision, for the event of its removal.
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

    /// The revision of its last change.
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

    /// The fields that are read often.
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

    /// The parsed object, without `kind` and `apiVersion`.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    /// An estimate of its size in memory.
    pub fn size_bytes(&self) -> usize {
        self.json.len()
            + self.key.len()
            + 200
            + self.labels.iter().map(|(key, value)| key.len() + value.len() + 32).sum::<usize>()
    }
}
