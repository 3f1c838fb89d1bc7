//! Kinds that clusters bring along.

use serde_json::{Value, json};

use super::things::{CRDS, SHIPS, crd, ship};
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
            "crew": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "maxItems": 3,
                "items": { "type": "object", "required": ["name"], "properties": {
                    "name": { "type": "string" }, "rank": { "type": "string", "default": "sailor" } } } },
            "flags": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
            "notes": { "type": "object", "additionalProperties": { "type": "string" } },
            "hidden": { "type": "string", "nullable": true }
        } },
        "status": { "type": "object", "properties": { "phase": { "type": "string" }, "replicas": { "type": "integer" } } }
    } })
}

/// Makes the kind and waits until it is served.
async fn served(s: &mut Script, definition: Value) {
    s.post(CRDS, definition).only("/kind").await;
    s.get(CRD).until("/status/conditions/1/status", "True".into()).only("/kind").await;
    s.get(SHIPS).until("/kind", "ShipList".into()).only("/kind").await;
}

cases! { "crds";
    async fn a_kind_is_established(s) {
        s.post(CRDS, crd("Namespaced", schema())).without("/status").await;
        s.get(CRD).until("/status/conditions/1/status", "True".into()).without("/metadata/managedFields").await;
        s.get("/apis/{id}.example.test/v1").until("/kind", "APIResourceList".into()).without("/resources/0/storageVersionHash").await;
        s.get("/apis/{id}.example.test").await;
    }

    async fn an_object_of_a_new_kind_is_made_changed_and_deleted(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan" }))).await;
        s.get(A).await;
        s.merge(A, json!({ "spec": { "masts": 3 } })).await;
        s.get(SHIPS).await;
        s.delete(A).await;
        s.get(A).expect(404).await;
    }

    async fn unknown_fields_are_pruned(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "colour": "red", "free": { "any": { "thing": 1 } }, "notes": { "x": "y" } }))).await;
    }

    async fn unknown_fields_are_refused_when_that_is_asked_for(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post("/apis/{id}.example.test/v1/namespaces/{ns}/ships?fieldValidation=Strict", ship("a", json!({ "name": "swan", "colour": "red" })))
            .expect(400).await;
        s.post("/apis/{id}.example.test/v1/namespaces/{ns}/ships?fieldValidation=Warn", ship("a", json!({ "name": "swan", "colour": "red" }))).await;
    }

    async fn defaults_are_filled_in(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "crew": [{ "name": "ann" }] }))).only("/spec").await;
        s.merge(A, json!({ "spec": { "masts": null } })).only("/spec").await;
    }

    async fn what_breaks_the_schema_is_refused_with_its_reason(s) {
        served(s, crd("Namespaced", schema())).await;
        // One at a time: in which order the real server names several is left to chance.
        s.post(SHIPS, ship("a", json!({ "name": "X" }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "X9" }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "masts": 9 }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "masts": 0 }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "rig": "brig" }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "masts": 9, "rig": "brig" }))).expect(422).only("/reason").await;
    }

    async fn a_wrong_type_is_refused(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": 5 }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "masts": "many" }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "notes": { "x": 1 } }))).expect(422).await;
        s.post(SHIPS, ship("a", json!("no object"))).expect(422).await;
    }

    async fn what_is_required_must_be_there(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({}))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "crew": [{ "rank": "cook" }] }))).expect(422).await;
    }

    async fn a_number_or_a_word_is_both_welcome(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "port": 80 }))).only("/spec").await;
        s.post(SHIPS, ship("b", json!({ "name": "swan", "port": "http" }))).only("/spec").await;
        s.post(SHIPS, ship("c", json!({ "name": "swan", "port": true }))).expect(422).await;
    }

    async fn null_is_welcome_where_the_schema_says_so(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "hidden": null }))).only("/spec").await;
        s.post(SHIPS, ship("b", json!({ "name": null }))).expect(422).await;
    }

    async fn lists_with_keys_hold_each_key_once(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "crew": [{ "name": "ann" }, { "name": "ann" }] }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "flags": ["x", "x"] }))).expect(422).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan", "crew": [{ "name": "a" }, { "name": "b" }, { "name": "c" }, { "name": "d" }] }))).expect(422).await;
    }

    async fn lists_with_keys_are_applied_item_by_item(s) {
        served(s, crd("Namespaced", schema())).await;
        let one = "/apis/{id}.example.test/v1/namespaces/{ns}/ships/a?fieldManager=one";
        let two = "/apis/{id}.example.test/v1/namespaces/{ns}/ships/a?fieldManager=two";
        s.apply(one, ship("a", json!({ "name": "swan", "crew": [{ "name": "ann", "rank": "captain" }] }))).expect(201).await;
        s.apply(two, json!({ "apiVersion": "{id}.example.test/v1", "kind": "Ship", "metadata": { "name": "a" }, "spec": { "name": "swan", "crew": [{ "name": "bob" }] } })).await;
        s.apply(two, json!({ "apiVersion": "{id}.example.test/v1", "kind": "Ship", "metadata": { "name": "a" }, "spec": { "crew": [{ "name": "ann", "rank": "cook" }] } })).expect(409).await;
    }

    async fn a_strategic_patch_is_not_for_new_kinds(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan" }))).only("/kind").await;
        s.strategic(A, json!({ "spec": { "masts": 3 } })).expect(415).await;
    }

    async fn the_status_stands_apart_when_the_kind_says_so(s) {
        let mut definition = crd("Namespaced", schema());
        definition["spec"]["versions"][0]["subresources"] = json!({ "status": {} });
        served(s, definition).await;
        let mut thing = ship("a", json!({ "name": "swan" }));
        thing["status"] = json!({ "phase": "ignored" });
        s.post(SHIPS, thing).await;
        s.merge("/apis/{id}.example.test/v1/namespaces/{ns}/ships/a/status", json!({ "spec": { "masts": 5 }, "status": { "phase": "Afloat" } })).await;
        s.merge(A, json!({ "spec": { "masts": 4 }, "status": { "phase": "Sunk" } })).await;
    }

    async fn a_kind_without_status_has_no_such_place(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan" }))).only("/kind").await;
        s.get("/apis/{id}.example.test/v1/namespaces/{ns}/ships/a/status").expect(404).await;
    }

    async fn a_new_kind_may_have_a_scale(s) {
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

    async fn columns_of_a_new_kind_are_shown(s) {
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

    async fn a_new_kind_without_columns_shows_name_and_age(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan" }))).only("/kind").await;
        s.get(SHIPS).table().without("/rows/*/object/metadata/managedFields").await;
    }

    async fn a_cluster_wide_kind_has_no_namespace(s) {
        s.post(CRDS, crd("Cluster", schema())).only("/kind").await;
        s.get("/apis/{id}.example.test/v1/ships").until("/kind", "ShipList".into()).only("/kind").await;
        s.post("/apis/{id}.example.test/v1/ships", ship("a", json!({ "name": "swan" }))).await;
        s.get("/apis/{id}.example.test/v1/namespaces/{ns}/ships/a").expect(404).await;
    }

    async fn a_definition_without_a_schema_is_refused(s) {
        let mut definition = crd("Namespaced", schema());
        definition["spec"]["versions"][0].as_object_mut().unwrap().remove("schema");
        s.post(CRDS, definition).expect(422).await;
    }

    async fn a_definition_of_wrong_name_is_refused(s) {
        let mut definition = crd("Namespaced", schema());
        definition["metadata"]["name"] = "boats.{id}.example.test".into();
        s.post(CRDS, definition).expect(422).await;
    }

    async fn a_schema_must_be_structural(s) {
        s.post(CRDS, crd("Namespaced", json!({ "type": "object", "properties": { "spec": { "properties": {} } } }))).expect(422).await;
    }

    async fn a_definition_stores_one_version(s) {
        let mut definition = crd("Namespaced", schema());
        definition["spec"]["versions"][0]["storage"] = false.into();
        s.post(CRDS, definition).expect(422).await;
    }

    async fn every_served_version_shows_the_same_object(s) {
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

    async fn objects_go_with_their_kind(s) {
        served(s, crd("Namespaced", schema())).await;
        s.post(SHIPS, ship("a", json!({ "name": "swan" }))).only("/kind").await;
        s.delete(CRD).only("/metadata/name").await;
        s.get(CRD).expect(404).until("/reason", "NotFound".into()).await;
        s.get(A).expect(404).until("/code", Value::Null).await;
    }
}
