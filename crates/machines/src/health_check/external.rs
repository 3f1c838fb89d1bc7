//! Remediation requests: objects made from a template, which other controllers carry out. Pure.

use api::crd::machine::{Machine, names};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value, json};

/// Suffix of the kinds of templates.
const TEMPLATE: &str = "Template";

/// The kinds of a template and of its requests.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RequestKinds {
    pub(crate) template: GroupVersionKind,
    pub(crate) request: GroupVersionKind,
    pub(crate) template_name: String,
}

/// Reads the reference of a MachineHealthCheck; the error names the field.
pub(crate) fn kinds(reference: &ObjectReference) -> Result<RequestKinds, String> {
    let required = |field: &str, value: &Option<String>| {
        let value = value.clone().filter(|value| !value.is_empty());
        value.ok_or_else(|| format!("spec.remediationTemplate.{field}: Required value"))
    };
    let (kind, name) = (required("kind", &reference.kind)?, required("name", &reference.name)?);
    let api_version = required("apiVersion", &reference.api_version)?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let of = |kind: &str| GroupVersionKind::gvk(group, version, kind);
    Ok(RequestKinds {
        request: of(kind.strip_suffix(TEMPLATE).unwrap_or(&kind)),
        template: of(&kind),
        template_name: name,
    })
}

/// The request for a Machine, made from a template.
pub(crate) fn request(
    kinds: &RequestKinds,
    template: &DynamicObject,
    machine: &Machine,
) -> Result<DynamicObject, String> {
    let Some(Value::Object(inner)) = template.data.pointer("/spec/template") else {
        return Err(format!(
            "{} {} has no spec.template from which a request can be made",
            kinds.template.kind, kinds.template_name
        ));
    };
    let mut object = inner.clone();
    let mut metadata = match object.remove("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => Map::new(),
    };
    for key in ["resourceVersion", "finalizers", "uid", "selfLink", "generateName", "creationTimestamp"] {
        metadata.remove(key);
    }
    metadata.insert("name".to_owned(), json!(machine.name_any()));
    metadata.insert("namespace".to_owned(), json!(machine.namespace()));
    let owner = json!({
        "apiVersion": Machine::api_version(&()),
        "kind": Machine::kind(&()),
        "name": machine.name_any(),
        "uid": machine.uid(),
    });
    metadata.insert("ownerReferences".to_owned(), json!([owner]));
    let group_kind = match kinds.template.group.as_str() {
        "" => kinds.template.kind.clone(),
        group => format!("{}.{group}", kinds.template.kind),
    };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[names::CLONED_FROM_NAME] = json!(kinds.template_name);
    annotations[names::CLONED_FROM_GROUP_KIND] = json!(group_kind);
    object.remove("status");
    object.insert("apiVersion".to_owned(), json!(kinds.request.api_version()));
    object.insert("kind".to_owned(), json!(kinds.request.kind));
    object.insert("metadata".to_owned(), Value::Object(metadata));
    serde_json::from_value(Value::Object(object)).map_err(|error| {
        format!("{} {}: spec.template cannot be read: {error}", kinds.template.kind, kinds.template_name)
    })
}
