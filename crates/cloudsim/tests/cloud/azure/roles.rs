//! Credentials, rights and tokens of the registry.

use cloud::{Credential, Identities as _, Machines as _, Registry as _, RoleAssignment, RoleDefinition};
use cloudsim::settings::{Denial, PrincipalWithSecret, Rights, Setting};
use cloudsim::{CloudFault, FaultRule, FaultTiming};
use jiff::Timestamp;
use rsa::pkcs8::{EncodePrivateKey as _, LineEnding};

use super::*;

const ACTION: &str = "Microsoft.Network/virtualNetworks/read";

impl AzureEnvironment {
    async fn principal(&self, name: &str) -> PrincipalWithSecret {
        self.emulator.cloud.create_principal(name, Rights::ByRoles).await.unwrap()
    }

    async fn arrange(&self, setting: Setting) {
        self.emulator.cloud.arrange(setting).await.unwrap();
    }
}

/// The error of a client whose credential is not accepted, in one line.
async fn rejected(client: &AzureClient) -> String {
    let error = client.principal(&Credential::Service).await.unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

#[tokio::test]
async fn credentials_that_are_not_accepted_say_what_would_help() {
    let environment = AzureEnvironment::new().await;
    let PrincipalWithSecret { principal, secret } = environment.principal("customer").await;
    let client = environment.client_of(&principal.client_id, &secret);
    let found = client.principal(&Credential::Service).await.unwrap();
    assert_eq!((&found.client_id, &found.object_id), (&principal.client_id, &principal.object_id));

    let wrong = environment.client_of(&principal.client_id, &Secret::new("not-the-secret".to_owned()));
    let shown = rejected(&wrong).await;
    assert!(shown.contains("AADSTS7000215") && !shown.contains("not-the-secret"), "{shown}");
    let unknown = environment.client_of("00000000-1111-2222-3333-444444444444", &secret);
    let shown = rejected(&unknown).await;
    assert!(shown.contains("AADSTS700016") && shown.contains("check client id and tenant"), "{shown}");
    let elsewhere = environment.client(|it| it.tenant_id = "99999999-9999-9999-9999-999999999999".to_owned());
    let shown = rejected(&elsewhere).await;
    assert!(shown.starts_with("setting tenant_id: AADSTS90002"), "{shown}");
    let expired = Setting::SecretExpiry {
        client_id: principal.client_id.clone(),
        expires: Some(Timestamp::UNIX_EPOCH),
    };
    environment.arrange(expired).await;
    let shown = rejected(&environment.client_of(&principal.client_id, &secret)).await;
    assert!(shown.contains("AADSTS7000222") && shown.contains("has expired"), "{shown}");
    let nobody = environment.client(|it| it.authority = "https://localhost:1".to_owned());
    let shown = rejected(&nobody).await;
    assert!(shown.contains("no connection to https://localhost:1; check that setting authority"), "{shown}");
    // An authority of certificates that did not issue the emulator's.
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap().cert.pem();
    let shown = rejected(&environment.client(|it| it.ca_pem = Some(other))).await;
    assert!(shown.contains("is not trusted; check settings authority and ca_file"), "{shown}");
}

#[tokio::test]
async fn a_certificate_is_a_credential() {
    let environment = AzureEnvironment::new().await;
    let principal = environment.principal("with-certificate").await.principal;
    let key = rsa::RsaPrivateKey::new(&mut rsa::rand_core::OsRng, 2048).unwrap();
    let key = key.to_pkcs8_pem(LineEnding::LF).unwrap().to_string();
    let params = rcgen::CertificateParams::new(vec!["app".to_owned()]).unwrap();
    let certificate = params.self_signed(&rcgen::KeyPair::from_pem(&key).unwrap()).unwrap().pem();
    let client = environment.client(|it| {
        it.credential = ServiceCredential::ClientCertificate {
            client_id: principal.client_id.clone(),
            pem: Secret::new(format!("{certificate}{key}")),
        };
    });
    let shown = rejected(&client).await;
    assert!(shown.contains("AADSTS700027"), "{shown}");
    let client_id = principal.client_id.clone();
    environment.arrange(Setting::PrincipalCertificate { client_id, certificate }).await;
    let found = client.principal(&Credential::Service).await.unwrap();
    assert_eq!(found.object_id, principal.object_id);
}

#[tokio::test]
async fn the_token_of_a_service_account_is_a_credential() {
    use base64::Engine as _;
    let environment = AzureEnvironment::new().await;
    let principal = environment.principal("workload").await.principal;
    let (issuer, subject) = ("https://issuer.example", "system:serviceaccount:ns:operator");
    let part =
        |value: serde_json::Value| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value.to_string());
    let expires = Timestamp::MAX.as_second();
    let claims = serde_json::json!({"iss": issuer, "sub": subject, "aud": "openshift", "exp": expires, "iat": 0, "nbf": 0});
    let token = format!("{}.{}.c2ln", part(serde_json::json!({"alg": "RS256", "typ": "JWT"})), part(claims));
    let directory = tempfile::tempdir().unwrap();
    let token_file = directory.path().join("token");
    std::fs::write(&token_file, format!("{token}\n")).unwrap();
    let client = environment.client(|it| {
        it.credential =
            ServiceCredential::WorkloadIdentity { client_id: principal.client_id.clone(), token_file };
    });
    // No credential accepts it yet: a new one takes its time to spread, so callers poll.
    let error = client.principal(&Credential::Service).await.unwrap_err();
    assert!(matches!(error, CloudError::Busy { .. }), "{error}");
    environment
        .arrange(Setting::FederatedCredential {
            client_id: principal.client_id.clone(),
            issuer: issuer.to_owned(),
            subject: subject.to_owned(),
            audiences: vec!["openshift".to_owned()],
        })
        .await;
    let found = client.principal(&Credential::Service).await.unwrap();
    assert_eq!(found.object_id, principal.object_id);
}

