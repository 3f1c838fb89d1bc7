//! Tests of the registry role.

use super::*;
use crate::testing::{MemoryCloud, Reply, ScriptedService};

#[test]
fn the_absent_or_older_password_is_issued() {
    let check = |passwords: Value, expect: &str| assert_eq!(next_password(&token(passwords), None), expect);
    check(json!([]), "password1");
    check(json!([at("password1", "01")]), "password2");
    check(json!([at("password1", "01"), at("password2", "02")]), "password1");
    check(json!([at("password1", "03"), at("password2", "02")]), "password2");
    check(json!([at("password1", "03"), {"name": "password2"}]), "password2");
}

#[test]
fn the_password_in_use_is_never_replaced() {
    let check = |passwords: Value, in_use: &str, expect: &str| {
        let in_use = in_use.parse().unwrap();
        assert_eq!(next_password(&token(passwords), Some(in_use)), expect);
    };
    let both = |first: &str, second: &str| json!([at("password1", first), at("password2", second)]);
    check(json!([at("password1", "02")]), "2026-01-02T00:00:00Z", "password2");
    check(both("01", "02"), "2026-01-02T00:00:00Z", "password1");
    check(both("02", "01"), "2026-01-02T00:00:00Z", "password2");
    // The response with the newer one was lost.
    check(both("03", "02"), "2026-01-02T00:00:00Z", "password1");
    check(both("02", "03"), "2026-01-02T00:00:00Z", "password2");
    // Our own clock's time was recorded.
    check(both("09", "02"), "2026-01-02T00:00:07Z", "password1");
    check(both("02", "09"), "2026-01-01T23:59:53Z", "password2");
}

fn token(passwords: Value) -> Value {
    json!({"properties": {"credentials": {"passwords": passwords}}})
}

fn at(name: &str, day: &str) -> Value {
    json!({"name": name, "creationTime": format!("2026-01-{day}T00:00:00Z")})
}

#[tokio::test]
async fn a_token_is_created_once_and_its_deletion_can_be_repeated() {
    let service = MemoryCloud::default().service();
    let client = service.client();
    assert_eq!(client.token("t").await.unwrap(), None);
    for _ in 0..2 {
        client.ensure_token("t").await.unwrap();
    }
    let puts: Vec<_> = service.sent().into_iter().filter(|it| it.method == "PUT").collect();
    assert_eq!(puts.len(), 1);
    let registry = &client.inner.settings.registry;
    assert_eq!(puts[0].path, format!("{registry}/tokens/t"));
    let expect =
        json!({"scopeMapId": format!("{registry}/scopeMaps/_repositories_pull"), "status": "enabled"});
    assert_eq!(puts[0].json()["properties"], expect);
    for _ in 0..2 {
        client.delete_token("t").await.unwrap();
    }
    // Another process was faster.
    let service =
        ScriptedService::new([Reply::error(404, "TokenNotFound"), Reply::error(409, "TokenAlreadyExists")]);
    service.client().ensure_token("t").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_password_is_asked_for_once() {
    let token =
        || Reply::json(200, json!({"properties": {"credentials": {"passwords": [{"name": "password1"}]}}}));
    for lost in [Reply::Broken, Reply::error(503, "ServiceUnavailable"), Reply::error(500, "Odd")] {
        let service = ScriptedService::new([token(), lost]);
        let error = service.client().issue_password("t", None).await.unwrap_err();
        assert!(matches!(error, CloudError::Unavailable { .. }), "{error}");
    }
    let issued = json!({"username": "t", "passwords": [{"name": "password2", "value": "issued-once", "expiry": "2027-01-01T00:00:00Z"}]});
    let service = ScriptedService::new([token(), Reply::json(200, issued)]);
    let found = service.client().issue_password("t", None).await.unwrap();
    assert_eq!(found.password.expose(), "issued-once");
    assert_eq!(found.token.expires, "2027-01-01T00:00:00Z".parse().ok());
    assert!(!format!("{found:?}").contains("issued-once"));
    let sent = service.sent()[1].json();
    assert_eq!(sent["name"], "password2");
    assert!(sent["tokenId"].as_str().unwrap().ends_with("/tokens/t"));
    let service = ScriptedService::new([token(), Reply::json(200, json!({"passwords": []}))]);
    let error = service.client().issue_password("t", None).await.unwrap_err();
    assert!(matches!(error, CloudError::UnexpectedResponse { .. }), "{error}");
    let service = ScriptedService::new([Reply::error(404, "TokenNotFound")]);
    assert!(service.client().issue_password("t", None).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn the_host_of_the_registry_is_compared_with_the_setting() {
    let of =
        |host: &str| ScriptedService::new([Reply::json(200, json!({"properties": {"loginServer": host}}))]);
    assert_eq!(of("images.azurecr.io").client().verify_host().await.unwrap(), "images.azurecr.io");
    let error = of("images.azurecr.us").client().verify_host().await.unwrap_err();
    let CloudError::Configuration { setting, why } = error else { panic!("{error}") };
    assert_eq!(setting, "registry_suffix");
    assert!(why.contains("images.azurecr.io") && why.contains("'images.azurecr.us'"), "{why}");
    let service = ScriptedService::new([Reply::error(404, "ResourceNotFound")]);
    assert!(service.client().verify_host().await.unwrap_err().is_not_found());
}
