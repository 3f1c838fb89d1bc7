//! Garbage collection: dependents of a deleted owner.

use serde_json::{Value, json};

use super::fixtures::{CONFIG_MAPS, config_map};
use crate::script::{Script, cases};

const OWNER: &str = "/api/v1/namespaces/{ns}/configmaps/owner";
const OWNED: &str = "/api/v1/namespaces/{ns}/configmaps/owned";

async fn a_pair(s: &mut Script, blocking: bool) -> Value {
    let owner = s.post(CONFIG_MAPS, config_map("owner")).only("/kind").await;
    let mut owned = config_map("owned");
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocking
    }]);
    s.post(CONFIG_MAPS, owned).await;
    owner
}

cases! { "garbage_collection";
    async fn dependents_are_deleted_after_their_owner(s) {
        a_pair(s, false).await;
        s.delete("/api/v1/namespaces/{ns}/configmaps/owner?propagationPolicy=Background").await;
        s.get(OWNER).expect(404).await;
        s.get(OWNED).expect(404).until("/reason", "NotFound".into()).await;
    }

    async fn foreground_deletion_deletes_dependents_first(s) {
        a_pair(s, true).await;
        let mut held = json!({ "metadata": { "finalizers": ["example.test/hold"] } });
        s.merge(OWNED, held.clone()).only("/kind").await;
        s.delete("/api/v1/namespaces/{ns}/configmaps/owner?propagationPolicy=Foreground").await;
        s.get(OWNED).until("/metadata/deletionGracePeriodSeconds", json!(0)).only("/metadata/finalizers").await;
        s.get(OWNER).only("/metadata/finalizers").await;
        held["metadata"]["finalizers"] = Value::Null;
        s.merge(OWNED, held).only("/kind").await;
        s.get(OWNER).expect(404).until("/reason", "NotFound".into()).await;
    }

    async fn orphaned_dependents_are_kept(s) {
        a_pair(s, false).await;
        s.delete("/api/v1/namespaces/{ns}/configmaps/owner?propagationPolicy=Orphan").only("/kind").await;
        s.get(OWNER).expect(404).until("/reason", "NotFound".into()).await;
        s.get(OWNED).until("/metadata/ownerReferences", Value::Null).without("/metadata/managedFields").await;
    }

    async fn one_of_two_owners_keeps_a_dependent(s) {
        let one = s.post(CONFIG_MAPS, config_map("owner")).only("/kind").await;
        let two = s.post(CONFIG_MAPS, config_map("other")).only("/kind").await;
        let mut owned = config_map("owned");
        let reference = |name: &str, owner: &Value| json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner["metadata"]["uid"] });
        owned["metadata"]["ownerReferences"] = json!([reference("owner", &one), reference("other", &two)]);
        s.post(CONFIG_MAPS, owned).only("/kind").await;
        s.delete("/api/v1/namespaces/{ns}/configmaps/owner?propagationPolicy=Background").only("/kind").await;
        s.get(OWNED).until("/metadata/ownerReferences/1", Value::Null).only("/metadata/ownerReferences/0/name").await;
        s.delete("/api/v1/namespaces/{ns}/configmaps/other?propagationPolicy=Background").only("/kind").await;
        s.get(OWNED).expect(404).until("/reason", "NotFound".into()).await;
    }

    async fn an_owner_with_another_uid_does_not_count(s) {
        s.post(CONFIG_MAPS, config_map("owner")).only("/kind").await;
        let mut owned = config_map("owned");
        owned["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "00000000-0000-4000-8000-000000000000"
        }]);
        s.post(CONFIG_MAPS, owned).only("/kind").await;
        s.get(OWNED).expect(404).until("/reason", "NotFound".into()).await;
    }

    async fn an_owner_reference_requires_all_fields(s) {
        let mut owned = config_map("owned");
        owned["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner" }]);
        s.post(CONFIG_MAPS, owned).expect(422).await;
    }

    async fn an_object_has_at_most_one_controller(s) {
        let mut owned = config_map("owned");
        let reference = |uid: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "controller": true });
        owned["metadata"]["ownerReferences"] =
            json!([reference("00000000-0000-4000-8000-000000000000"), reference("00000000-0000-4000-8000-000000000001")]);
        s.post(CONFIG_MAPS, owned).expect(422).await;
    }
}
