//! Evictions and disruption budgets.

use serde_json::{Value, json};

use super::fixtures::{BUDGETS, PODS, create_node, pod};
use crate::script::{Script, cases};

const EVICT: &str = "/api/v1/namespaces/{ns}/pods/a/eviction";

fn eviction(name: &str) -> Value {
    json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } })
}

fn budget(spec: Value) -> Value {
    json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "budget" }, "spec": spec })
}

/// Creates a pod that is running and ready, as its kubelet would report.
async fn ready(s: &mut Script, name: &str) {
    let mut object = pod(name);
    object["spec"]["nodeName"] = "somewhere-{id}".into();
    s.post(PODS, object).only("/kind").await;
    let status =
        json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    s.strategic(&format!("/api/v1/namespaces/{{ns}}/pods/{name}/status"), status).only("/status/phase").await;
}

const BUDGET: &str = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets/budget";

cases! { "eviction";
    async fn a_pod_without_a_budget_is_evicted(s) {
        create_node(s).await;
        ready(s, "a").await;
        s.post(EVICT, eviction("a")).await;
        s.get("/api/v1/namespaces/{ns}/pods/a").only("/metadata/deletionGracePeriodSeconds").only("/status/conditions/1/type").await;
    }

    async fn a_budget_without_disruptions_left_rejects_evictions(s) {
        create_node(s).await;
        ready(s, "a").await;
        s.post(BUDGETS, budget(json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } }))).await;
        s.get(BUDGET).until("/status/currentHealthy", json!(1)).without("/status/conditions").without("/metadata/managedFields").await;
        s.post(EVICT, eviction("a")).expect(429).await;
        s.get("/api/v1/namespaces/{ns}/pods/a").only("/metadata/deletionTimestamp").await;
    }

    async fn a_budget_with_one_disruption_left_allows_one_eviction(s) {
        create_node(s).await;
        ready(s, "a").await;
        ready(s, "b").await;
        s.post(BUDGETS, budget(json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } }))).only("/kind").await;
        s.get(BUDGET).until("/status/disruptionsAllowed", json!(1)).only("/status/expectedPods").only("/status/desiredHealthy").await;
        s.post(EVICT, eviction("a")).await;
        s.post("/api/v1/namespaces/{ns}/pods/b/eviction", eviction("b")).expect(429).without("/details/causes").await;
    }

    async fn a_dry_run_of_an_eviction_changes_nothing(s) {
        create_node(s).await;
        ready(s, "a").await;
        s.post("/api/v1/namespaces/{ns}/pods/a/eviction?dryRun=All", eviction("a")).await;
        s.get("/api/v1/namespaces/{ns}/pods/a").only("/metadata/deletionTimestamp").await;
    }

    async fn an_eviction_may_shorten_the_grace_period(s) {
        create_node(s).await;
        ready(s, "a").await;
        let mut short = eviction("a");
        short["deleteOptions"] = json!({ "gracePeriodSeconds": 0 });
        s.post(EVICT, short).await;
        s.get("/api/v1/namespaces/{ns}/pods/a").expect(404).await;
    }

    async fn a_missing_pod_is_not_evicted(s) {
        s.post(EVICT, eviction("a")).expect(404).await;
    }

    async fn two_budgets_of_one_pod_are_an_error(s) {
        create_node(s).await;
        ready(s, "a").await;
        for name in ["budget", "second"] {
            let mut object = budget(json!({ "minAvailable": 0, "selector": { "matchLabels": { "app": "web" } } }));
            object["metadata"]["name"] = name.into();
            s.post(BUDGETS, object).only("/kind").await;
        }
        s.post(EVICT, eviction("a")).expect(500).await;
    }

    async fn a_pending_pod_is_evicted_without_the_budget(s) {
        s.post(PODS, pod("a")).only("/kind").await;
        s.post(BUDGETS, budget(json!({ "minAvailable": 5, "selector": { "matchLabels": { "app": "web" } } }))).only("/kind").await;
        s.get(BUDGET).until("/status/observedGeneration", json!(1)).only("/status/disruptionsAllowed").await;
        s.post(EVICT, eviction("a")).await;
        s.get("/api/v1/namespaces/{ns}/pods/a").expect(404).await;
    }

    async fn a_budget_with_both_limits_is_rejected(s) {
        s.post(BUDGETS, budget(json!({ "minAvailable": 1, "maxUnavailable": 1, "selector": {} }))).expect(422).await;
    }

    async fn a_budget_with_an_invalid_limit_is_rejected(s) {
        s.post(BUDGETS, budget(json!({ "minAvailable": -1, "selector": {} }))).expect(422).await;
        s.post(BUDGETS, budget(json!({ "minAvailable": "many", "selector": {} }))).expect(422).await;
    }
}
