use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{
    DEPTH_MAX, FieldError, Reason, ResourceDoc, Schema, Schemas, is_too_deep, open_api_v3, parse_crd,
};
use crate::schema::builtin::components;

/// Any JSON, with field names of schemas among its keys.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        "[a-z]{1,3}",
        prop::sample::select(vec![
            "metadata",
            "spec",
            "status",
            "name",
            "labels",
            "template",
            "containers",
            "ports",
            "containerPort",
            "protocol",
            "replicas",
            "items",
            "parts",
            "kind",
            "tags",
            "free",
            "data",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
            "finalizers",
            "managedFields",
            "fieldsV1",
            "f:spec",
            "k:{\"name\":\"a\"}",
            "v:1",
            "type",
            "properties",
            "items",
            "default",
            "enum",
            "pattern",
            "anyOf",
            "not",
            "required",
            "additionalProperties",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-int-or-string",
            ".",
        ])
        .prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z0-9.:/ ]{0,6}".prop_map(Value::from),
        prop::sample::select(vec![
            "delete",
            "replace",
            "merge",
            "1Gi",
            "2024-01-01T00:00:00Z",
            "object",
            "array",
            "string",
            "integer",
            "map",
            "set"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

pub(crate) fn widget() -> Schema {
    let schema = parse_crd(&json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": { "type": "string", "pattern": "^[a-z]+$" },
                    "replicas": { "type": "integer", "default": 1, "minimum": 0 },
                    "port": { "x-kubernetes-int-or-string": true },
                    "gone": { "type": "string", "nullable": true },
                    "template": { "type": "object", "default": {}, "properties": {
                        "kind": { "type": "string", "default": "plain" } } },
                    "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                        "name": { "type": "object", "properties": { "a": { "type": "string" } } } } },
                    "object": { "type": "object", "x-kubernetes-embedded-resource": true, "properties": {
                        "spec": { "type": "object", "properties": { "a": { "type": "string" } } } } },
                    "tags": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" },
                    "parts": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": { "type": "object", "required": ["name"], "properties": {
                            "name": { "type": "string" }, "kind": { "type": "string" } } },
                    },
                },
            },
        },
    }));
    schema.expect("a structural schema")
}

fn pruned(schema: &Schema, mut object: Value) -> Value {
    schema.prune(&mut object);
    object
}

fn defaulted(schema: &Schema, mut object: Value) -> Value {
    schema.default(&mut object);
    object
}

fn deployment() -> Schema {
    Schemas::builtin().find("apps", "v1", "Deployment").expect("a built-in kind")
}

#[test]
fn the_embedded_schemas_are_small_and_contain_every_kind() {
    let kinds = [
        ("", "v1", "Namespace"),
        ("", "v1", "Node"),
        ("", "v1", "Pod"),
        ("", "v1", "Event"),
        ("apps", "v1", "StatefulSet"),
        ("batch", "v1", "CronJob"),
        ("policy", "v1", "PodDisruptionBudget"),
        ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
        ("coordination.k8s.io", "v1", "Lease"),
        ("certificates.k8s.io", "v1", "CertificateSigningRequest"),
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        ("events.k8s.io", "v1", "Event"),
        ("discovery.k8s.io", "v1", "EndpointSlice"),
        ("autoscaling", "v1", "Scale"),
    ];
    for (group, version, kind) in kinds {
        assert!(Schemas::builtin().find(group, version, kind).is_some(), "{group}/{version} {kind}");
    }
    assert!(Schemas::builtin().find("apps", "v1beta1", "Deployment").is_none());
    assert!(include_str!("../../data/schemas.json").len() < 500 * 1024);
}

#[test]
fn unknown_fields_are_removed_and_reported() {
    let object = json!({ "apiVersion": "x/v1", "kind": "Widget", "extra": 1, "metadata": { "name": "a", "x": 1 },
        "spec": { "name": "a", "y": 1, "parts": [{ "name": "a", "z": 1 }] } });
    let schema = widget();
    assert_eq!(schema.unknown_fields(&object), ["extra", "metadata.x", "spec.parts[0].z", "spec.y"]);
    assert_eq!(
        pruned(&schema, object),
        json!({ "apiVersion": "x/v1", "kind": "Widget", "metadata": { "name": "a" },
            "spec": { "name": "a", "parts": [{ "name": "a" }] } })
    );
}

