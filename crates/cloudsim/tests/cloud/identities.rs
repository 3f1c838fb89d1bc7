//! Principals, permissions, roles, denials.

use std::time::Duration;

use cloud::{CloudError, Credential, Identities as _, Infrastructure as _, Properties, ResourceId};
use cloudsim::settings::{Denial, Rights, Setting};

use crate::environment::{Environment, group, network_id, request};

const JOIN: &str = "Microsoft.Network/virtualNetworks/join/action";
const READ: &str = "Microsoft.Network/virtualNetworks/read";

async fn allowed(environment: &Environment, credential: &Credential, id: &ResourceId) -> Vec<bool> {
    let answered = environment.cloud.azure().permissions(credential, id, &[READ, JOIN]).await.unwrap();
    assert_eq!(answered.iter().map(|it| it.action.as_str()).collect::<Vec<_>>(), [READ, JOIN]);
    answered.into_iter().map(|it| it.allowed).collect()
}

#[tokio::test]
async fn a_principal_proves_itself_and_has_the_rights_that_it_was_made_with() {
    let environment = Environment::new().await;
    environment.network().await;
    let made = environment.cloud.create_principal("customer", Rights::Everywhere).await.unwrap();
    let client_id = made.principal.client_id.clone();
    let credential = Credential::Client { client_id: client_id.clone(), secret: made.secret.clone() };
    let principal = environment.cloud.azure().principal(&credential).await.unwrap();
    assert_eq!(principal.client_id, client_id);
    assert!(principal.claims.iter().any(|it| it == "oid"), "{:?}", principal.claims);
    assert_eq!(principal.object_id, made.principal.object_id);
    assert_eq!(allowed(&environment, &credential, &network_id()).await, [true, true]);
    assert_eq!(allowed(&environment, &Credential::Service, &network_id()).await, [true, true]);
    assert_eq!(environment.cloud.principals().await.unwrap(), [made.principal]);

    let claims = Setting::Claims {
        client_id: client_id.clone(),
        claims: Vec::new(),
        directory_roles: vec!["Application.ReadWrite.OwnedBy".to_owned()],
    };
    environment.cloud.arrange(claims).await.unwrap();
    let principal = environment.cloud.azure().principal(&credential).await.unwrap();
    assert!(!principal.claims.iter().any(|it| it == "oid"), "{:?}", principal.claims);
    assert_eq!(principal.directory_roles, ["Application.ReadWrite.OwnedBy"]);

    let changed = environment.cloud.change_secret(&client_id).await.unwrap();
    let refused = environment.cloud.azure().principal(&credential).await;
    assert!(matches!(refused, Err(CloudError::Credential { .. })));
    let credential = Credential::Client { client_id: client_id.clone(), secret: changed.secret };
    environment.cloud.azure().principal(&credential).await.unwrap();
    environment.cloud.arrange(Setting::DeletePrincipal { client_id }).await.unwrap();
    assert!(matches!(
        environment.cloud.azure().principal(&credential).await,
        Err(CloudError::Credential { .. })
    ));
}

#[tokio::test]
async fn a_denial_holds_for_whom_it_names_until_it_ends() {
    let environment = Environment::new().await;
    environment.network().await;
    let denial = |who: &str, action: &str| Denial {
        who: who.to_owned(),
        action: action.to_owned(),
        scope: group("net"),
        until: None,
    };
    environment.cloud.deny(denial("service", "Microsoft.Network/virtualNetworks/join/action")).await.unwrap();
    assert_eq!(allowed(&environment, &Credential::Service, &network_id()).await, [true, false]);
    environment.cloud.deny(denial("service", "*/write")).await.unwrap();
    let table = group("net").sibling("Microsoft.Network", "routeTables", "routes");
    let routes = || Properties::RouteTable { routes: [].into() };
    let refused = environment.try_put(table.clone(), routes()).await;
    assert!(matches!(refused, Err(CloudError::Denied { .. })), "{refused:?}");
    environment.cloud.arrange(Setting::Allow { scope: group("net") }).await.unwrap();
    environment.put(table, routes()).await;
}

#[tokio::test]
async fn identities_have_ids_certificates_and_rights() {
    let environment = Environment::new().await;
    environment.network().await;
    let id = group("net").sibling("Microsoft.ManagedIdentity", "userAssignedIdentities", "one");
    let empty = || Properties::Identity {
        client_id: None,
        principal_id: None,
        tenant_id: None,
        federated: std::collections::BTreeMap::new(),
    };
    let credential = Credential::Identity(id.clone());
    assert!(environment.cloud.azure().principal(&credential).await.is_err());
    assert!(environment.cloud.azure().identity_certificate(&id).await.unwrap_err().is_not_found());
    let made = environment.put(id.clone(), empty()).await;
    let Properties::Identity { client_id: Some(client_id), principal_id: Some(object_id), .. } =
        made.properties
    else {
        panic!("not filled in: {made:?}")
    };
    let principal = environment.cloud.azure().principal(&credential).await.unwrap();
    assert_eq!((principal.client_id, principal.object_id), (client_id, object_id));
    assert_eq!(allowed(&environment, &credential, &network_id()).await, [true, true]);
    let mut narrow = request(id.clone(), empty());
    narrow.tags.insert("rights".to_owned(), "byRoles".to_owned());
    environment.cloud.azure().put(narrow).await.unwrap();
    assert_eq!(allowed(&environment, &credential, &network_id()).await, [false, false]);

    let issued = environment.cloud.azure().identity_certificate(&id).await.unwrap();
    let lasts = issued.certificate.not_after.unwrap().duration_since(issued.certificate.not_before.unwrap());
    assert_eq!(lasts.as_hours(), 90 * 24);
    let again = environment.cloud.azure().identity_certificate(&id).await.unwrap();
    assert_eq!(issued.certificate.version, again.certificate.version, "a fresh one is not issued again");
    assert!(Duration::try_from(lasts).is_ok());
}