#[tokio::test]
async fn the_identity_of_a_machine_is_a_credential() {
    let environment = AzureEnvironment::new().await;
    environment.ready(&request_of(ResourceKind::ResourceGroup)).await;
    let identity = environment.ready(&request_of(ResourceKind::Identity)).await;
    let Properties::Identity { client_id: Some(client_id), principal_id: Some(object_id), .. } =
        identity.properties
    else {
        panic!("no ids")
    };
    let of = |client_id: Option<&str>| {
        let client_id = client_id.map(str::to_owned);
        environment.client(|it| it.credential = ServiceCredential::ManagedIdentity { client_id })
    };
    let client = of(Some(&client_id));
    let found = client.principal(&Credential::Service).await.unwrap();
    assert_eq!(found.object_id, object_id);
    assert!(client.get(&identity.id).await.unwrap().is_some());
    let shown = rejected(&of(Some("00000000-1111-2222-3333-444444444444"))).await;
    assert!(shown.starts_with("setting client_id: invalid_request: the machine does not have"), "{shown}");
    // A certificate of the identity, with which others prove to be it.
    let issued = environment.azure.identity_certificate(&identity.id).await.unwrap();
    assert!(issued.chain_pem.starts_with("-----BEGIN CERTIFICATE") && issued.certificate.not_after.is_some());
    let client = environment.client(|it| {
        let pem = Secret::new(format!("{}{}", issued.chain_pem, issued.key_pem.expose()));
        it.credential = ServiceCredential::ClientCertificate { client_id: client_id.clone(), pem };
    });
    assert_eq!(client.principal(&Credential::Service).await.unwrap().object_id, object_id);
}

