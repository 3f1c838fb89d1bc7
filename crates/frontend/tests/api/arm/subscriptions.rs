//! Subscriptions: their documents, and the requests that their states allow.

use api::doc::ProvisioningState;
use serde_json::{Value, json};

use super::{NEW, SUBSCRIPTION, at, body, rid};
use crate::fixture::TestServer;

fn subscription() -> String {
    format!("/subscriptions/{}?api-version=2.0", SUBSCRIPTION.to_uppercase())
}

#[tokio::test]
async fn a_subscription_is_returned_without_its_owners_address() {
    let server = TestServer::open().await;
    let body = json!({
        "state": "Registered",
        "registrationDate": "then",
        "unheardOf": {"a": [1, 2]},
        "properties": {"tenantId": "t", "accountOwner": {"puid": "p", "email": "jo@example"}, "later": true,
            "registeredFeatures": [{"name": "A/B", "state": "Registered"}, {"name": "C/D", "state": "Pending"}]},
    });
    let first = server.put(&subscription(), &body).await.expect(201).json();
    let mut expect = body.clone();
    expect["properties"]["accountOwner"]["email"] = json!("");
    assert_eq!(first, expect);
    assert_eq!(server.put(&subscription(), &body).await.expect(200).json(), expect);
    let path = format!("/subscriptions/{SUBSCRIPTION}");
    let stored = server.store.subscriptions().find(&path).await.unwrap().unwrap().document;
    assert_eq!(stored.registered_features, ["A/B"]);
    assert!(!format!("{stored:?}").contains("jo@example"));
    for (sent, code, target) in [
        (json!({"state": "Asleep"}), "InvalidParameter", "state"),
        (json!({}), "InvalidParameter", "state"),
        (json!([]), "InvalidRequestContent", ""),
    ] {
        assert_eq!(
            server.put(&subscription(), &sent).await.error(),
            (400, code.to_owned(), target.to_owned())
        );
    }
    // The version is ignored.
    server.put(&subscription().replace("2.0", "1.0"), &body).await.expect(200);
    server.put("/subscriptions/nobody?api-version=2.0", &body).await.error();
    server.close().await;
}

#[tokio::test]
async fn each_state_allows_what_the_table_says() {
    let server = TestServer::with_cluster("one", ProvisioningState::Succeeded).await;
    for (state, write, delete, credentials) in [
        ("Registered", true, true, true),
        ("Unregistered", false, false, false),
        ("Warned", false, true, false),
        ("Suspended", false, true, false),
        ("Deleted", false, false, false),
    ] {
        server.put(&subscription(), &json!({"state": state})).await.expect(200);
        let judge = |reply: crate::fixture::Reply, allowed: bool| {
            if allowed {
                assert!(reply.status.is_success(), "{state}: {}", reply.text);
            } else {
                assert_eq!(
                    reply.error(),
                    (400, "InvalidSubscriptionState".to_owned(), String::new()),
                    "{state}"
                );
            }
        };
        server.get(&at("one", NEW)).await.expect(200);
        judge(server.patch(&at("one", NEW), &json!({})).await, write);
        server.settle("one", ProvisioningState::Succeeded, None).await;
        judge(server.put(&at("two", NEW), &body("two")).await, write);
        judge(server.post(&format!("{}/listcredentials?api-version={NEW}", rid("one"))).await, credentials);
        judge(server.delete(&at("one", NEW)).await, delete);
        server.settle("one", ProvisioningState::Succeeded, None).await;
        // Deleting a missing cluster succeeds in every state.
        server.delete(&at("nothing", NEW)).await.expect(204);
    }
    let back = server.put(&subscription(), &json!({"state": "Registered"})).await;
    assert_eq!(back.error().1, "InvalidSubscriptionState");
    server.put(&subscription(), &json!({"state": "Deleted"})).await.expect(200);
    server.close().await;
}

#[tokio::test]
async fn an_unregistered_subscription_can_only_read() {
    let server = TestServer::open().await;
    assert_eq!(server.put(&at("one", NEW), &body("one")).await.error().1, "InvalidSubscriptionState");
    let list = format!(
        "/subscriptions/{SUBSCRIPTION}/providers/Microsoft.RedHatOpenShift/openShiftClusters?api-version={NEW}"
    );
    assert_eq!(server.get(&list).await.expect(200).json()["value"], Value::Array(Vec::new()));
    server.close().await;
}
