//! Who sends a request: certificates, tokens, nobody, and users on behalf of others.

use serde_json::{Value, json};

use super::fixtures::{PODS, SECRETS, permit, pod};
use crate::script::{Script, cases};

const ACCOUNTS: &str = "/api/v1/namespaces/{ns}/serviceaccounts";
const TOKEN: &str = "/api/v1/namespaces/{ns}/serviceaccounts/robot/token";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

fn who() -> Value {
    json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" })
}

async fn robot(s: &mut Script) {
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "robot" } });
    s.post(ACCOUNTS, account).only("/kind").await;
}

fn request(spec: Value) -> Value {
    json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec })
}

/// A new token of the ServiceAccount.
async fn token(s: &mut Script, spec: Value) -> String {
    let answer =
        s.post(TOKEN, request(spec)).without("/status/token").without("/spec/boundObjectRef/uid").await;
    answer["status"]["token"].as_str().unwrap().to_owned()
}

cases! { "access";
    async fn nobody_may_ask_for_health_and_version_only(s) {
        for path in ["/healthz", "/livez", "/readyz"] {
            s.get(path).anonymous().await;
        }
        s.get("/version").anonymous().only("/major").await;
        for path in ["/api", "/apis/apps", "/nowhere", "/api/v1/nodes", "/api/v1/namespaces/{ns}/pods/a/log", "/apis/none/v1/things"] {
            s.get(path).anonymous().expect(403).await;
        }
        s.post(PODS, pod("a")).anonymous().expect(403).await;
    }

    async fn an_unknown_token_is_no_token(s) {
        s.get("/healthz").token("unknown").expect(401).await;
        s.get("/api/v1/nodes").token("a.b.c").expect(401).await;
        s.get("/healthz").anonymous().header("authorization", "Basic YTpi").await;
    }

    async fn a_valid_certificate_counts_before_a_token(s) {
        s.get("/api/v1/namespaces/{ns}").header("authorization", "Bearer unknown").only("/kind").await;
    }

    async fn a_token_of_a_service_account_is_its_user(s) {
        robot(s).await;
        let token = token(s, json!({ "expirationSeconds": 700 })).await;
        s.post(WHO, who()).token(&token).await;
        s.get(PODS).token(&token).expect(403).await;
        permit(s, "system:serviceaccount:{ns}:robot", "reader", json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] }])).await;
        s.get(PODS).token(&token).only("/kind").await;
        s.get("/api/v1/pods").token(&token).expect(403).await;
    }

    async fn a_token_ends_with_its_service_account(s) {
        robot(s).await;
        let token = token(s, json!({})).await;
        s.get("/version").token(&token).only("/major").await;
        s.delete("/api/v1/namespaces/{ns}/serviceaccounts/robot").only("/kind").await;
        s.get("/version").token(&token).until("/code", 401.into()).expect(401).await;
        robot(s).await;
        s.get("/version").token(&token).expect(401).await;
    }

    async fn a_token_ends_with_the_object_that_it_is_bound_to(s) {
        robot(s).await;
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" } });
        s.post(SECRETS, secret).only("/kind").await;
        let token = token(s, json!({ "boundObjectRef": { "apiVersion": "v1", "kind": "Secret", "name": "a" } })).await;
        s.get("/version").token(&token).only("/major").await;
        s.delete("/api/v1/namespaces/{ns}/secrets/a").only("/kind").await;
        s.get("/version").token(&token).until("/code", 401.into()).expect(401).await;
    }

    async fn a_token_of_a_pod_names_it(s) {
        robot(s).await;
        let mut object = pod("a");
        object["spec"]["serviceAccountName"] = json!("robot");
        s.post(PODS, object).only("/kind").await;
        let reference = json!({ "apiVersion": "v1", "kind": "Pod", "name": "a" });
        let token = token(s, json!({ "boundObjectRef": reference })).await;
        s.post(WHO, who()).token(&token).await;
        s.post("/api/v1/namespaces/{ns}/serviceaccounts/default/token", request(json!({ "boundObjectRef": reference }))).expect(400).await;
    }

    async fn a_token_for_another_audience_is_not_accepted(s) {
        robot(s).await;
        let token = token(s, json!({ "audiences": ["vault"] })).await;
        s.get("/version").token(&token).expect(401).await;
    }

    async fn invalid_requests_for_tokens(s) {
        robot(s).await;
        s.post(TOKEN, json!({})).only("/spec").only("/kind").await;
        for spec in [
            json!({ "expirationSeconds": 1 }),
            json!({ "expirationSeconds": 4_294_967_297_i64 }),
        ] {
            s.post(TOKEN, request(spec)).expect(422).await;
        }
        s.post(TOKEN, request(json!({ "boundObjectRef": { "apiVersion": "v1", "kind": "Secret", "name": "nothing" } }))).expect(404).await;
        s.post(TOKEN, request(json!({ "boundObjectRef": { "apiVersion": "batch/v1", "kind": "Job", "name": "nothing" } }))).expect(400).await;
        s.post("/api/v1/namespaces/{ns}/serviceaccounts/nobody/token", request(json!({}))).expect(404).await;
        s.post(TOKEN, json!({ "metadata": { "name": "other" } })).expect(422).await;
        s.get(TOKEN).expect(405).await;
    }

    async fn a_request_on_behalf_of_another_user(s) {
        s.post(WHO, who()).by("u-{id}").await;
        s.post(WHO, who()).by("u-{id}").header("impersonate-group", "team").header("impersonate-uid", "7")
            .header("impersonate-extra-example.test%2fscope", "dev").await;
        s.post(WHO, who()).by("system:serviceaccount:{ns}:robot").await;
        s.post(WHO, who()).by("system:node:one").await;
        s.get("/version").by("system:anonymous").only("/major").await;
        s.get(PODS).by("u-{id}").expect(403).await;
        s.get(PODS).header("impersonate-group", "team").expect(400).await;
        s.get(PODS).header("impersonate-uid", "team").expect(400).await;
        s.get(PODS).by("u-{id}").header("impersonate-group", "system:masters").only("/kind").await;
    }

    async fn impersonation_needs_permission(s) {
        robot(s).await;
        let token = token(s, json!({})).await;
        for user in ["u-{id}", "system:serviceaccount:{ns}:default", "system:node:one"] {
            s.get(PODS).token(&token).by(user).expect(403).await;
        }
        s.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", super::fixtures::role("ClusterRole", "imp-{id}", json!([
            { "apiGroups": [""], "resources": ["users"], "resourceNames": ["u-{id}"], "verbs": ["impersonate"] }
        ]))).only("/kind").await;
        s.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", super::fixtures::binding(
            "ClusterRoleBinding", "imp-{id}", ("ClusterRole", "imp-{id}"), "system:serviceaccount:{ns}:robot"
        )).only("/kind").await;
        s.post(WHO, who()).token(&token).by("u-{id}").until("/kind", "SelfSubjectReview".into()).await;
        s.get(PODS).token(&token).by("u-{id}").expect(403).await;
        // The real server remembers how a user impersonated last, and reports that attempt first.
        s.post(WHO, who()).token(&token).by("other").expect(403).only("/reason").await;
        s.post(WHO, who()).token(&token).by("u-{id}").header("impersonate-group", "team").expect(403).only("/reason").await;
        s.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/imp-{id}").only("/kind").await;
        s.delete("/apis/rbac.authorization.k8s.io/v1/clusterroles/imp-{id}").only("/kind").await;
    }
}
