//! Custom resource definitions and their objects.

use serde_json::{Value, json};

use super::fixtures::{CRDS, SHIPS, crd, ship};
use crate::script::{Script, cases};

const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ships.{id}.example.test";
const A: &str = "/apis/{id}.example.test/v1/namespaces/{ns}/ships/a";

fn schema() -> Value {
    json!({ "type": "object", "properties": {
        "spec": { "type": "object", "required": ["name"], "properties": {
            "name": { "type": "string", "minLength": 2, "maxLength": 10, "pattern": "^[a-z]+$" },
            "masts": { "type": "integer", "minimum": 1, "maximum": 5, "default": 2 },
            "rig": { "type": "string", "enum": ["sloop", "ketch"], "default": "sloop" },
            "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "port": { "x-kubernetes-int-or-string": true },
            "sailors": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "maxItems": 3,
                "items": { "type": "object", "required": ["name"], "properties": {
                    "name": { "type": "string" }, "rank": { "type": "string", "default": "sailor" } } } },
            "flags": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
            "notes": { "type": "object", "additionalProperties": { "type": "string" } },
            "hidden": { "type": "string", "nullable": true }
        } },
        "status": { "type": "object", "properties": { "phase": { "type": "string" }, "replicas": { "type": "integer" } } }
    } })
}

/// Creates the definition and waits until its kind is served.
async fn served(s: &mut Script, definition: Value) {
    s.post(CRDS, definition).only("/kind").await;
    s.get(CRD).until("/status/conditions/1/status", "True".into()).only("/kind").await;
    s.get(SHIPS).until("/kind", "ShipList".into()).only("/kind").await;
}