#[tokio::test]
async fn tokens_that_live_for_seconds_are_renewed() {
    let environment = AzureEnvironment::new().await;
    environment.arrange(Setting::TokenLifetime { seconds: Some(2) }).await;
    let group = request_of(ResourceKind::ResourceGroup);
    environment.ready(&group).await;
    let started = tokio::time::Instant::now();
    while started.elapsed() < Duration::from_millis(4500) {
        environment.azure.get(&group.id).await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn assignment(principal: &str, role: &str, scope: ResourceId) -> RoleAssignment {
    RoleAssignment {
        name: format!("{principal}-{role}"),
        principal: principal.to_owned(),
        role: role.to_owned(),
        scope,
    }
}

#[tokio::test]
async fn roles_are_assigned_once_and_rights_follow() {
    let environment = AzureEnvironment::new().await;
    let azure = &environment.azure;
    environment.ready(&request_of(ResourceKind::ResourceGroup)).await;
    // Without this tag, an identity of the emulator may do everything.
    let tags = [("rights".to_owned(), "byRoles".to_owned())].into();
    let identity = environment.ready(&ResourceRequest { tags, ..request_of(ResourceKind::Identity) }).await;
    let Properties::Identity { principal_id: Some(object_id), .. } = &identity.properties else {
        panic!("no id")
    };
    let identity = Credential::Identity(identity.id.clone());
    let customer = environment.principal("customer").await;
    let credential = Credential::Client {
        client_id: customer.principal.client_id.clone(),
        secret: customer.secret.clone(),
    };
    let allowed = async |credential: &Credential, action: &str| {
        azure.permissions(credential, &group(), &[action]).await.unwrap()[0].allowed
    };
    for (credential, object_id) in [(&identity, object_id), (&credential, &customer.principal.object_id)] {
        assert!(!allowed(credential, ACTION).await);
        // A right spreads late, and the answer to its assignment may be lost.
        environment
            .inject(FaultRule::new(CloudFault::Reset { when: FaultTiming::After }).on("assignRole").times(1));
        environment
            .inject(FaultRule::new(CloudFault::DelayedPropagation { millis: 300 }).on("assignRole").times(1));
        let assignment = assignment(object_id, "Contributor", group());
        for _ in 0..2 {
            azure.assign_role(&assignment).await.unwrap();
        }
        // The same right under another name is there already.
        let again = RoleAssignment { name: "another".to_owned(), ..assignment.clone() };
        azure.assign_role(&again).await.unwrap();
        eventually("the right spreads", async || allowed(credential, ACTION).await.then_some(())).await;
        assert!(!allowed(credential, "Microsoft.Authorization/roleAssignments/write").await);
        let all = azure.role_assignments(&group()).await.unwrap();
        let own: Vec<_> = all.iter().filter(|it| it.principal == *object_id).collect();
        assert_eq!((own.len(), own[0].role.as_str()), (1, "Contributor"));
        // A denial takes it away again.
        let denial =
            Denial { who: object_id.clone(), action: "*/read".to_owned(), scope: group(), until: None };
        environment.emulator.cloud.deny(denial).await.unwrap();
        assert!(!allowed(credential, ACTION).await);
        assert!(allowed(credential, "Microsoft.Network/virtualNetworks/write").await);
        for _ in 0..2 {
            azure.revoke_role(&group(), &own[0].name).await.unwrap();
        }
        assert!(!azure.role_assignments(&group()).await.unwrap().iter().any(|it| it.principal == *object_id));
    }
    let nobody = assignment(object_id, "No Such Role", group());
    assert!(azure.assign_role(&nobody).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_role_is_defined_and_deleted() {
    let environment = AzureEnvironment::new().await;
    let azure = &environment.azure;
    environment.ready(&request_of(ResourceKind::ResourceGroup)).await;
    let role = RoleDefinition {
        id: "5d2f8f1e-6d2b-4a1f-9d7e-0a5f3b7c1d2e".to_owned(),
        name: "Cluster Operator".to_owned(),
        actions: vec!["Microsoft.Network/*/read".to_owned()],
        assignable_scopes: vec![group().to_string()],
        ..RoleDefinition::default()
    };
    for _ in 0..2 {
        azure.put_role_definition(&role).await.unwrap();
    }
    let all = azure.role_definitions(&group()).await.unwrap();
    assert!(all.contains(&role));
    assert!(all.iter().any(|it| it.name == "Owner" && it.built_in));
    for _ in 0..2 {
        azure.delete_role_definition(&group(), &role.id).await.unwrap();
    }
}

#[tokio::test]
async fn the_role_with_the_least_privilege_suffices_for_a_life() {
    let mut environment = AzureEnvironment::new().await;
    environment.ready(&request_of(ResourceKind::ResourceGroup)).await;
    let registry: ResourceId = environment.endpoints.registry.parse().unwrap();
    let scopes: Vec<String> =
        [&group(), &registry].map(|it| format!("/subscriptions/{}", it.subscription())).to_vec();
    let definition = cloud_azure::role_definition("Shipshape", &scopes);
    let texts = |member: &str| -> Vec<String> { serde_json::from_value(definition[member].clone()).unwrap() };
    let role = RoleDefinition {
        id: "0c9d9c7e-2f0e-4d6a-8a35-1d2f3e4a5b6c".to_owned(),
        name: "Shipshape".to_owned(),
        actions: texts("Actions"),
        data_actions: texts("DataActions"),
        assignable_scopes: scopes,
        ..RoleDefinition::default()
    };
    let service = environment.principal("service").await;
    let owner = environment.azure.clone();
    owner.put_role_definition(&role).await.unwrap();
    for scope in [group(), ResourceId::group(registry.subscription(), registry.resource_group())] {
        owner.assign_role(&assignment(&service.principal.object_id, &role.id, scope)).await.unwrap();
    }
    environment.azure = environment.client_of(&service.principal.client_id, &service.secret);
    let azure = environment.azure.clone();
    // Locks and the group are of those who prepare the subscription. Operations are at the subscription, where the service has no
    // rights here: the resources decide.
    let all: Vec<ResourceRequest> = requests()
        .into_iter()
        .filter(|it| {
            let kind = it.properties.kind();
            !matches!(
                kind,
                ResourceKind::ResourceGroup | ResourceKind::Lock | ResourceKind::DiskEncryptionSet
            )
        })
        .collect();
    for request in &all {
        environment.ready(request).await;
        azure.get(&request.id).await.unwrap().unwrap();
    }
    azure.list(&group()).await.unwrap();
    let machine = azure.machines(&group()).await.unwrap().remove(0);
    azure.stop_machine(&machine.id).await.unwrap();
    azure.start_machine(&machine.id).await.unwrap();
    azure.role_assignments(&group()).await.unwrap();
    azure.permissions(&Credential::Service, &group(), &[ACTION]).await.unwrap();
    azure.ensure_token("token-x").await.unwrap();
    azure.issue_password("token-x", None).await.unwrap();
    azure.delete_token("token-x").await.unwrap();
    for request in all.iter().rev() {
        environment.gone(&request.id).await;
    }
    // And no more than that.
    let error = azure.put(request_of(ResourceKind::Lock)).await.unwrap_err();
    assert!(matches!(error, CloudError::Denied { .. }), "{error}");
}

#[tokio::test]
async fn a_registry_token_keeps_its_newer_password() {
    let environment = AzureEnvironment::new().await;
    let azure = &environment.azure;
    assert_eq!(azure.token("token-x").await.unwrap(), None);
    for verb in ["ensureToken", "token"] {
        environment.inject(FaultRule::new(CloudFault::Reset { when: FaultTiming::After }).on(verb).times(1));
    }
    azure.ensure_token("token-x").await.unwrap();
    let created = eventually("the token is there", async || azure.token("token-x").await.unwrap()).await;
    assert_eq!(created.issued, None);
    let mut passwords = Vec::new();
    for _ in 0..3 {
        let issued = azure.issue_password("token-x", None).await.unwrap();
        assert!(issued.token.issued.is_some() && issued.token.expires.is_some());
        passwords.push(issued.password.expose().clone());
        assert_eq!(azure.token("token-x").await.unwrap().unwrap().issued, issued.token.issued);
    }
    passwords.dedup();
    assert_eq!(passwords.len(), 3);
    // A lost answer is an error: the password is returned once, and a repetition of the call would replace it.
    environment
        .inject(FaultRule::new(CloudFault::Reset { when: FaultTiming::After }).on("issuePassword").times(1));
    let error = azure.issue_password("token-x", None).await.unwrap_err();
    assert!(matches!(error, CloudError::Unavailable { .. }), "{error}");
    azure.issue_password("token-x", None).await.unwrap();
    for _ in 0..2 {
        azure.delete_token("token-x").await.unwrap();
    }
    eventually("the token is gone", async || azure.token("token-x").await.unwrap().is_none().then_some(()))
        .await;
}

#[tokio::test]
async fn a_subscription_tells_its_offers_and_limits() {
    let environment = AzureEnvironment::new().await;
    let azure = &environment.azure;
    let sizes = azure.sizes(SUBSCRIPTION, LOCATION).await.unwrap();
    let size = sizes.iter().find(|it| it.name == "Standard_D8s_v5").unwrap();
    assert_eq!((size.cores, size.zones.len()), (8, 3));
    let restrict = Setting::Restrict {
        subscription: SUBSCRIPTION.to_owned(),
        location: LOCATION.to_owned(),
        size: "Standard_D8s_v5".to_owned(),
        reason: Some("NotAvailableForSubscription".to_owned()),
    };
    environment.arrange(restrict).await;
    let sizes = azure.sizes(SUBSCRIPTION, LOCATION).await.unwrap();
    let size = sizes.iter().find(|it| it.name == "Standard_D8s_v5").unwrap();
    assert!(
        matches!(&size.availability, cloud::Availability::Restricted(it) if it.reason == "NotAvailableForSubscription")
    );
    let usages = azure.usages(SUBSCRIPTION, LOCATION).await.unwrap();
    for quota in ["cores", "PublicIPAddresses"] {
        assert!(usages.iter().any(|it| it.quota == quota && it.limit > 0), "{quota}");
    }
    let provider = |registered| Setting::Provider {
        subscription: SUBSCRIPTION.to_owned(),
        namespace: "Microsoft.Compute".to_owned(),
        registered,
    };
    environment.arrange(provider(false)).await;
    let is_registered = async || {
        let all = azure.providers(SUBSCRIPTION).await.unwrap();
        all.iter().find(|it| it.namespace == "Microsoft.Compute").unwrap().registered
    };
    assert!(!is_registered().await);
    environment.ready(&request_of(ResourceKind::ResourceGroup)).await;
    let error = azure.put(request_of(ResourceKind::Disk)).await.unwrap_err();
    assert!(
        matches!(&error, CloudError::Invalid { code, .. } if code == "MissingSubscriptionRegistration"),
        "{error}"
    );
    azure.register_provider(SUBSCRIPTION, "Microsoft.Compute").await.unwrap();
    eventually("the provider is registered", async || is_registered().await.then_some(())).await;
    assert_eq!(azure.feature(SUBSCRIPTION, "Microsoft.Compute/NoSuchThing").await.unwrap(), None);
    let feature = "Microsoft.Compute/EncryptionAtHost";
    let set = Setting::Feature {
        subscription: SUBSCRIPTION.to_owned(),
        feature: feature.to_owned(),
        registered: Some(false),
    };
    environment.arrange(set).await;
    assert_eq!(azure.feature(SUBSCRIPTION, feature).await.unwrap(), Some(false));
    azure.register_feature(SUBSCRIPTION, feature).await.unwrap();
    eventually("the feature is registered", async || {
        azure.feature(SUBSCRIPTION, feature).await.unwrap().filter(|it| *it)
    })
    .await;
}

#[tokio::test]
async fn lists_of_many_pages_are_read_to_their_end() {
    let environment = AzureEnvironment::new().await;
    environment.ready(&request_of(ResourceKind::ResourceGroup)).await;
    environment.arrange(Setting::PageSize { items: 2 }).await;
    for number in 0..7 {
        let id = network("publicIPAddresses", &format!("address-{number}"));
        environment.ready(&ResourceRequest { id, ..request_of(ResourceKind::PublicIp) }).await;
    }
    assert_eq!(environment.azure.list(&group()).await.unwrap().len(), 7);
}
