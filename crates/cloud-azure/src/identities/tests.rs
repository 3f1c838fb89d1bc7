//! Tests of the identities role.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::*;
use crate::settings::Settings;
use crate::testing::{Reply, ScriptedService, Sent, settings};

const ROLE: &str = "b24988ac-6180-42a0-ab88-20f7382dd24c";

fn group() -> ResourceId {
    ResourceId::group("s", "g")
}

fn assignment() -> RoleAssignment {
    RoleAssignment { name: "a".to_owned(), principal: "p".to_owned(), role: ROLE.to_owned(), scope: group() }
}

fn token(claims: &Value) -> Reply {
    let text = format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims.to_string()));
    Reply::json(200, json!({"token_type": "Bearer", "expires_in": 3600, "access_token": text}))
}

#[tokio::test]
async fn a_principal_is_read_from_its_token() {
    let claims =
        json!({"oid": "o", "tid": "t", "appid": "app", "roles": ["Application.Read.All"], "aud": "x"});
    let service = ScriptedService::new([]).with_token_replies([token(&claims)]);
    let principal = service.client().principal(&Credential::Service).await.unwrap();
    assert_eq!(
        (principal.client_id.as_str(), principal.object_id.as_str(), principal.tenant_id.as_str()),
        ("app", "o", "t")
    );
    assert_eq!(principal.claims, ["appid", "aud", "oid", "roles", "tid"]);
    assert_eq!(principal.directory_roles, ["Application.Read.All"]);
    let service = ScriptedService::new([]);
    let error = service.client().principal(&Credential::Service).await.unwrap_err();
    assert!(matches!(error, CloudError::UnexpectedResponse { .. }), "{error}");
}

#[tokio::test]
async fn an_assignment_that_exists_is_done_and_one_of_another_content_is_not() {
    for (reply, is_done) in [
        (Reply::json(201, json!({})), true),
        (Reply::json(200, json!({})), true),
        (Reply::error(409, "RoleAssignmentExists"), true),
        (Reply::error(409, "RoleAssignmentUpdateNotPermitted"), false),
        (Reply::error(400, "RoleAssignmentUpdateNotPermitted"), false),
        (Reply::error(403, "AuthorizationFailed"), false),
    ] {
        let service = ScriptedService::new([reply.clone()]);
        let outcome = service.client().assign_role(&assignment()).await;
        assert_eq!(outcome.is_ok(), is_done, "{reply:?}");
        let sent = &service.sent()[0];
        let name = sent.path.rsplit('/').next().unwrap();
        assert_eq!(name, assignment_guid("a").to_string());
        let properties = &sent.json()["properties"];
        assert_eq!(
            properties["roleDefinitionId"],
            format!("/subscriptions/s/{AUTHORIZATION}/roleDefinitions/{ROLE}")
        );
        assert_eq!(
            (&properties["principalId"], &properties["principalType"]),
            (&json!("p"), &json!("ServicePrincipal"))
        );
    }
}

#[tokio::test]
async fn a_principal_that_is_not_visible_yet_is_waited_for() {
    let service = ScriptedService::new([Reply::error(400, "PrincipalNotFound")]);
    let error = service.client().assign_role(&assignment()).await.unwrap_err();
    assert!(matches!(error, CloudError::Busy { .. }), "{error}");
}

#[tokio::test]
async fn an_assignment_whose_response_was_lost_has_the_same_name_again() {
    let service = ScriptedService::new([Reply::Broken, Reply::json(200, json!({}))]);
    service.client().assign_role(&assignment()).await.unwrap();
    let lines = service.lines();
    assert_eq!(lines[0], lines[1]);
}

