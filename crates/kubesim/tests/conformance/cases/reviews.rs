//! Questions about users and permissions.

use serde_json::{Value, json};

use super::fixtures::permit;
use crate::script::cases;

const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";
const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

fn access(kind: &str, spec: Value) -> Value {
    json!({ "apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec })
}

fn token_review(spec: Value) -> Value {
    json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec })
}

cases! { "reviews";
    async fn may_another_user_do_it(s) {
        permit(s, "u-{id}", "reader", json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] }])).await;
        let path = format!("{AUTHORIZATION}/subjectaccessreviews");
        for (verb, resource) in [("list", "pods"), ("delete", "pods"), ("list", "secrets")] {
            s.post(&path, access("SubjectAccessReview", json!({
                "user": "u-{id}", "groups": ["team"], "resourceAttributes": { "namespace": "{ns}", "verb": verb, "resource": resource }
            }))).await;
        }
        s.post(&path, access("SubjectAccessReview", json!({
            "user": "u-{id}", "groups": ["system:masters"], "resourceAttributes": { "verb": "delete", "resource": "nodes" }
        }))).await;
        s.post(&path, access("SubjectAccessReview", json!({ "user": "system:anonymous", "nonResourceAttributes": { "verb": "get", "path": "/metrics" } }))).await;
        s.post(&path, access("SubjectAccessReview", json!({ "groups": ["system:unauthenticated"], "nonResourceAttributes": { "verb": "get", "path": "/healthz" } }))).await;
        s.post(&path, access("SubjectAccessReview", json!({}))).expect(422).await;
        s.post(&path, access("SubjectAccessReview", json!({
            "user": "u", "resourceAttributes": { "verb": "get" }, "nonResourceAttributes": { "verb": "get", "path": "/x" }
        }))).expect(422).await;
        s.post(&path, access("SubjectAccessReview", json!({ "user": "u", "nonResourceAttributes": { "verb": "get", "path": "/x" } }))).by("u-{id}").expect(403).await;
    }

    async fn may_i_do_it(s) {
        permit(s, "u-{id}", "reader", json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] }])).await;
        let path = format!("{AUTHORIZATION}/selfsubjectaccessreviews");
        for user in ["u-{id}", "other-{id}"] {
            let list = json!({ "resourceAttributes": { "namespace": "{ns}", "verb": "list", "resource": "pods" } });
            s.post(&path, access("SelfSubjectAccessReview", list)).by(user).await;
        }
        s.post(&path, access("SelfSubjectAccessReview", json!({ "nonResourceAttributes": { "verb": "get", "path": "/x" } }))).await;
        s.post(&path, access("SelfSubjectAccessReview", json!({}))).expect(422).await;
        let mut named = access("SelfSubjectAccessReview", json!({ "nonResourceAttributes": { "verb": "get", "path": "/x" } }));
        named["metadata"] = json!({ "name": "a" });
        s.post(&path, named).expect(422).only("/reason").await;
    }

    async fn may_another_user_do_it_in_this_namespace(s) {
        let path = format!("{AUTHORIZATION}/namespaces/{{ns}}/localsubjectaccessreviews");
        let mut review = access("LocalSubjectAccessReview", json!({
            "user": "u-{id}", "resourceAttributes": { "namespace": "{ns}", "verb": "list", "resource": "pods" }
        }));
        review["metadata"] = json!({ "namespace": "{ns}" });
        s.post(&path, review.clone()).await;
        let mut other = review.clone();
        other["spec"]["resourceAttributes"]["namespace"] = json!("default");
        s.post(&path, other).expect(422).await;
        let mut other = review.clone();
        other["spec"] = json!({ "user": "u", "nonResourceAttributes": { "verb": "get", "path": "/x" } });
        s.post(&path, other).expect(422).await;
        review["metadata"] = json!({ "namespace": "default" });
        s.post(&path, review).expect(400).await;
    }

    async fn what_may_i_do(s) {
        let path = format!("{AUTHORIZATION}/selfsubjectrulesreviews");
        permit(s, "u-{id}", "reader", json!([
            { "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"], "verbs": ["get"] }
        ])).await;
        let answer = s.post(&path, access("SelfSubjectRulesReview", json!({ "namespace": "{ns}" }))).by("u-{id}")
            .only("/kind").only("/spec").only("/metadata").only("/status/incomplete").await;
        // The order is that of a map of the real server.
        let rules = answer["status"]["resourceRules"].as_array().unwrap();
        let own = json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"] });
        assert!(rules.contains(&own), "{rules:?}");
        assert_eq!(rules.len(), 3, "{rules:?}");
        assert_eq!(answer["status"]["nonResourceRules"].as_array().unwrap().len(), 2);
        s.post(&path, access("SelfSubjectRulesReview", json!({}))).expect(400).await;
    }

    async fn whose_token_is_it(s) {
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "robot" } });
        s.post("/api/v1/namespaces/{ns}/serviceaccounts", account).only("/kind").await;
        let answer = s.post("/api/v1/namespaces/{ns}/serviceaccounts/robot/token", json!({})).only("/kind").await;
        let token = answer["status"]["token"].as_str().unwrap().to_owned();
        s.alias(&token, "<token>");
        s.post(TOKEN_REVIEWS, token_review(json!({ "token": "<token>" }))).await;
        s.post(TOKEN_REVIEWS, token_review(json!({ "token": "<token>", "audiences": ["vault"] }))).await;
        s.post(TOKEN_REVIEWS, token_review(json!({ "token": "unknown" }))).await;
        s.post(TOKEN_REVIEWS, token_review(json!({}))).expect(400).await;
        s.delete("/api/v1/namespaces/{ns}/serviceaccounts/robot").only("/kind").await;
        s.post(TOKEN_REVIEWS, token_review(json!({ "token": "<token>" }))).until("/status/authenticated", Value::Null).only("/status/user").await;
    }

    async fn who_am_i(s) {
        let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        s.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review.clone()).without("/status/userInfo/extra").await;
        s.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review).anonymous().expect(403).await;
    }
}