#[test]
fn free_and_embedded_objects_keep_unknown_fields() {
    let object = json!({ "spec": { "name": "a",
        "free": { "any": { "x": 1 }, "name": { "a": "1", "b": "2" } },
        "object": { "apiVersion": "v1", "kind": "X", "metadata": { "name": "y", "odd": 1 }, "spec": { "a": "1", "b": 1 }, "c": 1 } } });
    assert_eq!(
        pruned(&widget(), object),
        json!({ "spec": { "name": "a",
            "free": { "any": { "x": 1 }, "name": { "a": "1" } },
            "object": { "apiVersion": "v1", "kind": "X", "metadata": { "name": "y", "odd": 1 }, "spec": { "a": "1" } } } })
    );
}

#[test]
fn nulls_are_removed_unless_nullable_or_replaced_by_a_default() {
    let object = json!({ "spec": { "name": null, "gone": null, "replicas": null } });
    let object = defaulted(&widget(), pruned(&widget(), object));
    assert_eq!(object, json!({ "spec": { "gone": null, "replicas": 1, "template": { "kind": "plain" } } }));
}

#[test]
fn zero_values_are_omitted_as_in_go() {
    let object = json!({ "spec": { "paused": false, "replicas": 0, "minReadySeconds": 0 }, "metadata": { "labels": {} } });
    assert_eq!(pruned(&deployment(), object), json!({ "spec": { "replicas": 0 }, "metadata": {} }));
}

#[test]
fn built_in_objects_get_computed_defaults() {
    let object =
        json!({ "spec": { "template": { "spec": { "containers": [{ "name": "a", "image": "a:1" }] } } } });
    let object = defaulted(&deployment(), object);
    assert_eq!(object["spec"]["replicas"], 1);
    assert_eq!(
        object["spec"]["strategy"]["rollingUpdate"],
        json!({ "maxSurge": "25%", "maxUnavailable": "25%" })
    );
    let container = &object["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    assert_eq!(container["resources"], json!({}));
    assert_eq!(object["status"], json!({}));
    let recreated = defaulted(&deployment(), json!({ "spec": { "strategy": { "type": "Recreate" } } }));
    assert_eq!(recreated["spec"]["strategy"], json!({ "type": "Recreate" }));
}

#[test]
fn a_value_of_the_wrong_type_cannot_be_decoded() {
    let check = |object: Value| deployment().check_types(&object).map_err(|error| error.message);
    assert_eq!(check(json!({ "spec": { "replicas": 1 } })), Ok(()));
    assert_eq!(
        check(json!({ "spec": { "replicas": "1" } })),
        Err("json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
            .to_owned())
    );
    assert_eq!(
        check(json!({ "spec": { "template": { "spec": { "containers": [{ "image": 1 }] } } } })),
        Err("json: cannot unmarshal number into Go struct field \
             Container.spec.template.spec.containers.image of type string"
            .to_owned())
    );
    assert!(check(json!({ "spec": { "replicas": 3_000_000_000_u64 } })).is_err());
    assert!(check(json!([])).is_err());
}

#[test]
fn errors_name_their_field_and_reason_as_the_real_server_does() {
    let errors =
        widget().validate(&json!({ "spec": { "name": "A", "replicas": -1, "parts": [{ "kind": 1 }] } }));
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(
        texts.contains(
            &"spec.name: Invalid value: \"A\": spec.name in body should match '^[a-z]+$'".to_owned()
        )
    );
    assert!(
        texts.contains(
            &"spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0"
                .to_owned()
        )
    );
    assert!(texts.contains(&"spec.parts[0].name: Required value".to_owned()));
    let kind = errors.iter().find(|error| error.field == "spec.parts[0].kind").expect("an error about kind");
    assert_eq!(kind.reason, Reason::TypeInvalid);
    assert_eq!(
        kind.message,
        "Invalid value: \"integer\": spec.parts[0].kind in body must be of type string: \"integer\""
    );
}

#[test]
fn an_update_accepts_values_that_were_invalid_before() {
    let before =
        json!({ "spec": { "name": "UPPER", "replicas": -1, "parts": [{ "name": "a", "kind": 1 }] } });
    let update = |spec: Value| {
        let errors = widget().validate_update(&json!({ "spec": spec }), &before);
        errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
    };
    let changed =
        json!({ "name": "UPPER", "replicas": 3, "parts": [{ "name": "b" }, { "name": "a", "kind": 1 }] });
    assert!(update(changed).is_empty());
    assert_eq!(update(json!({ "name": "OTHER", "replicas": -1 })), ["spec.name"]);
    assert_eq!(update(json!({ "replicas": -1 })), ["spec.name"]);
}

#[test]
fn rules_in_cel_are_read_and_reported_as_not_enforced() {
    let schema =
        parse_crd(&json!({ "type": "object", "x-kubernetes-validations": [{ "rule": "self.spec > 1" }] }));
    assert!(schema.expect("a structural schema").has_rules());
    assert!(!widget().has_rules());
}

#[test]
fn a_crd_may_restrict_the_names_of_its_objects() {
    let schema =
        parse_crd(&json!({ "type": "object", "properties": { "metadata": { "type": "object", "properties": {
        "name": { "type": "string", "maxLength": 3 } } } } }));
    let errors = schema.expect("a structural schema").validate(&json!({ "metadata": { "name": "long" } }));
    assert_eq!(errors, [FieldError::too_long("metadata.name", 3)]);
}

#[test]
fn documents_refer_only_to_what_they_contain() {
    let resource = ResourceDoc {
        plural: "deployments",
        kind: "Deployment",
        is_namespaced: true,
        subresources: &["status", "scale"],
        crd_schema: None,
    };
    let document = open_api_v3("apps", "v1", &[resource]);
    let text = document.to_string();
    for part in text.split("\"$ref\":\"#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap_or_default();
        assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
    }
    assert!(!text.contains("x-go-"));
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    let parameters = patch["parameters"].as_array().expect("parameters");
    assert!(
        parameters
            .iter()
            .any(|parameter| parameter["name"] == "fieldValidation" && parameter["in"] == "query")
    );
    assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_some());
}

