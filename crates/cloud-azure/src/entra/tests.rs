//! Tests of token requests: credentials on the wire, and errors by their codes.

use api::secret::Secret;
use cloud::{CloudError, Credential, Identities as _};
use serde_json::json;

use crate::settings::{ServiceCredential, Settings};
use crate::testing::{Reply, SECRET, ScriptedService, Sent, settings};

/// The error of a call whose token request has this response.
async fn rejected(settings: Settings, reply: Reply) -> CloudError {
    let service = ScriptedService::new([]).with_token_replies([reply]);
    let client = service.client_with(settings);
    client.principal(&Credential::Service).await.unwrap_err()
}

fn entra(status: u16, error: &str, code: u64) -> Reply {
    let description = format!(
        "AADSTS{code}: A text with \"quotes\".\r\nTrace ID: t\r\nclient_secret={SECRET}\r\nTimestamp: x"
    );
    let body = json!({"error": error, "error_description": description, "error_codes": [code],
        "timestamp": "2026-11-18 10:00:00Z", "trace_id": "t", "correlation_id": "c"});
    Reply::json(status, body)
}

fn field(sent: &Sent, name: &str) -> String {
    let pairs = sent.text.split('&').filter_map(|it| it.split_once('='));
    let value = pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next().unwrap_or_default();
    percent_encoding::percent_decode_str(value).decode_utf8().unwrap().into_owned()
}

#[tokio::test]
async fn the_numeric_code_decides() {
    let check = async |status, error, code, expect: &str| {
        let found = rejected(settings(), entra(status, error, code)).await;
        let shown = found.to_string();
        assert_eq!(shown, expect);
        assert!(!shown.contains(SECRET) && !format!("{found:?}").contains(SECRET), "{found:?}");
    };
    check(401, "invalid_client", 7_000_215, "the credential of app was not accepted: AADSTS7000215: the client secret is wrong or missing; give the current secret").await;
    check(401, "invalid_client", 7_000_222, "the credential of app was not accepted: AADSTS7000222: the client secret has expired; add a new one to the application and give it").await;
    check(400, "unauthorized_client", 700_016, "the credential of app was not accepted: AADSTS700016: the application is not in tenant 'contoso.com'; check client id and tenant").await;
    check(401, "invalid_client", 700_027, "the credential of app was not accepted: AADSTS700027: the certificate is not registered with the application; register it, or give its current one").await;
    check(400, "invalid_request", 90_002, "setting tenant_id: AADSTS90002: https://login.microsoftonline.com does not know tenant 'contoso.com'").await;
    check(400, "invalid_resource", 500_011, "setting scope: AADSTS500011: tenant 'contoso.com' does not know the audience of 'https://management.azure.com/.default'").await;
    let shown = rejected(settings(), entra(401, "invalid_client", 7_002_137)).await;
    assert!(matches!(&shown, CloudError::Busy { code, .. } if code == "AADSTS7002137"), "{shown}");
    // A code that nobody has met keeps its number and its text, without what looks like a secret.
    check(401, "invalid_client", 1, "the credential of app was not accepted: AADSTS1: AADSTS1: A text with \"quotes\". Trace ID: t client_secret=*** Timestamp: x").await;
}

#[tokio::test]
async fn what_is_no_token_is_described() {
    let page = "<html><head><title>Sign in</title></head></html>";
    for status in [200, 302, 403] {
        let error = rejected(settings(), Reply::text(status, page)).await;
        assert!(matches!(error, CloudError::UnexpectedResponse { .. }), "{error}");
        let shown = error.to_string();
        assert!(
            shown.contains("an HTML page titled 'Sign in'") && shown.contains("check setting authority"),
            "{shown}"
        );
    }
    let error = rejected(settings(), Reply::json(200, json!({"hello": "world"}))).await;
    assert!(matches!(error, CloudError::UnexpectedResponse { .. }), "{error}");
    let error = rejected(settings(), Reply::text(503, page)).await;
    assert!(matches!(error, CloudError::Unavailable { .. }), "{error}");
    let throttled = Reply::error(429, "temporarily_unavailable").with("retry-after", "3");
    let error = rejected(settings(), throttled).await;
    assert_eq!(error.retry_after(), Some(std::time::Duration::from_secs(3)));
    let error = rejected(settings(), Reply::Refused).await;
    assert_eq!(
        error.to_string(),
        "the cloud did not respond to the token request for app (no connection to https://login.microsoftonline.com; \
         check that setting authority is right and reachable)"
    );
}

#[tokio::test]
async fn a_secret_is_sent_to_the_authority_and_nowhere_else() {
    let service = ScriptedService::by(|_| Reply::json(200, json!({})));
    let client = service.client();
    let call = crate::arm::Call::get("/subscriptions/s/providers", "v");
    client.inner.arm.send(call).await.unwrap();
    client.inner.arm.send(call).await.unwrap();
    // The token is kept.
    let asked = service.token_requests();
    assert_eq!(asked.len(), 1);
    assert_eq!(field(&asked[0], "grant_type"), "client_credentials");
    assert_eq!(field(&asked[0], "client_id"), "app");
    assert_eq!(field(&asked[0], "client_secret"), SECRET);
    assert!(service.sent().iter().all(|it| !format!("{it:?}").contains(SECRET)));
}

