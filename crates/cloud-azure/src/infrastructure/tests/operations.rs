//! Tests of long operations and deletions.

use std::time::Duration;

use super::*;

pub(super) const OPERATION: &str =
    "https://management.azure.com/subscriptions/s/providers/Microsoft.Network/locations/l/operations/1";

/// What a get says of a resource that is not there, after a put with an operation, and the polls of the operation.
async fn state_of(polls: impl IntoIterator<Item = Reply>) -> Result<Option<ResourceState>, CloudError> {
    let address = request(ResourceKind::PublicIp);
    let accepted =
        Reply::json(201, shown(&address, |body| body["properties"]["provisioningState"] = json!("Updating")));
    let replies =
        [missing(), accepted.with("azure-asyncoperation", OPERATION).with("location", "https://elsewhere/x")];
    let polls = polls.into_iter().flat_map(|poll| [missing(), poll]);
    let service = ScriptedService::new(replies.into_iter().chain(polls).collect::<Vec<_>>());
    let client = service.client();
    assert_eq!(client.put(address.clone()).await.unwrap().state, ResourceState::Updating);
    let found = client.get(&address.id).await?;
    Ok(found.map(|it| it.state))
}

#[tokio::test]
async fn an_operation_tells_of_a_resource_that_is_not_there() {
    let status = |status: &str| {
        ok(json!({"status": status, "error": {"code": "AllocationFailed", "message": "No \"room\"."}}))
    };
    assert_eq!(state_of([status("InProgress")]).await.unwrap(), Some(ResourceState::Creating));
    assert_eq!(state_of([status("Odd")]).await.unwrap(), Some(ResourceState::Creating));
    assert_eq!(state_of([status("succeeded")]).await.unwrap(), None);
    for failed in ["Failed", "FAILED", "Canceled"] {
        let Some(ResourceState::Failed { failure }) = state_of([status(failed)]).await.unwrap() else {
            panic!("{failed}")
        };
        assert_eq!((failure.code.as_str(), failure.message.as_str()), ("AllocationFailed", "No \"room\"."));
    }
    let Some(ResourceState::Failed { failure }) =
        state_of([ok(json!({"status": "Canceled"}))]).await.unwrap()
    else {
        panic!("canceled")
    };
    assert_eq!((failure.code.as_str(), failure.message.as_str()), ("Canceled", "the operation was canceled"));
    // The URL of a result tells by its status.
    assert_eq!(state_of([Reply::json(202, Value::Null)]).await.unwrap(), Some(ResourceState::Creating));
    assert_eq!(state_of([Reply::json(204, Value::Null)]).await.unwrap(), None);
    let Some(ResourceState::Failed { failure }) =
        state_of([Reply::error(409, "SkuNotAvailable")]).await.unwrap()
    else {
        panic!("failed")
    };
    assert_eq!(failure.code, "SkuNotAvailable");
    // Without the right to read operations, the resource alone decides.
    assert_eq!(state_of([Reply::error(403, "AuthorizationFailed")]).await.unwrap(), None);
    let throttled = Reply::error(429, "TooManyRequests").with("retry-after", "4");
    assert_eq!(state_of([throttled]).await.unwrap_err().retry_after(), Some(Duration::from_secs(4)));
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_not_known_yet_is_in_progress_and_later_has_vanished() {
    let address = request(ResourceKind::PublicIp);
    let service = ScriptedService::by(|sent| match sent.method.as_str() {
        "PUT" => Reply::json(201, json!({})).with("azure-asyncoperation", OPERATION),
        _ => missing(),
    });
    let client = service.client();
    client.put(address.clone()).await.unwrap();
    assert_eq!(client.get(&address.id).await.unwrap().unwrap().state, ResourceState::Creating);
    tokio::time::advance(crate::arm::OPERATION_SPREADS_WITHIN).await;
    assert_eq!(client.get(&address.id).await.unwrap(), None);
    // It is not asked for any more.
    let asked = service.sent().len();
    assert_eq!(client.get(&address.id).await.unwrap(), None);
    assert_eq!(service.sent().len(), asked + 1);
}

#[tokio::test]
async fn an_operation_at_another_host_is_not_asked() {
    let address = request(ResourceKind::PublicIp);
    let accepted =
        Reply::json(201, json!({})).with("azure-asyncoperation", "https://evil.example/operations/1");
    let service = ScriptedService::new([missing(), accepted, missing()]);
    let client = service.client();
    client.put(address.clone()).await.unwrap();
    assert_eq!(client.get(&address.id).await.unwrap(), None);
    assert!(service.sent().iter().all(|it| it.origin == "https://management.azure.com"));
}

#[tokio::test]
async fn a_failed_resource_has_the_reason_of_its_operation_and_is_put_again() {
    let address = request(ResourceKind::PublicIp);
    let failed = shown(&address, |body| body["properties"]["provisioningState"] = json!("Failed"));
    let reason =
        ok(json!({"status": "Failed", "error": {"code": "PublicIPCountLimitReached", "message": "m"}}));
    let accepted = || Reply::json(201, json!({})).with("azure-asyncoperation", OPERATION);
    let service = ScriptedService::new([
        missing(),
        accepted(),
        ok(failed.clone()),
        reason,
        ok(failed.clone()),
        accepted(),
    ]);
    let client = service.client();
    client.put(address.clone()).await.unwrap();
    let found = client.get(&address.id).await.unwrap().unwrap();
    assert!(
        matches!(&found.state, ResourceState::Failed { failure } if failure.code == "PublicIPCountLimitReached")
    );
    client.put(address.clone()).await.unwrap();
    assert_eq!(service.lines().last().unwrap(), &format!("PUT {}", address.id));
    // A client that did not start the operation does not know the reason.
    let service = ScriptedService::new([ok(failed)]);
    let found = service.client().get(&address.id).await.unwrap().unwrap();
    assert!(
        matches!(&found.state, ResourceState::Failed { failure } if failure.code == "ProvisioningFailed")
    );
}

#[tokio::test]
async fn a_deletion_is_started_once_and_its_failure_is_reported() {
    let id = id(ResourceKind::SecurityGroup);
    let accepted =
        || Reply::json(202, Value::Null).with("azure-asyncoperation", OPERATION).with("location", OPERATION);
    let service = ScriptedService::new([
        accepted(),
        ok(json!({"status": "InProgress"})),
        ok(
            json!({"status": "Failed", "error": {"code": "InUseNetworkSecurityGroupCannotBeDeleted", "message": "m"}}),
        ),
        accepted(),
        Reply::error(404, "OperationNotFound"),
        ok(json!({"status": "Succeeded"})),
        Reply::json(204, Value::Null),
    ]);
    let client = service.client();
    client.delete(&id).await.unwrap();
    client.delete(&id).await.unwrap();
    let error = client.delete(&id).await.unwrap_err();
    assert!(matches!(error, CloudError::InUse { .. }), "{error}");
    client.delete(&id).await.unwrap();
    // Not known yet, which is in progress.
    client.delete(&id).await.unwrap();
    client.delete(&id).await.unwrap();
    assert_eq!(service.sent().iter().filter(|it| it.method == "DELETE").count(), 3);
    for gone in [Reply::json(204, Value::Null), Reply::error(404, "ResourceGroupNotFound")] {
        ScriptedService::new([gone]).client().delete(&id).await.unwrap();
    }
}

#[tokio::test]
async fn a_failed_interface_is_written_back_before_its_deletion_and_no_other() {
    let interface = request(ResourceKind::NetworkInterface);
    let refused = || Reply::error(400, "Odd");
    let failed = shown(&interface, |body| body["properties"]["provisioningState"] = json!("Failed"));
    let service =
        ScriptedService::new([refused(), ok(failed.clone()), ok(failed), Reply::json(202, Value::Null)]);
    service.client().delete(&interface.id).await.unwrap();
    let methods: Vec<String> = service.sent().into_iter().map(|it| it.method).collect();
    assert_eq!(methods, ["DELETE", "GET", "PUT", "DELETE"]);
    let service = ScriptedService::new([refused(), ok(shown(&interface, |_| ()))]);
    let error = service.client().delete(&interface.id).await.unwrap_err();
    assert!(matches!(error, CloudError::Invalid { .. }), "{error}");
    let service = ScriptedService::new([Reply::error(400, "NicReservedForAnotherVm")]);
    let error = service.client().delete(&interface.id).await.unwrap_err();
    assert!(matches!(error, CloudError::InUse { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_was_written_just_before_is_waited_for_where_it_is_not_visible_yet() {
    let (group, address) = (request(ResourceKind::ResourceGroup), request(ResourceKind::PublicIp));
    let service =
        ScriptedService::by(|sent| match (sent.method.as_str(), sent.path.contains("/providers/")) {
            ("PUT", false) => Reply::json(201, json!({})),
            ("PUT", true) => Reply::error(404, "ResourceGroupNotFound"),
            _ => missing(),
        });
    let client = service.client();
    // Nobody has made the group.
    let error = client.put(address.clone()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("{} was not found", group.id));
    client.put(group).await.unwrap();
    let error = client.put(address.clone()).await.unwrap_err();
    assert!(matches!(error, CloudError::Busy { .. }), "{error}");
    tokio::time::advance(Duration::from_secs(180)).await;
    assert!(client.put(address).await.unwrap_err().is_not_found());
}