#[tokio::test]
async fn a_role_is_looked_up_by_its_name_once() {
    let id = format!("/subscriptions/s/{AUTHORIZATION}/roleDefinitions/{ROLE}");
    let listed = json!({"value": [{"id": id, "name": ROLE, "properties": {"roleName": "Contributor"}}]});
    let gone = Reply::error(400, "RoleDefinitionDoesNotExist");
    let service = ScriptedService::new([
        Reply::json(200, listed.clone()),
        Reply::json(201, json!({})),
        gone,
        Reply::json(200, listed),
        Reply::json(201, json!({})),
    ]);
    let client = service.client();
    let by_name = RoleAssignment { role: "contributor".to_owned(), ..assignment() };
    client.assign_role(&by_name).await.unwrap();
    assert_eq!(service.sent()[0].query, "api-version=2022-04-01&$filter=roleName%20eq%20%27contributor%27");
    // A role that is gone is looked up again the next time.
    assert!(client.assign_role(&by_name).await.unwrap_err().is_not_found());
    client.assign_role(&by_name).await.unwrap();
    let service = ScriptedService::new([Reply::json(200, json!({"value": []}))]);
    assert!(service.client().assign_role(&by_name).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn inherited_assignments_are_left_out() {
    let listed = |name: &str, scope: &str| {
        json!({"name": name, "properties":
        {"scope": scope, "principalId": "p", "roleDefinitionId": format!("/x/{ROLE}")}})
    };
    let below = format!("{}/providers/Microsoft.Network/virtualNetworks/v", group());
    let value = json!({"value": [listed("own", "/subscriptions/S/resourcegroups/G"), listed("above", "/subscriptions/s"),
        listed("below", &below), listed("other", "/subscriptions/s/resourceGroups/gg")]});
    let definitions =
        json!({"value": [{"name": ROLE.to_uppercase(), "properties": {"roleName": "Contributor"}}]});
    let service = ScriptedService::new([Reply::json(200, value), Reply::json(200, definitions)]);
    let found = service.client().role_assignments(&group()).await.unwrap();
    let names: Vec<(&str, &str)> = found.iter().map(|it| (it.name.as_str(), it.role.as_str())).collect();
    assert_eq!(names, [("own", "Contributor"), ("below", "Contributor")]);
    let service = ScriptedService::new([Reply::error(404, "ResourceGroupNotFound")]);
    assert_eq!(service.client().role_assignments(&group()).await.unwrap(), []);
}

#[tokio::test]
async fn removing_what_is_not_there_succeeds() {
    for reply in [
        Reply::json(204, Value::Null),
        Reply::error(404, "RoleAssignmentNotFound"),
        Reply::json(200, json!({})),
    ] {
        ScriptedService::new([reply.clone()]).client().revoke_role(&group(), "a").await.unwrap();
        ScriptedService::new([reply]).client().delete_role_definition(&group(), ROLE).await.unwrap();
    }
}

#[tokio::test]
async fn permissions_of_a_customer_are_asked_with_its_token() {
    let permissions = json!({"value": [{"actions": ["*/read", "a/*"], "notActions": ["a/secret"]}]});
    let deny = json!({"value": [{"properties": {"scope": "/subscriptions/s", "permissions": [{"actions": ["*/write"]}],
        "principals": [{"id": "00000000-0000-0000-0000-000000000000"}], "excludePrincipals": []}}]});
    // Both are read at the same time.
    let service = ScriptedService::by(move |sent| match sent.path.rsplit('/').next() {
        Some("permissions") => Reply::json(200, permissions.clone()),
        _ => Reply::json(200, deny.clone()),
    })
    .with_token_replies([token(&json!({"oid": "customer"}))]);
    let credential =
        Credential::Client { client_id: "c".to_owned(), secret: api::secret::Secret::new("x".to_owned()) };
    let found =
        service.client().permissions(&credential, &group(), &["A/Read", "a/write", "a/secret", "b/do"]).await;
    let allowed: Vec<(String, bool)> = found.unwrap().into_iter().map(|it| (it.action, it.allowed)).collect();
    let expect = [("A/Read", true), ("a/write", false), ("a/secret", false), ("b/do", false)];
    assert_eq!(allowed, expect.map(|(action, allowed)| (action.to_owned(), allowed)));
    let sent = service.sent();
    let token_for = |last: &str| {
        let of: Vec<&Sent> = sent.iter().filter(|it| it.path.ends_with(last)).collect();
        assert_eq!(of.len(), 1, "{last}");
        of[0].header("authorization").to_owned()
    };
    assert!(token_for("/permissions").starts_with("Bearer e30."));
    assert_eq!(token_for("/denyAssignments"), "Bearer token-2");
    // Without any right, nothing is allowed.
    let denied = [Reply::error(403, "AuthorizationFailed"), Reply::error(403, "AuthorizationFailed")];
    let service = ScriptedService::new(denied);
    let found = service.client().permissions(&Credential::Service, &group(), &["a/read"]).await.unwrap();
    assert!(!found[0].allowed);
}

#[tokio::test]
async fn permissions_of_an_identity_are_those_of_its_roles_at_the_scope() {
    let identity = group().sibling("Microsoft.ManagedIdentity", "userAssignedIdentities", "i");
    let definition = |name: &str| format!("/subscriptions/s/{AUTHORIZATION}/roleDefinitions/{name}");
    let assigned = move |scope: &str, role: &str| json!({"properties": {"scope": scope, "roleDefinitionId": definition(role)}});
    let below = format!("{}/providers/Microsoft.Network/virtualNetworks/v", group());
    let service = ScriptedService::by(move |sent| match sent.path.rsplit('/').next().unwrap() {
        "i" => {
            Reply::json(200, json!({"properties": {"principalId": "o", "clientId": "c", "tenantId": "t"}}))
        }
        "roleAssignments" => {
            assert!(sent.query.contains("assignedTo"), "{}", sent.query);
            Reply::json(
                200,
                json!({"value": [assigned("/subscriptions/s", "reader"), assigned(&below, "owner"), assigned("/", "gone")]}),
            )
        }
        "reader" => Reply::json(200, json!({"properties": {"permissions": [{"actions": ["*/read"]}]}})),
        "owner" => panic!("a role below the scope is asked for"),
        "denyAssignments" => Reply::json(200, json!({"value": []})),
        _ => Reply::error(404, "RoleDefinitionDoesNotExist"),
    });
    let client = service.client();
    let found =
        client.permissions(&Credential::Identity(identity.clone()), &group(), &["a/read", "a/write"]).await;
    let allowed: Vec<bool> = found.unwrap().into_iter().map(|it| it.allowed).collect();
    assert_eq!(allowed, [true, false]);
    let principal = client.principal(&Credential::Identity(identity)).await.unwrap();
    assert_eq!((principal.object_id.as_str(), principal.client_id.as_str()), ("o", "c"));
}

#[tokio::test]
async fn permissions_in_a_subscription_are_those_of_roles_at_it_and_above() {
    let definition = |name: &str| format!("/providers/Microsoft.Authorization/roleDefinitions/{name}");
    let assigned = move |scope: &str, role: &str| json!({"properties": {"scope": scope, "roleDefinitionId": definition(role)}});
    let service = ScriptedService::by(move |sent| {
        if let Some(role) = sent.path.strip_prefix("/providers/Microsoft.Authorization/roleDefinitions/") {
            assert_ne!(role, "owner", "a role of a group is asked for");
            let actions = if role == "reader" { json!(["*/read"]) } else { json!(["a/write", "a/delete"]) };
            return Reply::json(200, json!({"properties": {"permissions": [{"actions": actions}]}}));
        }
        assert!(
            sent.path.starts_with("/subscriptions/s/providers/Microsoft.Authorization/"),
            "{}",
            sent.path
        );
        let value = match sent.path.rsplit('/').next().unwrap() {
            "roleAssignments" => {
                assert!(sent.query.contains("assignedTo%28%27o%27%29"), "{}", sent.query);
                json!([
                    assigned("/providers/Microsoft.Management/managementGroups/corp", "reader"),
                    assigned("/subscriptions/S", "writer"),
                    assigned("/subscriptions/s/resourceGroups/g", "owner"),
                ])
            }
            _ => json!([{"properties": {"scope": "/subscriptions/s", "principals": [{"id": "o"}],
                "permissions": [{"actions": ["a/delete"]}]}}]),
        };
        Reply::json(200, json!({ "value": value }))
    })
    .with_token_replies([token(&json!({"oid": "o"}))]);
    let actions = ["b/read", "a/write", "a/delete", "b/write"];
    let found = service.client().subscription_permissions("s", &actions).await.unwrap();
    let allowed: Vec<bool> = found.into_iter().map(|it| it.allowed).collect();
    assert_eq!(allowed, [true, true, false, false]);
}

#[tokio::test]
async fn a_certificate_of_an_identity_comes_from_the_identity_service() {
    let identity = group().sibling("Microsoft.ManagedIdentity", "userAssignedIdentities", "i");
    let error = ScriptedService::new([]).client().identity_certificate(&identity).await.unwrap_err();
    assert!(error.to_string().starts_with("setting identity_service: it is not set"), "{error}");
    let pem = "-----BEGIN PRIVATE KEY-----\nk\n-----END PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\nc\n-----END CERTIFICATE-----\n";
    let issued = |secret: &[u8]| {
        json!({"explicit_identities": [{"resource_id": identity.as_str().to_uppercase(),
        "client_secret": STANDARD.encode(secret), "not_before": "2026-01-01T00:00:00Z", "not_after": "2026-04-01T00:00:00Z"}]})
    };
    let settings =
        || Settings { identity_service: Some("https://identities.example/x".to_owned()), ..settings() };
    let service = ScriptedService::new([Reply::json(200, issued(pem.as_bytes()))]);
    let found = service.client_with(settings()).identity_certificate(&identity).await.unwrap();
    assert!(found.chain_pem.contains("\nc\n") && found.key_pem.expose().contains("\nk\n"));
    assert_eq!(found.certificate.not_after, "2026-04-01T00:00:00Z".parse().ok());
    let sent = &service.sent()[0];
    assert_eq!((sent.origin.as_str(), sent.path.as_str()), ("https://identities.example", "/x"));
    assert_eq!(sent.query, "api-version=2024-01-01");
    assert_eq!(sent.json(), json!({"identityIds": [identity]}));
    assert!(service.token_requests()[0].text.contains("serviceidentity.azure.net"));
    // A key that cannot be read is in no error.
    let service = ScriptedService::new([Reply::json(200, issued(b"\xff\xfesecret"))]);
    let error = service.client_with(settings()).identity_certificate(&identity).await.unwrap_err();
    assert!(error.to_string().contains("PKCS#12") && !format!("{error:?}").contains("secret"), "{error}");
}