cases! { "crds";
    async fn a_definition_is_established(s) {
        s.post(CRDS, crd("Namespaced", schema())).without("/status").await;
        s.get(CRD).until("/status/conditions/1/status", "True".into()).without("/metadata/managedFields").await;
        s.get("/apis/{id}.example.test/v1").until("/kind", "APIResourceList".into()).without("/resources/0/storageVersionHash").await;
        s.get("/apis/{id}.example.test").await;
    }

    async fn a_custom_object_is_created_changed_and_deleted(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan" }))).await;
        s.get(A).await;
        s.merge(A, json!({ "spec": { "masts": 3 } })).await;
        s.get(SHIPS).await;
        s.delete(A).await;
        s.get(A).expect(404).await;
    }

    async fn finalizers_may_have_short_names(s) {
        served(s, crd("Namespaced", schema())).await;
        let mut object = ship("a", json!({ "name": "swan" }));
        object["metadata"]["finalizers"] = json!(["ship.example.test"]);
        s.post(SHIPS, object.clone()).await;
        s.merge(A, json!({ "metadata": { "finalizers": ["ship.example.test", "example.test/hold"] } })).await;
        s.merge(A, json!({ "metadata": { "finalizers": ["not a name"] } })).expect(422).await;
        s.merge(A, json!({ "metadata": { "finalizers": null } })).await;
    }

    async fn unknown_fields_are_pruned(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "colour": "red", "free": { "any": { "thing": 1 } }, "notes": { "x": "y" } }))).await;
    }

    async fn strict_validation_rejects_unknown_fields(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post("/apis/{id}.example.test/v1/namespaces/{ns}/ships?fieldValidation=Strict", ship("a", json!({ "name": "swan", "colour": "red" })))
            .expect(400).await;
        s.post("/apis/{id}.example.test/v1/namespaces/{ns}/ships?fieldValidation=Warn", ship("a", json!({ "name": "swan", "colour": "red" }))).await;
    }

    async fn defaults_are_set(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "sailors": [{ "name": "ann" }] }))).only("/spec").await;
        s.merge(A, json!({ "spec": { "masts": null } })).only("/spec").await;
    }

    async fn violations_of_the_schema_are_rejected_with_a_reason(s) {
        served(s, crd("Namespaced", schema())).await;
        // One error at a time: the real server reports several in random order.
        s.post(SHIPS, ship("a", json!({ "name": "X" }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "X9" }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "masts": 9 }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "masts": 0 }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "rig": "brig" }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "masts": 9, "rig": "brig" }))).expect(422).only("/reason").await;
    }

    async fn a_wrong_type_is_rejected(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": 5 }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "masts": "many" }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "notes": { "x": 1 } }))).expect(422).await;
        s.post(SHIPS, ship("a", json!("no object"))).expect(422).await;
    }

    async fn required_fields_must_be_present(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({}))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "sailors": [{ "rank": "cook" }] }))).expect(422).await;
    }

    async fn an_int_or_string_accepts_both(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "port": 80 }))).only("/spec").await;
        s.post(SHIPS, ship("b", json!({ "name": "swan", "port": "http" }))).only("/spec").await;
        s.post(SHIPS, ship("c", json!({ "name": "swan", "port": true }))).expect(422).await;
    }

    async fn null_is_accepted_in_nullable_fields(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "hidden": null }))).only("/spec").await;
        s.post(SHIPS, ship("b", json!({ "name": null }))).expect(422).await;
    }

    async fn lists_with_keys_contain_each_key_once(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "sailors": [{ "name": "ann" }, { "name": "ann" }] }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "flags": ["x", "x"] }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "sailors": [{ "name": "a" }, { "name": "b" }, { "name": "c" }, { "name": "d" }] }))).expect(422).await;
    }

    async fn lists_with_keys_are_applied_per_item(s) {
        served(s, crd("Namespaced", schema())).await;
        let one = "/apis/{id}.example.test/v1/namespaces/{ns}/ships/a?fieldManager=one";
        let two = "/apis/{id}.example.test/v1/namespaces/{ns}/ships/a?fieldManager=two";
        s.apply(one, ship("a", json!({ "name": "swan", "sailors": [{ "name": "ann", "rank": "captain" }] }))).expect(201).await;
        s.apply(two, json!({ "apiVersion": "{id}.example.test/v1", "kind": "Ship", "metadata": { "name": "a" }, "spec": { "name": "swan", "sailors": [{ "name": "bob" }] } })).await;
        s.apply(two, json!({ "apiVersion": "{id}.example.test/v1", "kind": "Ship", "metadata": { "name": "a" }, "spec": { "sailors": [{ "name": "ann", "rank": "cook" }] } })).expect(409).await;
    }

    async fn a_strategic_patch_of_a_custom_object_is_rejected(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan" }))).only("/kind").await;
        s.strategic(A, json!({ "spec": { "masts": 3 } })).expect(415).await;
    }

    async fn the_status_subresource_is_separate(s) {
        let mut definition = crd("Namespaced", schema());
        definition["spec"]["versions"][0]["subresources"] = json!({ "status": {} });
        served(s, definition).await;
        let mut thing = ship("a", json!({ "name": "swan" }));
        thing["status"] = json!({ "phase": "ignored" });
        s.post(SHIPS, thing).await;
        s.merge("/apis/{id}.example.test/v1/namespaces/{ns}/ships/a/status", json!({ "spec": { "masts": 5 }, "status": { "phase": "Afloat" } })).await;
        s.merge(A, json!({ "spec": { "masts": 4 }, "status": { "phase": "Sunk" } })).await;
    }

    async fn a_kind_without_status_has_no_status_subresource(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan" }))).only("/kind").await;
        s.get("/apis/{id}.example.test/v1/namespaces/{ns}/ships/a/status").expect(404).await;
    }

    async fn a_custom_kind_may_have_a_scale_subresource(s) {
        let mut definition = crd("Namespaced", schema());
        definition["spec"]["versions"][0]["subresources"] = json!({
            "status": {}, "scale": { "specReplicasPath": ".spec.masts", "statusReplicasPath": ".status.replicas" }
        });
        served(s, definition).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan" }))).only("/kind").await;
        s.get("/apis/{id}.example.test/v1/namespaces/{ns}/ships/a/scale").await;
        s.merge("/apis/{id}.example.test/v1/namespaces/{ns}/ships/a/scale", json!({ "spec": { "replicas": 4 } })).await;
        s.get(A).only("/spec/masts").await;
    }

    async fn tables_have_the_columns_of_the_definition(s) {
        let mut definition = crd("Namespaced", schema());
        definition["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
            { "name": "Masts", "type": "integer", "jsonPath": ".spec.masts" },
            { "name": "Phase", "type": "string", "jsonPath": ".status.phase", "priority": 1, "description": "how it does" },
            { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" }
        ]);
        served(s, definition).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan" }))).only("/kind").await;
        s.get(SHIPS).table().without("/rows/*/object/metadata/managedFields").await;
    }

    async fn tables_have_name_and_age_by_default(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan" }))).only("/kind").await;
        s.get(SHIPS).table().without("/rows/*/object/metadata/managedFields").await;
    }

    async fn a_cluster_scoped_kind_has_no_namespace(s) {
        s.post(CRDS, crd("Cluster", schema())).only("/kind").await;
        s.get("/apis/{id}.example.test/v1/ships").until("/kind", "ShipList".into()).only("/kind").await;
        s.post("/apis/{id}.example.test/v1/ships", ship("a", json!({ "name": "swan" }))).await;
        s.get("/apis/{id}.example.test/v1/namespaces/{ns}/ships/a").expect(404).await;
    }

    async fn a_definition_without_a_schema_is_rejected(s) {
        let mut definition = crd("Namespaced", schema());
        definition["spec"]["versions"][0].as_object_mut().unwrap().remove("schema");
        s.post(CRDS, definition).expect(422).await;
    }

    async fn a_definition_with_a_wrong_name_is_rejected(s) {
        let mut definition = crd("Namespaced", schema());
        definition["metadata"]["name"] = "boats.{id}.example.test".into();
        s.post(CRDS, definition).expect(422).await;
    }

    async fn a_schema_must_be_structural(s) {
        s.post(CRDS, crd("Namespaced", json!({ "type": "object", "properties": { "spec": { "properties": {} } } }))).expect(422).await;
    }

    async fn a_definition_requires_one_storage_version(s) {
        let mut definition = crd("Namespaced", schema());
        definition["spec"]["versions"][0]["storage"] = false.into();
        s.post(CRDS, definition).expect(422).await;
    }

    async fn every_served_version_returns_the_same_object(s) {
        let mut definition = crd("Namespaced", schema());
        let mut second = definition["spec"]["versions"][0].clone();
        second["name"] = "v2".into();
        second["storage"] = false.into();
        definition["spec"]["versions"].as_array_mut().unwrap().push(second);
        served(s, definition).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan" }))).only("/kind").await;
        s.get("/apis/{id}.example.test/v2/namespaces/{ns}/ships/a").await;
        s.get("/apis/{id}.example.test").await;
    }

    async fn validation_rules_are_enforced(s) {
        let mut rules = schema();
        rules["x-kubernetes-validations"] = json!([{ "rule": "self.metadata.name.startsWith('a')", "message": "the name must start with a" }]);
        rules["properties"]["spec"]["x-kubernetes-validations"] = json!([
            { "rule": "!has(self.notes) || self.notes.all(key, key.matches('^[a-z]+$'))" },
            { "rule": "self.masts < 5 || self.rig == 'ketch'", "message": "five masts need a ketch", "reason": "FieldValueForbidden", "fieldPath": ".rig" },
            { "rule": "!has(self.hidden) || self.hidden != self.name", "messageExpression": "'hidden must not be ' + self.name" },
            { "rule": "self.masts >= oldSelf.masts", "message": "masts are not removed" }
        ]);
        rules["properties"]["spec"]["properties"]["name"]["x-kubernetes-validations"] = json!([{ "rule": "self == oldSelf", "message": "a ship keeps its name" }]);
        rules["properties"]["spec"]["properties"]["sailors"]["items"]["x-kubernetes-validations"] = json!([
            { "rule": "self.rank == 'captain' || oldSelf.rank != 'captain'", "message": "a captain stays one" }
        ]);
        served(s, crd("Namespaced", rules)).await;
        s.post(SHIPS, ship("b", json!({ "name": "swan" }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "notes": { "A1": "x" } }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "masts": 5 }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "hidden": "swan" }))).expect(422).await;
        s.post(SHIPS, ship("b", json!({ "masts": 2 }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "masts": 3, "sailors": [{ "name": "ann", "rank": "captain" }, { "name": "bob" }] }))).only("/spec").await;
        s.merge(A, json!({ "spec": { "masts": 2 } })).expect(422).await;
        s.merge(A, json!({ "spec": { "name": "heron" } })).expect(422).await;
        s.merge(A, json!({ "spec": { "sailors": [{ "name": "bob", "rank": "captain" }, { "name": "ann", "rank": "cook" }] } })).expect(422).await;
        s.merge(A, json!({ "spec": { "masts": 5, "rig": "ketch", "sailors": [{ "name": "bob", "rank": "captain" }] } })).only("/spec").await;
    }

    async fn a_deprecated_version_sends_a_warning(s) {
        let mut definition = crd("Namespaced", schema());
        definition["spec"]["versions"][0]["deprecated"] = true.into();
        let mut second = definition["spec"]["versions"][0].clone();
        second["name"] = "v2".into();
        second["storage"] = false.into();
        second["deprecated"] = false.into();
        let mut third = second.clone();
        third["name"] = "v3beta1".into();
        third["deprecated"] = true.into();
        third["deprecationWarning"] = "Ships of v3beta1 sink; use \"v2\"".into();
        definition["spec"]["versions"].as_array_mut().unwrap().extend([second, third]);
        served(s, definition).await;
        s.get("/apis/{id}.example.test/v3beta1/namespaces/{ns}/ships").until("/kind", "ShipList".into()).only("/kind").await;
        s.post("/apis/{id}.example.test/v1/namespaces/{ns}/ships?fieldValidation=Warn", ship("a", json!({ "name": "swan", "colour": "red" })))
            .only("/kind").await;
        s.get(SHIPS).only("/kind").await;
        s.get(A).only("/kind").await;
        s.get("/apis/{id}.example.test/v1/namespaces/{ns}/ships/none").expect(404).await;
        s.get("/apis/{id}.example.test/v1/namespaces/{ns}/ships/a/colour").expect(404).await;
        s.get("/apis/{id}.example.test/v2/namespaces/{ns}/ships/a").only("/kind").await;
        s.get("/apis/{id}.example.test/v3beta1/namespaces/{ns}/ships/a").only("/kind").await;
        s.delete(A).only("/status").await;
    }

    async fn objects_are_deleted_with_their_definition(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan" }))).only("/kind").await;
        s.delete(CRD).only("/metadata/name").await;
        s.get(CRD).expect(404).until("/reason", "NotFound".into()).await;
        s.get(A).expect(404).until("/code", Value::Null).await;
    }
}
