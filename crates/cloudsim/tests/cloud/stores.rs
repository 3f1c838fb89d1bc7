//! The vault and the registry.

use api::clock::{Clock as _, ManualClock};
use cloud::{CertificateSpec, CloudError, Identities as _, Registry as _, Vault as _};
use jiff::{SignedDuration, Timestamp};

use crate::environment::Environment;

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

async fn with_clock(pace: f64) -> (Environment, std::sync::Arc<ManualClock>) {
    let clock = ManualClock::at(now());
    (Environment::with(cloudsim::Options { clock: clock.clone(), pace, ..Default::default() }).await, clock)
}

fn days(count: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * count)
}

#[tokio::test]
async fn a_certificate_is_issued_after_a_while_and_renewed_once_for_each_request() {
    let (environment, clock) = with_clock(1.0).await;
    let spec = CertificateSpec {
        name: "one-apiserver".to_owned(),
        dns_names: vec!["api.one.example.test".to_owned()],
    };
    let asked = environment.cloud.azure().ensure_certificate(&spec).await.unwrap();
    assert_eq!((asked.version, asked.issuing), (None, true));
    assert!(environment.cloud.azure().certificate(&spec.name).await.unwrap().is_none());
    clock.advance(SignedDuration::from_mins(1));
    let first = environment.cloud.azure().certificate(&spec.name).await.unwrap().unwrap();
    let (begins, stops) = (first.certificate.not_before.unwrap(), first.certificate.not_after.unwrap());
    assert_eq!(stops.duration_since(begins), days(92));
    assert_eq!(first.chain_pem.matches("BEGIN CERTIFICATE").count(), 2);
    assert!(first.key_pem.expose().contains("PRIVATE KEY"));
    let version = first.certificate.version.clone();
    assert_eq!(environment.cloud.azure().ensure_certificate(&spec).await.unwrap().version, version);

    for _ in 0..3 {
        let asked =
            environment.cloud.azure().renew_certificate(&spec.name, version.as_deref()).await.unwrap();
        assert_eq!((asked.version, asked.issuing), (version.clone(), true));
    }
    clock.advance(SignedDuration::from_mins(1));
    let second = environment.cloud.azure().certificate(&spec.name).await.unwrap().unwrap();
    assert_ne!(second.certificate.version, version);
    assert_ne!(second.chain_pem, first.chain_pem);
    // The one that is newer than the caller's is there already.
    let asked = environment.cloud.azure().renew_certificate(&spec.name, version.as_deref()).await.unwrap();
    assert_eq!((asked.version, asked.issuing), (second.certificate.version, false));

    environment.cloud.azure().delete_certificate(&spec.name).await.unwrap();
    environment.cloud.azure().delete_certificate(&spec.name).await.unwrap();
    assert!(environment.cloud.azure().certificate(&spec.name).await.unwrap().is_none());
    assert!(environment.cloud.azure().renew_certificate(&spec.name, None).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_certificate_is_renewed_by_itself_before_its_end_however_long_nobody_looked() {
    let (environment, clock) = with_clock(1.0).await;
    let spec = CertificateSpec { name: "one-ingress".to_owned(), dns_names: vec!["*.one.test".to_owned()] };
    environment.cloud.azure().ensure_certificate(&spec).await.unwrap();
    clock.advance(days(1));
    // Tokens expire with the clock of the cloud, so that each look is that of a new client.
    let newest = async || {
        let client = environment.cloud.reconnected().unwrap();
        client.azure().certificate(&spec.name).await.unwrap().unwrap().certificate
    };
    let first = newest().await;
    clock.advance(days(60));
    assert_eq!(newest().await, first, "it is valid for more than 30 days");
    clock.advance(days(2));
    let second = newest().await;
    assert_ne!(second.version, first.version);
    let (stops, begins) = (first.not_after.unwrap(), second.not_before.unwrap());
    assert_eq!(stops.duration_since(begins).as_hours() / 24, 30, "it was issued when it was due");
    assert_eq!(newest().await, second, "once");
    clock.advance(days(3 * 365));
    let later = newest().await;
    assert!(later.not_after.unwrap().duration_since(clock.now()) > days(29), "{later:?}");
}

#[tokio::test]
async fn certificates_are_what_they_say_and_signed_by_the_authority() {
    use x509_parser::pem::Pem;

    let (environment, _) = with_clock(0.0).await;
    let spec =
        CertificateSpec { name: "one-ingress".to_owned(), dns_names: vec!["*.apps.one.test".to_owned()] };
    environment.cloud.azure().ensure_certificate(&spec).await.unwrap();
    let issued = environment.cloud.azure().certificate(&spec.name).await.unwrap().unwrap();
    let chain: Vec<Pem> =
        Pem::iter_from_buffer(issued.chain_pem.as_bytes()).collect::<Result<_, _>>().unwrap();
    let (leaf, authority) = (chain[0].parse_x509().unwrap(), chain[1].parse_x509().unwrap());
    assert_eq!(leaf.issuer(), authority.subject());
    assert!(authority.is_ca() && !leaf.is_ca());
    let reported = issued.certificate.not_after.unwrap().as_second();
    assert_eq!(leaf.validity().not_after.timestamp(), reported);
    let names = leaf.subject_alternative_name().unwrap().unwrap();
    assert!(format!("{:?}", names.value).contains("*.apps.one.test"));
}

#[tokio::test]
async fn an_identity_gets_a_new_certificate_from_day_45_on() {
    let (environment, clock) = with_clock(0.0).await;
    environment.network().await;
    let id = crate::environment::group("net").sibling(
        "Microsoft.ManagedIdentity",
        "userAssignedIdentities",
        "one",
    );
    let properties = cloud::Properties::Identity {
        client_id: None,
        principal_id: None,
        tenant_id: None,
        federated: std::collections::BTreeMap::new(),
    };
    environment.put(id.clone(), properties).await;
    let stops = async || {
        let client = environment.cloud.reconnected().unwrap();
        client.azure().identity_certificate(&id).await.unwrap().certificate.not_after.unwrap()
    };
    let first = stops().await;
    clock.advance(days(44));
    assert_eq!(stops().await, first);
    clock.advance(days(2));
    assert_eq!(stops().await.duration_since(first), days(46));
}

#[tokio::test]
async fn secrets_have_versions_and_the_newest_is_returned() {
    let environment = Environment::new().await;
    assert!(environment.cloud.azure().secret("one").await.unwrap().is_none());
    let expires = Some(now());
    let first = environment.cloud.azure().put_secret("one", "a", None).await.unwrap();
    let second = environment.cloud.azure().put_secret("one", "b", expires).await.unwrap();
    assert_ne!(first.version, second.version);
    let found = environment.cloud.azure().secret("One").await.unwrap().unwrap();
    assert_eq!((found.value.expose().as_str(), found.version, found.expires), ("b", second.version, expires));
    environment.cloud.azure().delete_secret("one").await.unwrap();
    environment.cloud.azure().delete_secret("one").await.unwrap();
    assert!(environment.cloud.azure().secret("one").await.unwrap().is_none());
}

#[tokio::test]
async fn a_token_has_a_password_for_180_days() {
    let (environment, clock) = with_clock(0.0).await;
    assert_eq!(environment.cloud.azure().token("one-token").await.unwrap(), None);
    let made = environment.cloud.azure().ensure_token("one-token").await.unwrap();
    assert_eq!((made.issued, made.expires), (None, None));
    let issued = environment.cloud.azure().issue_password("one-token", None).await.unwrap();
    assert!(issued.token.expires.is_some(), "{:?}", issued.token);
    clock.advance(SignedDuration::from_mins(1));
    let again = environment.cloud.azure().issue_password("one-token", None).await.unwrap();
    assert_ne!(issued.password.expose(), again.password.expose());
    assert_eq!(environment.cloud.azure().ensure_token("one-token").await.unwrap(), again.token);
    assert_eq!(environment.cloud.azure().token("one-token").await.unwrap(), Some(again.token));
    environment.cloud.azure().delete_token("one-token").await.unwrap();
    environment.cloud.azure().delete_token("one-token").await.unwrap();
    assert!(environment.cloud.azure().issue_password("one-token", None).await.unwrap_err().is_not_found());
    assert!(matches!(environment.cloud.azure().ensure_token("a b").await, Err(CloudError::Invalid { .. })));
}
