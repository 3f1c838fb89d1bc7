//! What the store keeps of operations: documents, entries of work and of the audit log hold no secret in the clear.

use api::doc::{ProvisioningState, Verb, secrets};
use api::secret::Secret;

use crate::customer;
use crate::environment::{SUBSCRIPTION, TestEnvironment};

/// The beginning of every token: the base64 of `{"typ` and `{"alg`.
const TOKENS: [&str; 2] = ["eyJ0eXAi", "eyJhbGci"];

/// A part of a secret that shows it: of keys and certificates a line, because the first ones are alike.
fn needle(secret: &[u8]) -> String {
    let text = String::from_utf8(secret.to_vec()).unwrap();
    match text.starts_with("-----BEGIN") {
        true => text.lines().nth(2).unwrap().to_owned(),
        false => text,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_keeps_no_secret_and_no_token_in_the_clear() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    let (with_principal, made) = environment.create("quiet").await;
    let (with_identities, made_too) = environment.create_workload("silent").await;
    // The cloud's answer to a wrong secret becomes the error of an operation.
    let wrong = "not-the-secret-of-anyone";
    let (document, mut given) =
        customer::prepare(&environment.cloud, SUBSCRIPTION, "wrong", environment.clock.now()).await.unwrap();
    given.insert(secrets::CLIENT_SECRET, Secret::new(wrong.as_bytes().to_vec()));
    let (_, refused) =
        customer::create(&environment.store, &document, &given, &*environment.clock).await.unwrap();
    environment.succeeds(made).await;
    environment.succeeds(made_too).await;
    let ended = environment.finished(refused).await;
    assert_eq!(ended.status, ProvisioningState::Failed);
    assert_eq!(ended.error.unwrap().code, "InvalidServicePrincipalCredentials");
    let updated = environment.change(with_principal, Verb::Update, |_| ()).await;
    environment.succeeds(updated).await;

    let mut needles: Vec<String> = TOKENS.iter().map(|it| (*it).to_owned()).collect();
    needles.push(wrong.to_owned());
    for (cluster, names) in [
        (
            with_principal,
            &[
                secrets::CLIENT_SECRET,
                secrets::REGISTRY_PASSWORD,
                secrets::KUBEADMIN_PASSWORD,
                secrets::SSH_KEY,
            ][..],
        ),
        (with_identities, &[secrets::BOUND_SIGNING_KEY, secrets::REGISTRY_PASSWORD]),
    ] {
        for name in names {
            let secret = environment.store.secret(cluster, name).await.unwrap().unwrap();
            needles.push(needle(secret.expose()));
        }
    }
    let own = std::fs::read(&environment.cloud.endpoints().client_secret_file).unwrap();
    needles.push(needle(own.trim_ascii()));
    let stored = environment.stored_bytes();
    let holds = |needle: &str| stored.windows(needle.len()).any(|it| it == needle.as_bytes());
    assert!(holds(&with_principal.to_string()), "the database is read");
    for needle in &needles {
        assert!(needle.len() >= 8 && !holds(needle), "a secret is in the store in the clear");
    }
}
