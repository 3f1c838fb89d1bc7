//! From a type to its CustomResourceDefinition.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::Resource;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// What a definition has besides group, version, kind and schema.
pub(crate) struct DefinitionParts {
    pub(crate) short_names: &'static [&'static str],
    pub(crate) annotations: &'static [(&'static str, &'static str)],
    pub(crate) columns: Vec<Column>,
    /// Whether the resource has a scale subresource, with the fields of a ReplicaSet.
    pub(crate) scale: bool,
}

/// A column of `kubectl get`.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) path: String,
    pub(crate) description: &'static str,
    /// Only shown with `-o wide`.
    pub(crate) wide: bool,
}

impl Column {
    pub(crate) fn new(
        name: &'static str,
        kind: &'static str,
        path: impl Into<String>,
        description: &'static str,
    ) -> Column {
        Column { name, kind, path: path.into(), description, wide: false }
    }

    pub(crate) fn wide(self) -> Column {
        Column { wide: true, ..self }
    }
}

/// The path of a label or an annotation in a column.
pub(crate) fn keyed_path(map: &str, key: &str) -> String {
    format!(".metadata.{map}['{}']", key.replace('.', "\\."))
}

/// The definition of a namespaced resource with one version and a status subresource.
pub(crate) fn definition<K: Resource<DynamicType = ()> + JsonSchema>(
    parts: DefinitionParts,
) -> CustomResourceDefinition {
    let (group, version, kind, plural) = (K::group(&()), K::version(&()), K::kind(&()), K::plural(&()));
    let annotations: Map<String, Value> =
        parts.annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let columns = parts.columns.iter().map(|column| {
        json!({
            "name": column.name,
            "type": column.kind,
            "jsonPath": column.path,
            "description": column.description,
            "priority": column.wide.then_some(1),
        })
    });
    let scale = parts.scale.then(|| {
        json!({
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.labelSelector",
        })
    });
    let short_names = (!parts.short_names.is_empty()).then_some(parts.short_names);
    let definition = json!({
        "metadata": {"name": format!("{plural}.{group}"), "annotations": annotations},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": plural,
                "singular": kind.to_lowercase(),
                "shortNames": short_names,
            },
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "additionalPrinterColumns": columns.collect::<Vec<Value>>(),
                "schema": {"openAPIV3Schema": structural_schema::<K>()},
                "subresources": {"status": {}, "scale": scale},
            }],
        },
    });
    serde_json::from_value(definition).expect("the JSON above has the form of a definition")
}

/// The schema of a type in the form that an API server accepts: without references, unions with null and titles.
fn structural_schema<K: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<K>().to_value();
    simplify(&mut schema);
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    let properties = properties.expect("a resource is a struct with fields");
    let text = |description: &str| json!({"type": "string", "description": description});
    properties.insert("apiVersion".to_owned(), text("Group and version of the resource."));
    properties.insert("kind".to_owned(), text("Kind of the resource."));
    properties.insert("metadata".to_owned(), json!({"type": "object"}));
    schema
}

/// Makes each optional field one that may be absent. Null is not a value of it: the API server then removes a null that a default
/// replaces, and refuses others, as for resources made by controller-gen.
fn simplify(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    object.remove("title");
    // What serde reads for an absent field is not to be stored; defaults of the resource have a name of their own in the types.
    object.remove("default");
    if let Some(default) = object.remove("x-default") {
        object.insert("default".to_owned(), default);
    }
    if let Some(Value::Array(types)) = object.get("type") {
        let kept = types.iter().find(|kind| *kind != "null").cloned();
        object.insert("type".to_owned(), kept.unwrap_or_default());
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Array(variants)) = object.get("anyOf")
        && let [Value::Object(first), second] = variants.as_slice()
        && second.get("type") == Some(&json!("null"))
    {
        let first = first.clone();
        object.remove("anyOf");
        for (key, value) in first {
            object.entry(key).or_insert(value);
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(below) = object.get_mut(key) {
            simplify(below);
        }
    }
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        properties.values_mut().for_each(simplify);
    }
}
