//! Tests of calls: what is sent, repeated, followed and refused.

use cloud::{Infrastructure as _, ResourceId};
use serde_json::json;

use super::*;
use crate::testing::{Reply, SECRET, ScriptedService, settings};

const ID: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkSecurityGroups/n";
const HOST: &str = "https://management.azure.com";

async fn get(service: &ScriptedService) -> Result<Answer, CloudError> {
    service.client().inner.arm.send(Call::get(ID, "2024-05-01")).await
}

async fn post(service: &ScriptedService) -> Result<Answer, CloudError> {
    let path =
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m/start".to_owned();
    service.client().inner.arm.send(Call::new(Method::Post, &path, "2024-07-01")).await
}

#[tokio::test]
async fn a_call_carries_token_version_and_id() {
    let service = ScriptedService::new([Reply::json(200, json!({}))]);
    let client = service.client();
    let body = json!({"location": "x"});
    let call = Call {
        body: Some(&body),
        condition: Condition::Unchanged("W/\"1\""),
        query: &[("$filter", "location eq 'a b'")],
        ..Call::new(Method::Put, ID, "2024-05-01")
    };
    client.inner.arm.send(call).await.unwrap();
    let sent = &service.sent()[0];
    assert_eq!((sent.origin.as_str(), sent.path.as_str()), (HOST, ID));
    assert_eq!(sent.query, "api-version=2024-05-01&$filter=location%20eq%20%27a%20b%27");
    assert_eq!(sent.header("authorization"), "Bearer token-1");
    assert_eq!(sent.header("if-match"), "W/\"1\"");
    assert_eq!(sent.header("content-type"), "application/json");
    assert!(sent.header("x-ms-client-request-id").parse::<Uuid>().is_ok());
    assert_eq!(sent.json(), body);
    let asked = &service.token_requests()[0];
    assert_eq!(asked.origin, "https://login.microsoftonline.com");
    assert_eq!(asked.path, "/contoso.com/oauth2/v2.0/token");
    assert!(asked.text.contains("scope=https%3A%2F%2Fmanagement.azure.com%2F.default"), "{}", asked.text);
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_call_is_repeated_and_a_post_is_not() {
    for reply in
        [Reply::error(503, "ServiceUnavailable"), Reply::Broken, Reply::Refused, Reply::text(502, "<html>")]
    {
        let twice = [reply.clone(), reply.clone(), Reply::json(200, json!({}))];
        let service = ScriptedService::new(twice);
        get(&service).await.unwrap();
        assert_eq!(service.sent().len(), 3);
        // Each attempt is a request of its own.
        assert_ne!(
            service.sent()[0].header("x-ms-client-request-id"),
            service.sent()[1].header("x-ms-client-request-id")
        );
        let service = ScriptedService::new([reply.clone(), Reply::json(202, json!({}))]);
        match reply {
            // It was never sent.
            Reply::Refused => assert!(post(&service).await.is_ok()),
            _ => {
                let error = post(&service).await.unwrap_err();
                assert!(matches!(error, CloudError::Unavailable { .. }), "{error}");
                assert_eq!(service.sent().len(), 1);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_keeps_failing_ends_within_seconds() {
    let service =
        ScriptedService::by(|_| Reply::error(500, "InternalServerError").with("x-ms-request-id", "r-1"));
    let started = Instant::now();
    let error = get(&service).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(2));
    assert_eq!(service.sent().len(), 3);
    assert_eq!(
        error.to_string(),
        format!(
            "the cloud did not respond to GET {ID} (500 InternalServerError: It is \"InternalServerError\". See the log; request id r-1)"
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_throttled_subscription_is_not_asked_before_its_time() {
    let throttled = Reply::error(429, "SubscriptionRequestsThrottled").with("retry-after", "17");
    let service = ScriptedService::new([throttled, Reply::json(200, json!({})), Reply::json(200, json!({}))]);
    let client = service.client();
    let arm = &client.inner.arm;
    let error = arm.send(Call::get(ID, "v")).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(17)));
    let error = arm.send(Call::get(ID, "v")).await.unwrap_err();
    assert!(error.retry_after().is_some_and(|it| it <= Duration::from_secs(17)), "{error}");
    assert_eq!(service.sent().len(), 1);
    // Another subscription is not concerned.
    arm.send(Call::get("/subscriptions/t/providers", "v")).await.unwrap();
    tokio::time::advance(Duration::from_secs(17)).await;
    arm.send(Call::get(ID, "v")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_moment_of_throttling_is_waited_for_by_every_call() {
    let throttled = || Reply::error(429, "TooManyRequests").with("retry-after-ms", "500");
    let service =
        ScriptedService::new([throttled(), Reply::json(200, json!({})), Reply::json(200, json!({}))]);
    let client = service.client();
    let started = Instant::now();
    let first = client.inner.arm.send(Call::get(ID, "v"));
    let second = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.inner.arm.send(Call::get(ID, "v")).await
    };
    let (first, second) = tokio::join!(first, second);
    first.unwrap();
    second.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(500));
    assert_eq!(service.sent().len(), 3);
    // A throttled POST had no effect, so that it is sent again.
    let service = ScriptedService::new([throttled(), Reply::json(202, json!({}))]);
    post(&service).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_neighbour_that_is_not_ready_does_not_throttle_the_subscription() {
    let busy = json!({"error": {"code": "RetryableError", "message": "m", "details":
        [{"code": "ReferencedResourceNotProvisioned", "message": "m"}]}});
    let service = ScriptedService::new([Reply::json(429, busy), Reply::json(200, json!({}))]);
    let client = service.client();
    let error = client.inner.arm.send(Call::get(ID, "v")).await.unwrap_err();
    assert!(matches!(error, CloudError::Busy { .. }), "{error}");
    client.inner.arm.send(Call::get(ID, "v")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_service_that_names_a_time_is_left_alone_until_then() {
    let service = ScriptedService::new([Reply::error(503, "ServerBusy").with("retry-after", "30")]);
    let error = get(&service).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(30)));
    assert!(error.to_string().contains("ServerBusy"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_token_is_renewed_once() {
    let revoked = || Reply::error(401, "InvalidAuthenticationToken");
    let service = ScriptedService::new([revoked(), Reply::json(200, json!({}))]);
    get(&service).await.unwrap();
    let tokens: Vec<String> = service.sent().iter().map(|it| it.header("authorization").to_owned()).collect();
    assert_eq!(tokens, ["Bearer token-1", "Bearer token-2"]);
    let service = ScriptedService::new([revoked(), revoked()]);
    let error = get(&service).await.unwrap_err();
    assert!(matches!(error, CloudError::Credential { .. }), "{error}");
    assert_eq!(service.sent().len(), 2);
    // A new token that counts as expired is a matter of clocks, which heals.
    let service = ScriptedService::by(|_| Reply::error(401, "ExpiredAuthenticationToken"));
    let error = get(&service).await.unwrap_err();
    assert!(matches!(error, CloudError::Unavailable { .. }), "{error}");
    assert_eq!(service.token_requests().len(), 2);
}

#[tokio::test]
async fn the_claims_of_a_challenge_are_sent_with_the_token_request() {
    use base64::Engine as _;
    let claims = r#"{"access_token":{"nbf":{"essential":true,"value":"1"}}}"#;
    let encoded = base64::engine::general_purpose::STANDARD.encode(claims);
    let challenge = format!("Bearer error=\"insufficient_claims\", claims=\"{encoded}\"");
    let rejected = Reply::error(401, "InvalidAuthenticationToken").with("www-authenticate", &challenge);
    let service = ScriptedService::new([rejected, Reply::json(200, json!({}))]);
    get(&service).await.unwrap();
    let asked = service.token_requests();
    assert!(!asked[0].text.contains("claims="));
    assert!(asked[1].text.ends_with(&format!("&claims={}", utf8_percent_encode(claims, NON_ALPHANUMERIC))));
}

#[tokio::test]
async fn calls_with_the_same_rejected_token_renew_it_once() {
    let service = ScriptedService::by(|sent| match sent.header("authorization") {
        "Bearer token-1" => Reply::error(401, "ExpiredAuthenticationToken"),
        _ => Reply::json(200, json!({})),
    });
    let client = service.client();
    let calls = (0..8).map(|_| client.inner.arm.send(Call::get(ID, "v")));
    for outcome in futures_util::future::join_all(calls).await {
        outcome.unwrap();
    }
    assert_eq!(service.token_requests().len(), 2);
}

#[tokio::test]
async fn pages_are_followed_on_the_own_host_alone() {
    let next = format!("{HOST}/subscriptions/s/providers?api-version=v&$skiptoken=2");
    let service = ScriptedService::new([
        Reply::json(200, json!({"value": [{"n": 1}], "nextLink": next})),
        Reply::json(200, json!({"value": [{"n": 2}], "nextLink": null})),
    ]);
    let client = service.client();
    let listed = client.inner.arm.list("/subscriptions/s/providers", "v", &[], None).await.unwrap();
    assert_eq!(listed, [json!({"n": 1}), json!({"n": 2})]);
    assert_eq!(service.sent()[1].query, "api-version=v&$skiptoken=2");
    for elsewhere in [
        "https://evil.example/x",
        "http://management.azure.com/x",
        "https://management.azure.com:444/x",
        "/x",
        "x:",
    ] {
        let service = ScriptedService::new([Reply::json(200, json!({"value": [], "nextLink": elsewhere}))]);
        let client = service.client();
        let error = client.inner.arm.list("/subscriptions/s/providers", "v", &[], None).await.unwrap_err();
        assert!(error.to_string().contains("refers to another host"), "{error}");
        assert_eq!(service.sent().len(), 1, "{elsewhere}");
    }
}

#[tokio::test]
async fn a_list_without_an_end_is_given_up() {
    let next = format!("{HOST}/subscriptions/s/providers?api-version=v");
    let service = ScriptedService::by(move |_| Reply::json(200, json!({"value": [], "nextLink": next})));
    let client = service.client();
    let error = client.inner.arm.list("/subscriptions/s/providers", "v", &[], None).await.unwrap_err();
    assert!(error.to_string().contains("more than 500 pages"), "{error}");
}

#[tokio::test]
async fn an_id_cannot_lead_to_another_resource() {
    let service = ScriptedService::new([]);
    let client = service.client();
    for id in [
        "/subscriptions/s/resourceGroups/..",
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkSecurityGroups/..",
        "/subscriptions/s/resourceGroups/%2e%2e",
        "/subscriptions/s/resourceGroups/g\\..\\h",
        "/subscriptions/s/resourceGroups/g?x=y",
        "/subscriptions/s/resourceGroups/g#x",
        "/subscriptions/s/resourceGroups/g\n",
    ] {
        let id: ResourceId = id.parse().unwrap();
        let error = client.get(&id).await.unwrap_err();
        assert!(matches!(&error, CloudError::Invalid { code, .. } if code == "InvalidResourceId"), "{error}");
    }
    assert_eq!(service.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_post_is_awaited_and_the_post_is_sent_once() {
    let path = "/subscriptions/s/resourceGroups/ours/providers/Microsoft.ContainerRegistry/registries/images/generateCredentials";
    let result = format!(
        "{HOST}/subscriptions/s/providers/Microsoft.ContainerRegistry/locations/l/operationResults/1"
    );
    let accepted = || Reply::json(202, json!(null)).with("location", &result);
    let service = ScriptedService::new([
        accepted(),
        Reply::error(404, "OperationNotFound"),
        accepted().with("retry-after", "0"),
        Reply::json(200, json!({"username": "t"})),
    ]);
    let client = service.client();
    let answer = client.inner.arm.post_for_result(path, "v", &json!({})).await.unwrap();
    assert_eq!(answer, json!({"username": "t"}));
    assert_eq!(service.sent().iter().filter(|it| it.method == "POST").count(), 1);

    let failed = [accepted(), Reply::error(409, "CredentialsInvalid")];
    let service = ScriptedService::new(failed);
    let error = service.client().inner.arm.post_for_result(path, "v", &json!({})).await.unwrap_err();
    assert!(error.to_string().contains("CredentialsInvalid"), "{error}");

    let url = result.clone();
    let service = ScriptedService::by(move |_| Reply::json(202, json!(null)).with("location", &url));
    let error = service.client().inner.arm.post_for_result(path, "v", &json!({})).await.unwrap_err();
    assert!(error.to_string().contains("no result within 45 s"), "{error}");
    assert_eq!(service.sent().iter().filter(|it| it.method == "POST").count(), 1);

    // An operation that is unknown for long is lost, and its result with it; the caller may begin anew.
    let url = result.clone();
    let service = ScriptedService::by(move |sent| match sent.method.as_str() {
        "POST" => Reply::json(202, json!(null)).with("location", &url),
        _ => Reply::error(404, "OperationNotFound"),
    });
    let error = service.client().inner.arm.post_for_result(path, "v", &json!({})).await.unwrap_err();
    assert!(matches!(error, CloudError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("its operation has vanished"), "{error}");
    assert_eq!(service.sent().iter().filter(|it| it.method == "POST").count(), 1);

    let elsewhere = Reply::json(202, json!(null)).with("location", "https://evil.example/x");
    let service = ScriptedService::new([elsewhere]);
    let error = service.client().inner.arm.post_for_result(path, "v", &json!({})).await.unwrap_err();
    assert!(error.to_string().contains("refers to another host"), "{error}");
}

#[tokio::test]
async fn a_page_of_a_proxy_is_one_sentence() {
    let page = "<!DOCTYPE html><html><head><title>Blocked by Contoso</title></head></html>";
    for status in [200, 302, 403, 407] {
        let service = ScriptedService::new([Reply::text(status, page)]);
        let client = service.client();
        let error = client.inner.arm.find(ID, "v", &[]).await.unwrap_err();
        assert!(matches!(error, CloudError::UnexpectedResponse { .. }), "{error}");
        let shown = error.to_string();
        assert!(shown.starts_with(&format!("the cloud's response to GET {ID} ({status}")), "{shown}");
        assert!(shown.contains("an HTML page titled 'Blocked by Contoso', perhaps of a proxy"), "{shown}");
    }
}

#[tokio::test]
async fn neither_tokens_nor_bodies_show() {
    let service = ScriptedService::new([Reply::json(200, json!({"value": "issued-once"}))]);
    let client = service.client();
    let body = json!({"password": SECRET});
    let call = Call { token: Some("token-x"), body: Some(&body), ..Call::new(Method::Put, ID, "v") };
    let answer = client.inner.arm.send(call).await.unwrap();
    let shown = format!("{call:?} {answer:?} {client:?} {:?} {:?}", client.inner.arm, settings());
    for secret in ["token-x", "token-1", SECRET, "issued-once"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}
