//! Subscriptions: what is kept of them, and what they allow.

use api::doc::ProvisioningState;
use serde_json::{Value, json};

use super::{NEW, SUBSCRIPTION, at, body, rid};
use crate::fixture::House;

fn subscription() -> String {
    format!("/subscriptions/{}?api-version=2.0", SUBSCRIPTION.to_uppercase())
}

#[tokio::test]
async fn what_is_told_of_a_subscription_is_given_back_without_its_owners_address() {
    let house = House::open().await;
    let told = json!({
        "state": "Registered",
        "registrationDate": "then",
        "unheardOf": {"a": [1, 2]},
        "properties": {"tenantId": "t", "accountOwner": {"puid": "p", "email": "jo@example"}, "later": true,
            "registeredFeatures": [{"name": "A/B", "state": "Registered"}, {"name": "C/D", "state": "Pending"}]},
    });
    let first = house.put(&subscription(), &told).await.expect(201).json();
    let mut expect = told.clone();
    expect["properties"]["accountOwner"]["email"] = json!("");
    assert_eq!(first, expect);
    assert_eq!(house.put(&subscription(), &told).await.expect(200).json(), expect);
    let path = format!("/subscriptions/{SUBSCRIPTION}");
    let stored = house.store.subscriptions().find(&path).await.unwrap().unwrap().document;
    assert_eq!(stored.registered_features, ["A/B"]);
    assert!(!format!("{stored:?}").contains("jo@example"));
    for (sent, code, target) in [
        (json!({"state": "Asleep"}), "InvalidParameter", "state"),
        (json!({}), "InvalidParameter", "state"),
        (json!([]), "InvalidRequestContent", ""),
    ] {
        assert_eq!(
            house.put(&subscription(), &sent).await.refusal(),
            (400, code.to_owned(), target.to_owned())
        );
    }
    // The version is not looked at.
    house.put(&subscription().replace("2.0", "1.0"), &told).await.expect(200);
    house.put("/subscriptions/nobody?api-version=2.0", &told).await.refusal();
    house.close().await;
}

#[tokio::test]
async fn each_state_allows_what_the_table_says() {
    let house = House::with_cluster("one", ProvisioningState::Succeeded).await;
    for (state, write, delete, credentials) in [
        ("Registered", true, true, true),
        ("Unregistered", false, false, false),
        ("Warned", false, true, false),
        ("Suspended", false, true, false),
        ("Deleted", false, false, false),
    ] {
        house.put(&subscription(), &json!({"state": state})).await.expect(200);
        let judge = |reply: crate::fixture::Reply, allowed: bool| {
            if allowed {
                assert!(reply.status.is_success(), "{state}: {}", reply.text);
            } else {
                assert_eq!(
                    reply.refusal(),
                    (400, "InvalidSubscriptionState".to_owned(), String::new()),
                    "{state}"
                );
            }
        };
        house.get(&at("one", NEW)).await.expect(200);
        judge(house.patch(&at("one", NEW), &json!({})).await, write);
        house.settle("one", ProvisioningState::Succeeded, None).await;
        judge(house.put(&at("two", NEW), &body("two")).await, write);
        judge(house.post(&format!("{}/listcredentials?api-version={NEW}", rid("one"))).await, credentials);
        judge(house.delete(&at("one", NEW)).await, delete);
        house.settle("one", ProvisioningState::Succeeded, None).await;
        // What is not there is gone, in whatever state.
        house.delete(&at("nothing", NEW)).await.expect(204);
    }
    let back = house.put(&subscription(), &json!({"state": "Registered"})).await;
    assert_eq!(back.refusal().1, "InvalidSubscriptionState");
    house.put(&subscription(), &json!({"state": "Deleted"})).await.expect(200);
    house.close().await;
}

#[tokio::test]
async fn a_subscription_that_we_were_never_told_of_only_reads() {
    let house = House::open().await;
    assert_eq!(house.put(&at("one", NEW), &body("one")).await.refusal().1, "InvalidSubscriptionState");
    let list = format!(
        "/subscriptions/{SUBSCRIPTION}/providers/Microsoft.RedHatOpenShift/openShiftClusters?api-version={NEW}"
    );
    assert_eq!(house.get(&list).await.expect(200).json()["value"], Value::Array(Vec::new()));
    house.close().await;
}
