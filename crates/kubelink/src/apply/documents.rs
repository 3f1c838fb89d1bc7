//! The documents of an apply, parsed and checked before any request to a cluster. Pure.

use std::collections::BTreeSet;

use api::error::{Class, Classify};
use serde_json::Value;

use crate::names::{check_api_version, check_kind, check_name, check_namespace};

/// Most objects of one apply; the inventory of this many still fits into one ConfigMap.
pub const DOCUMENTS_MAX: usize = 2000;
/// Largest size of all documents. An API server accepts at most 3 MiB for one object.
const SIZE_MAX: usize = 16 * 1024 * 1024;

/// Why documents cannot be applied: one sentence that names the document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DocumentError(pub(super) String);

impl Classify for DocumentError {
    fn class(&self) -> Class {
        Class::Terminal
    }
}

/// One object to be applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) object: Value,
}

impl Document {
    /// `apps/v1 Deployment web/frontend`, for messages.
    pub(crate) fn describe(&self) -> String {
        let Document { api_version, kind, namespace, name, .. } = self;
        match namespace {
            Some(namespace) => format!("{api_version} {kind} {namespace}/{name}"),
            None => format!("{api_version} {kind} {name}"),
        }
    }

    pub(crate) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// Objects to be applied together. Each has a kind and a name, and no two are the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Documents(Vec<Document>);

impl Documents {
    /// Parses YAML with one or many documents. Empty ones are skipped; Lists are expanded.
    pub fn parse(yaml: &str) -> Result<Documents, DocumentError> {
        if yaml.len() > SIZE_MAX {
            return reject(format!(
                "the documents have {} bytes, and at most {SIZE_MAX} are accepted",
                yaml.len()
            ));
        }
        // The message of the parser quotes the text, which may contain a Secret: only the position is reported.
        let values: Vec<Value> = serde_saphyr::from_multiple(yaml).map_err(|error| {
            let place = error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
            DocumentError(format!("the documents are not YAML{}", place.unwrap_or_default()))
        })?;
        Documents::from_values(values)
    }

    /// Checks objects that are parsed already.
    pub fn from_values(values: Vec<Value>) -> Result<Documents, DocumentError> {
        let mut found = Vec::new();
        for (index, value) in values.into_iter().enumerate() {
            take(&format!("document {}", index + 1), value, &mut found)?;
        }
        if found.len() > DOCUMENTS_MAX {
            return reject(format!(
                "there are {} objects, and at most {DOCUMENTS_MAX} are accepted",
                found.len()
            ));
        }
        let mut seen = BTreeSet::new();
        for document in &found {
            let key = (document.group().to_owned(), &document.kind, &document.namespace, &document.name);
            if !seen.insert(key) {
                return reject(format!("{} appears twice", document.describe()));
            }
        }
        Ok(Documents(found))
    }

    pub(crate) fn all(&self) -> &[Document] {
        &self.0
    }
}

fn reject<T>(why: String) -> Result<T, DocumentError> {
    Err(DocumentError(why))
}

fn take(place: &str, mut value: Value, found: &mut Vec<Document>) -> Result<(), DocumentError> {
    if value.is_null() {
        return Ok(());
    }
    if !value.is_object() {
        return reject(format!("{place} is not an object"));
    }
    let text = |value: &Value, path: &str| {
        value.pointer(path).and_then(Value::as_str).filter(|it| !it.is_empty()).map(str::to_owned)
    };
    let Some(api_version) = text(&value, "/apiVersion") else {
        return reject(format!("{place} has no apiVersion"));
    };
    let Some(kind) = text(&value, "/kind") else { return reject(format!("{place} has no kind")) };
    check_api_version(&api_version)
        .and_then(|()| check_kind(&kind))
        .map_err(|why| DocumentError(format!("{place}: {why}")))?;
    if kind == "List" || kind.ends_with("List") && value.get("items").is_some_and(Value::is_array) {
        let items = value.get_mut("items").map(Value::take);
        let Some(Value::Array(items)) = items else {
            return reject(format!("{place} is a List without items"));
        };
        for (index, item) in items.into_iter().enumerate() {
            take(&format!("{place}, item {}", index + 1), item, found)?;
        }
        return Ok(());
    }
    let Some(name) = text(&value, "/metadata/name") else {
        return reject(match text(&value, "/metadata/generateName") {
            Some(_) => {
                format!("{place} ({kind}) has generateName, but an applied object needs a name")
            }
            None => format!("{place} ({kind}) has no metadata.name"),
        });
    };
    let namespace = text(&value, "/metadata/namespace");
    check_name(&name)
        .and_then(|()| namespace.as_deref().map_or(Ok(()), check_namespace))
        .map_err(|why| DocumentError(format!("{place} ({kind}): {why}")))?;
    // Remove what the API server writes itself; documents that were read from a cluster contain it.
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in
            ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"]
        {
            metadata.remove(field);
        }
    }
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
    }
    found.push(Document { api_version, kind, namespace, name, object: value });
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn describe(yaml: &str) -> Vec<String> {
        Documents::parse(yaml).unwrap().all().iter().map(Document::describe).collect()
    }

    fn rejected(yaml: &str, because: &str) {
        assert_eq!(Documents::parse(yaml).unwrap_err().to_string(), because);
    }

    #[test]
    fn many_documents_and_lists_become_one_set() {
        let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: x}\n---\n---\n# nothing\n---\n\
            apiVersion: v1\nkind: List\nitems:\n- {apiVersion: apps/v1, kind: Deployment, metadata: {name: b}}\n";
        assert_eq!(describe(yaml), ["v1 ConfigMap x/a", "apps/v1 Deployment b"]);
        assert!(describe("").is_empty());
    }

    #[test]
    fn fields_written_by_the_server_are_not_applied() {
        let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, uid: u, resourceVersion: '1', managedFields: []}\nstatus: {}\n";
        let documents = Documents::parse(yaml).unwrap();
        assert_eq!(
            documents.all()[0].object,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
        );
    }

    #[test]
    fn each_error_is_one_sentence() {
        rejected("a: [", "the documents are not YAML at line 1, column 4");
        rejected("just text", "document 1 is not an object");
        rejected("kind: ConfigMap", "document 1 has no apiVersion");
        rejected("apiVersion: v1", "document 1 has no kind");
        rejected("{apiVersion: v1, kind: Pod}", "document 1 (Pod) has no metadata.name");
        rejected(
            "{apiVersion: v1, kind: Pod, metadata: {generateName: a-}}",
            "document 1 (Pod) has generateName, but an applied object needs a name",
        );
        rejected(
            "{apiVersion: v1, kind: Pod, metadata: {name: ../a}}",
            "document 1 (Pod): \"../a\" is not the name of an object",
        );
        rejected(
            "{apiVersion: ../x, kind: Pod, metadata: {name: a}}",
            "document 1: \"../x\" is not an apiVersion such as v1 or apps/v1",
        );
        rejected(
            "{apiVersion: v1, kind: Pod/.., metadata: {name: a}}",
            "document 1: \"Pod/..\" is not a kind such as Deployment",
        );
        rejected(
            "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: ../b}}]}",
            "document 1, item 1 (Pod): \"../b\" is not the name of a namespace: lower case letters, digits and -",
        );
        rejected("{apiVersion: v1, kind: List}", "document 1 is a List without items");
        let twice = "{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}}";
        rejected(twice, "v1 Pod a appears twice");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(yaml in "\\PC{0,200}") {
            let _ = Documents::parse(&yaml);
        }
    }
}