#[test]
fn a_document_of_a_crd_describes_its_kind() {
    let schema = json!({ "type": "object", "properties": { "spec": { "type": "object", "description": "what it is" } } });
    let resource = ResourceDoc {
        plural: "widgets",
        kind: "Widget",
        is_namespaced: false,
        subresources: &[],
        crd_schema: Some(&schema),
    };
    let document = open_api_v3("example.com", "v1", &[resource]);
    let widget = &document["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(widget["properties"]["spec"]["description"], "what it is");
    assert_eq!(
        widget["x-kubernetes-group-version-kind"],
        json!([{ "group": "example.com", "version": "v1", "kind": "Widget" }])
    );
    assert!(document["paths"].get("/apis/example.com/v1/widgets/{name}").is_some());
}

#[test]
fn nesting_is_limited() {
    let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!({ "a": inner }));
    assert!(!is_too_deep(&nested(DEPTH_MAX)));
    assert!(is_too_deep(&nested(DEPTH_MAX + 1)));
    let far = nested(400);
    let schema = parse_crd(&json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }))
        .expect("structural");
    assert_eq!(pruned(&schema, far.clone()), far);
    assert!(parse_crd(&nested(400)).is_err());
}

#[test]
fn long_lists_with_keys_are_checked_in_reasonable_time() {
    let parts: Vec<Value> = (0..10_000).map(|number| json!({ "name": format!("p{number}") })).collect();
    let mut object = json!({ "spec": { "name": "a", "parts": parts } });
    object["spec"]["parts"][9_999]["name"] = json!("p0");
    let errors = widget().validate(&object);
    assert_eq!(errors, [FieldError::duplicate("spec.parts[9999]", &json!({ "name": "p0" }))]);
}

proptest! {
    #[test]
    fn pruning_and_defaulting_twice_is_the_same_as_once(object in any_json()) {
        for schema in [widget(), deployment()] {
            let once = pruned(&schema, object.clone());
            prop_assert_eq!(&pruned(&schema, once.clone()), &once);
            prop_assert!(schema.unknown_fields(&once).is_empty());
            let once = defaulted(&schema, once);
            prop_assert_eq!(&defaulted(&schema, once.clone()), &once);
            schema.validate(&once);
        }
    }

    #[test]
    fn no_object_and_no_schema_causes_a_panic(object in any_json(), schema in any_json()) {
        for (name, component) in components() {
            if component.get("x-kubernetes-group-version-kind").is_some() {
                let kind = &component["x-kubernetes-group-version-kind"][0];
                let word = |name: &str| kind[name].as_str().unwrap_or_default();
                let schema = Schemas::builtin().find(word("group"), word("version"), word("kind"));
                let schema = schema.unwrap_or_else(|| panic!("{name} has a kind"));
                let mut object = object.clone();
                let _ = schema.check_types(&object);
                schema.prune(&mut object);
                schema.default(&mut object);
                schema.validate(&object);
            }
        }
        let mut schema = json!({ "type": "object", "properties": { "spec": schema } });
        let _ = parse_crd(&schema);
        if let Some(spec) = schema["properties"]["spec"].as_object_mut() {
            spec.insert("type".to_owned(), json!("object"));
        }
        if let Ok(schema) = parse_crd(&schema) {
            let mut object = object;
            schema.prune(&mut object);
            schema.default(&mut object);
            schema.validate(&object);
        }
    }
}