#[tokio::test]
async fn a_workload_sends_the_present_token_of_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let token_file = directory.path().join("token");
    let credential =
        ServiceCredential::WorkloadIdentity { client_id: "app".to_owned(), token_file: token_file.clone() };
    let service = ScriptedService::by(|_| Reply::json(200, json!({})));
    let client = service.client_with(Settings { credential, ..settings() });
    let credentials = &client.inner.credentials;
    let error = credentials.token("a/.default").await.unwrap_err();
    assert!(matches!(&error, CloudError::Configuration { setting, .. } if setting == "federated_token_file"));
    for (scope, content) in [("a/.default", "first"), ("b/.default", "second")] {
        std::fs::write(&token_file, format!("{content}\n")).unwrap();
        credentials.token(scope).await.unwrap();
        let asked = service.token_requests();
        let asked = asked.last().unwrap();
        assert_eq!(field(asked, "client_assertion"), content);
        assert_eq!(
            field(asked, "client_assertion_type"),
            "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        );
    }
}

fn machine_identity(client_id: Option<&str>) -> Settings {
    let credential = ServiceCredential::ManagedIdentity { client_id: client_id.map(str::to_owned) };
    Settings { credential, ..settings() }
}

#[tokio::test]
async fn a_machine_asks_the_metadata_service() {
    // Numbers are texts there; numbers are understood too.
    for expires in [json!("4102444800"), json!(4_102_444_800_u64)] {
        let token = json!({"access_token": "t", "expires_on": expires, "expires_in": "86400",
            "resource": "https://management.azure.com", "token_type": "Bearer"});
        let service = ScriptedService::by(|_| Reply::json(200, json!({})))
            .with_token_replies([Reply::json(200, token.clone())]);
        let client = service.client_with(machine_identity(Some("identity")));
        client.inner.credentials.token("https://management.azure.com/.default").await.unwrap();
        let asked = &service.token_requests()[0];
        assert_eq!(asked.line(), "GET /metadata/identity/oauth2/token");
        assert_eq!(asked.origin, "http://169.254.169.254");
        assert_eq!(asked.header("metadata"), "true");
        assert!(asked.query.contains("client_id=identity"), "{}", asked.query);
        assert!(asked.query.contains("resource=https%3A%2F%2Fmanagement.azure.com"), "{}", asked.query);
        // Claims are no part of its protocol: the request for a new token has no body.
        client.inner.credentials.renew(0, Some("{}"));
        client.inner.credentials.token("https://management.azure.com/.default").await.unwrap_err();
        assert_eq!(service.token_requests()[1].text, "");
    }
}

#[tokio::test]
async fn errors_of_the_metadata_service_name_the_identity() {
    let missing = json!({"error": "invalid_request", "error_description": "Identity not found"});
    let error = rejected(machine_identity(Some("identity")), Reply::json(400, missing)).await;
    assert_eq!(
        error.to_string(),
        "setting client_id: invalid_request: the machine does not have the identity identity (Identity not found); \
         assign it to the machine"
    );
    for status in [404, 410, 500] {
        let error = rejected(machine_identity(None), Reply::json(status, json!({}))).await;
        assert!(matches!(error, CloudError::Unavailable { .. }), "{status} {error}");
    }
    let error = rejected(machine_identity(None), Reply::Refused).await.to_string();
    assert!(error.contains("check that this machine runs in Azure"), "{error}");
}

#[tokio::test]
async fn a_customers_secret_is_checked_each_time() {
    let service = ScriptedService::new([]).with_token_replies([
        entra(401, "invalid_client", 7_000_222),
        entra(401, "invalid_client", 7_000_222),
    ]);
    let client = service.client();
    let secret = |text: &str| Credential::Client {
        client_id: "customer".to_owned(),
        secret: Secret::new(text.to_owned()),
    };
    for _ in 0..2 {
        let error = client.principal(&secret(SECRET)).await.unwrap_err();
        assert!(
            error.to_string().starts_with("the credential of customer was not accepted: AADSTS7000222"),
            "{error}"
        );
    }
    let error = client.principal(&secret(" ")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the credential of customer was not accepted: is empty; expected the secret of the application"
    );
    assert_eq!(service.token_requests().len(), 2);
}

#[tokio::test]
async fn a_token_is_used_to_its_end_while_no_new_one_can_be_had() {
    // It expires within the time in which the library asks for a new one.
    let old = json!({"token_type": "Bearer", "expires_in": 200, "access_token": "old"});
    let ended = json!({"token_type": "Bearer", "expires_in": 5, "access_token": "ended"});
    let service = ScriptedService::new([]).with_token_replies([
        Reply::json(200, old),
        Reply::error(503, "down"),
        entra(401, "invalid_client", 7_000_222),
        Reply::json(200, ended),
        Reply::Broken,
    ]);
    let client = service.client();
    let credentials = &client.inner.credentials;
    assert_eq!(credentials.token("a/.default").await.unwrap(), "old");
    assert_eq!(credentials.token("a/.default").await.unwrap(), "old");
    // A credential that is no longer accepted is reported at once.
    assert!(matches!(credentials.token("a/.default").await, Err(CloudError::Credential { .. })));
    assert_eq!(credentials.token("a/.default").await.unwrap(), "ended");
    assert!(matches!(credentials.token("a/.default").await, Err(CloudError::Unavailable { .. })));
}
