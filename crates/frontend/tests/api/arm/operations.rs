//! Asynchronous operations, from the answer of a PUT to the last poll after a DELETE.

use api::doc::{Operation, ProvisioningState};
use serde_json::json;
use store::AuditContext;

use super::{NEW, SUBSCRIPTION, at, body, rid};
use crate::fixture::House;

/// The path of a URL that an answer gave.
fn path(url: &str) -> String {
    let rest = url.split_once("://").unwrap().1;
    format!("/{}", rest.split_once('/').unwrap().1)
}

#[tokio::test]
async fn an_operation_is_followed_to_its_end() {
    let house = House::open().await;
    house.register().await;
    let made = house.put(&at("one", NEW), &body("one")).await.expect(201);
    let url = made.header("azure-asyncoperation").to_owned();
    assert!(
        url.starts_with(&format!("{}/subscriptions/", house.url)) && url.ends_with("?api-version=2025-07-25"),
        "{url}"
    );
    let running = house.get(&path(&url)).await.expect(200);
    assert_eq!(running.header("retry-after"), "10");
    let status = running.json();
    assert_eq!(status["status"], "Creating");
    assert!(status.get("endTime").is_none() && status.get("error").is_none(), "{status}");
    assert_eq!(status["properties"]["percent"], 0);
    assert!(path(&url).starts_with(status["id"].as_str().unwrap()), "{status}");
    let result = path(&url).replace("operationsstatus", "operationresults");
    let waiting = house.get(&result).await.expect(202);
    assert_eq!((waiting.text.as_str(), waiting.header("retry-after")), ("", "10"));
    assert_eq!(path(waiting.header("location")), result);

    // The operation has ended, but its cluster does not show it yet: nothing is told of the end.
    let id = house.cluster("one").await.operation.unwrap();
    let read = house.store.collection::<Operation>().get(id).await.unwrap().unwrap();
    let ended = Operation {
        status: ProvisioningState::Failed,
        end_time: Some(read.document.start_time),
        ..read.document.clone()
    };
    house
        .store
        .collection::<Operation>()
        .update(&read, &ended, &AuditContext::service("test"))
        .await
        .unwrap();
    assert_eq!(house.get(&path(&url)).await.json()["status"], "Creating");
    house.get(&result).await.expect(202);

    house.settle("one", ProvisioningState::Succeeded, None).await;
    let status = house.get(&path(&url)).await.expect(200).json();
    assert_eq!(status["status"], "Succeeded");
    assert!(status["endTime"].is_string() && status.get("properties").is_none(), "{status}");
    let made = house.get(&result).await.expect(200);
    assert_eq!(made.json()["id"], rid("one"));
    assert!(!made.text.contains("hunter2"));

    for spelled in [SUBSCRIPTION.to_uppercase(), SUBSCRIPTION.replace("aaaa", "%61a%41A")] {
        let same = path(&url).replace(SUBSCRIPTION, &spelled);
        assert_eq!(house.get(&same).await.expect(200).json()["status"], "Succeeded", "{spelled}");
        house.get(&result.replace(SUBSCRIPTION, &spelled)).await.expect(200);
    }

    // Another subscription's, an unknown one, and none at all.
    let other = path(&url).replace(SUBSCRIPTION, "22222222-2222-2222-2222-222222222222");
    assert_eq!(house.get(&other).await.refusal().1, "NotFound");
    let unknown = path(&url).replace(&id.to_string(), "22222222-2222-2222-2222-222222222222");
    assert_eq!(house.get(&unknown).await.refusal().0, 404);
    let none = path(&url).replace(&id.to_string(), "none");
    assert_eq!(house.get(&none).await.refusal().1, "InvalidOperationID");
    house.close().await;
}

#[tokio::test]
async fn a_delete_is_followed_beyond_the_end_of_its_cluster() {
    let house = House::with_cluster("one", ProvisioningState::Succeeded).await;
    let gone = house.delete(&at("one", NEW)).await.expect(202);
    assert_eq!((gone.text.as_str(), gone.header("retry-after")), ("", "10"));
    let (status, result) = (path(gone.header("azure-asyncoperation")), path(gone.header("location")));
    assert!(result.contains("/operationresults/") && result.ends_with("api-version=2025-07-25"));
    assert_eq!(house.get(&status).await.json()["status"], "Deleting");
    house.get(&result).await.expect(202);
    let by = AuditContext::service("test");
    let cluster = house.store.clusters().find(&rid("one")).await.unwrap().unwrap();
    let id = cluster.document.operation.unwrap();
    let read = house.store.collection::<Operation>().get(id).await.unwrap().unwrap();
    let ended = Operation {
        status: ProvisioningState::Succeeded,
        end_time: Some(read.document.start_time),
        ..read.document.clone()
    };
    house.store.collection::<Operation>().update(&read, &ended, &by).await.unwrap();
    house.store.clusters().delete(&cluster, &by).await.unwrap();
    assert_eq!(house.get(&status).await.json()["status"], "Succeeded");
    assert_eq!(house.get(&result).await.expect(204).text, "");
    assert_eq!(house.get(&at("one", NEW)).await.refusal().1, "ResourceNotFound");
    assert_eq!(house.delete(&at("one", NEW)).await.expect(204).text, "");
    house.close().await;
}

#[tokio::test]
async fn a_failure_is_told_as_it_was_noted() {
    let house = House::open().await;
    house.register().await;
    let made = house.put(&at("one", NEW), &body("one")).await.expect(201);
    let id = house.cluster("one").await.operation.unwrap();
    let read = house.store.collection::<Operation>().get(id).await.unwrap().unwrap();
    let error = serde_json::from_value(
        json!({"code": "InvalidLinkedVNet", "message": "No.", "target": "properties.masterProfile.subnetId"}),
    )
    .unwrap();
    let failed = Operation { error: Some(error), ..read.document.clone() };
    house
        .store
        .collection::<Operation>()
        .update(&read, &failed, &AuditContext::service("test"))
        .await
        .unwrap();
    house.settle("one", ProvisioningState::Failed, Some(ProvisioningState::Creating)).await;
    let status = house.get(&path(made.header("azure-asyncoperation"))).await.expect(200).json();
    assert_eq!(status["status"], "Failed");
    assert_eq!(status["error"]["code"], "InvalidLinkedVNet");
    assert_eq!(status["error"]["target"], "properties.masterProfile.subnetId");
    house.close().await;
}
