//! Asynchronous operations, from the response to a PUT to the last poll after a DELETE.

use api::doc::{Operation, ProvisioningState};
use serde_json::json;
use store::AuditContext;

use super::{NEW, SUBSCRIPTION, at, body, rid};
use crate::fixture::TestServer;

/// The path of a URL in a response.
fn path(url: &str) -> String {
    let rest = url.split_once("://").unwrap().1;
    format!("/{}", rest.split_once('/').unwrap().1)
}

#[tokio::test]
async fn an_operation_is_followed_to_its_end() {
    let server = TestServer::open().await;
    server.register().await;
    let made = server.put(&at("one", NEW), &body("one")).await.expect(201);
    let url = made.header("azure-asyncoperation").to_owned();
    assert!(
        url.starts_with(&format!("{}/subscriptions/", server.url))
            && url.ends_with("?api-version=2025-07-25"),
        "{url}"
    );
    let running = server.get(&path(&url)).await.expect(200);
    assert_eq!(running.header("retry-after"), "10");
    let status = running.json();
    assert_eq!(status["status"], "Creating");
    assert!(status.get("endTime").is_none() && status.get("error").is_none(), "{status}");
    assert_eq!(status["properties"]["percent"], 0);
    assert!(path(&url).starts_with(status["id"].as_str().unwrap()), "{status}");
    let result = path(&url).replace("operationsstatus", "operationresults");
    let waiting = server.get(&result).await.expect(202);
    assert_eq!((waiting.text.as_str(), waiting.header("retry-after")), ("", "10"));
    assert_eq!(path(waiting.header("location")), result);

    // The operation is finished, but its cluster does not show it yet: the operation is shown as running.
    let id = server.cluster("one").await.operation.unwrap();
    let read = server.store.collection::<Operation>().get(id).await.unwrap().unwrap();
    let ended = Operation {
        status: ProvisioningState::Failed,
        end_time: Some(read.document.start_time),
        ..read.document.clone()
    };
    server
        .store
        .collection::<Operation>()
        .update(&read, &ended, &AuditContext::service("test"))
        .await
        .unwrap();
    assert_eq!(server.get(&path(&url)).await.json()["status"], "Creating");
    server.get(&result).await.expect(202);

    server.settle("one", ProvisioningState::Succeeded, None).await;
    let status = server.get(&path(&url)).await.expect(200).json();
    assert_eq!(status["status"], "Succeeded");
    assert!(status["endTime"].is_string() && status.get("properties").is_none(), "{status}");
    let made = server.get(&result).await.expect(200);
    assert_eq!(made.json()["id"], rid("one"));
    assert!(!made.text.contains("hunter2"));

    for spelled in [SUBSCRIPTION.to_uppercase(), SUBSCRIPTION.replace("aaaa", "%61a%41A")] {
        let same = path(&url).replace(SUBSCRIPTION, &spelled);
        assert_eq!(server.get(&same).await.expect(200).json()["status"], "Succeeded", "{spelled}");
        server.get(&result.replace(SUBSCRIPTION, &spelled)).await.expect(200);
    }

    // An operation of another subscription, an unknown one, and an invalid id.
    let other = path(&url).replace(SUBSCRIPTION, "22222222-2222-2222-2222-222222222222");
    assert_eq!(server.get(&other).await.error().1, "NotFound");
    let unknown = path(&url).replace(&id.to_string(), "22222222-2222-2222-2222-222222222222");
    assert_eq!(server.get(&unknown).await.error().0, 404);
    let none = path(&url).replace(&id.to_string(), "none");
    assert_eq!(server.get(&none).await.error().1, "InvalidOperationID");
    server.close().await;
}

#[tokio::test]
async fn a_delete_is_polled_after_its_cluster_is_deleted() {
    let server = TestServer::with_cluster("one", ProvisioningState::Succeeded).await;
    let gone = server.delete(&at("one", NEW)).await.expect(202);
    assert_eq!((gone.text.as_str(), gone.header("retry-after")), ("", "10"));
    let (status, result) = (path(gone.header("azure-asyncoperation")), path(gone.header("location")));
    assert!(result.contains("/operationresults/") && result.ends_with("api-version=2025-07-25"));
    assert_eq!(server.get(&status).await.json()["status"], "Deleting");
    server.get(&result).await.expect(202);
    let by = AuditContext::service("test");
    let cluster = server.store.clusters().find(&rid("one")).await.unwrap().unwrap();
    let id = cluster.document.operation.unwrap();
    let read = server.store.collection::<Operation>().get(id).await.unwrap().unwrap();
    let ended = Operation {
        status: ProvisioningState::Succeeded,
        end_time: Some(read.document.start_time),
        ..read.document.clone()
    };
    server.store.collection::<Operation>().update(&read, &ended, &by).await.unwrap();
    server.store.clusters().delete(&cluster, &by).await.unwrap();
    assert_eq!(server.get(&status).await.json()["status"], "Succeeded");
    assert_eq!(server.get(&result).await.expect(204).text, "");
    assert_eq!(server.get(&at("one", NEW)).await.error().1, "ResourceNotFound");
    assert_eq!(server.delete(&at("one", NEW)).await.expect(204).text, "");
    server.close().await;
}

#[tokio::test]
async fn a_failure_is_returned_as_it_was_stored() {
    let server = TestServer::open().await;
    server.register().await;
    let made = server.put(&at("one", NEW), &body("one")).await.expect(201);
    let id = server.cluster("one").await.operation.unwrap();
    let read = server.store.collection::<Operation>().get(id).await.unwrap().unwrap();
    let error = serde_json::from_value(
        json!({"code": "InvalidLinkedVNet", "message": "No.", "target": "properties.masterProfile.subnetId"}),
    )
    .unwrap();
    let failed = Operation { error: Some(error), ..read.document.clone() };
    server
        .store
        .collection::<Operation>()
        .update(&read, &failed, &AuditContext::service("test"))
        .await
        .unwrap();
    server.settle("one", ProvisioningState::Failed, Some(ProvisioningState::Creating)).await;
    let status = server.get(&path(made.header("azure-asyncoperation"))).await.expect(200).json();
    assert_eq!(status["status"], "Failed");
    assert_eq!(status["error"]["code"], "InvalidLinkedVNet");
    assert_eq!(status["error"]["target"], "properties.masterProfile.subnetId");
    server.close().await;
}
