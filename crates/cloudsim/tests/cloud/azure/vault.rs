//! The vault role: every verb twice, under faults, and through the states of names that were deleted.

use std::sync::Arc;

use api::clock::ManualClock;
use cloud::{CertificateSpec, IssuedCertificate, Vault as _, VaultCertificate};
use cloudsim::settings::Rights;
use cloudsim::{CloudFault, FaultRule, FaultTiming};
use jiff::{SignedDuration, Timestamp};

use super::*;

fn spec(name: &str) -> CertificateSpec {
    let dns_names = vec![format!("api.{name}.example.org"), format!("*.apps.{name}.example.org")];
    CertificateSpec { name: name.to_owned(), dns_names }
}

fn lost() -> [CloudFault; 4] {
    let [before, after] = [FaultTiming::Before, FaultTiming::After];
    [
        CloudFault::Reset { when: after },
        CloudFault::Unavailable { when: after },
        CloudFault::Reset { when: before },
        CloudFault::Unavailable { when: before },
    ]
}

/// Repeats a call while its error is transient, as the steps of a plan do.
pub(super) async fn repeated<T>(call: impl AsyncFn() -> Result<T, CloudError>) -> T {
    eventually("the call succeeds", async || match call().await {
        Ok(done) => Some(done),
        Err(error) if error.class() == Class::Transient => None,
        Err(error) => panic!("{error}"),
    })
    .await
}

impl AzureEnvironment {
    async fn issued(&self, name: &str) -> IssuedCertificate {
        self.azure.certificate(name).await.unwrap().unwrap()
    }

    async fn version(&self, name: &str) -> Option<String> {
        self.azure.certificate(name).await.unwrap().and_then(|it| it.certificate.version)
    }

    async fn value(&self, name: &str) -> Option<String> {
        self.azure.secret(name).await.unwrap().map(|it| it.value.expose().clone())
    }
}

#[tokio::test]
async fn every_verb_of_certificates_may_be_called_twice() {
    let environment = AzureEnvironment::new().await;
    let azure = &environment.azure;
    assert!(azure.certificate("one").await.unwrap().is_none());
    assert!(azure.renew_certificate("one", None).await.unwrap_err().is_not_found());
    let first = azure.ensure_certificate(&spec("one")).await.unwrap();
    assert_eq!(azure.ensure_certificate(&spec("one")).await.unwrap(), first);
    assert_eq!(
        (first.name.as_str(), &first.dns_names, first.issuing),
        ("one", &spec("one").dns_names, false)
    );
    let issued = environment.issued("one").await;
    assert_eq!(issued.certificate, first);
    assert_eq!(environment.issued("one").await.chain_pem, issued.chain_pem);
    assert_eq!(issued.chain_pem.matches("BEGIN CERTIFICATE").count(), 2, "the certificate and its authority");
    assert!(issued.key_pem.expose().starts_with("-----BEGIN PRIVATE KEY-----"));
    // A renewal is asked for by the version that the caller has.
    let second = azure.renew_certificate("one", first.version.as_deref()).await.unwrap();
    assert_ne!(second.version, first.version);
    assert_eq!(azure.renew_certificate("one", first.version.as_deref()).await.unwrap(), second);
    assert_eq!(environment.issued("one").await.certificate, second);
    assert_eq!(azure.ensure_certificate(&spec("one")).await.unwrap(), second);
    for _ in 0..2 {
        azure.delete_certificate("one").await.unwrap();
        assert!(azure.certificate("one").await.unwrap().is_none());
    }
    // The name is that of a deleted certificate, which is purged.
    let third = azure.ensure_certificate(&spec("one")).await.unwrap();
    assert!(third.version != first.version && third.version != second.version && third.version.is_some());
}

#[tokio::test]
async fn every_verb_of_secrets_may_be_called_twice() {
    let environment = AzureEnvironment::new().await;
    let azure = &environment.azure;
    assert_eq!(environment.value("one").await, None);
    let expires: Timestamp = "2040-01-02T03:04:05Z".parse().unwrap();
    let text = "{\"text\":\"with \\\"escapes\\\"\\r\\n\"}";
    for _ in 0..2 {
        let put = azure.put_secret("one", text, Some(expires)).await.unwrap();
        let found = azure.secret("one").await.unwrap().unwrap();
        assert_eq!((&found.version, found.expires), (&put.version, Some(expires)));
        assert_eq!(found.value.expose(), text);
        assert_eq!(found.name, "one");
    }
    for _ in 0..2 {
        azure.delete_secret("one").await.unwrap();
        assert_eq!(environment.value("one").await, None);
    }
    // The name is that of a deleted secret, which is recovered.
    let again = azure.put_secret("one", "again", None).await.unwrap();
    assert_eq!((again.value.expose().as_str(), again.expires), ("again", None));
    assert_eq!(environment.value("one").await.as_deref(), Some("again"));
}

#[tokio::test]
async fn a_lost_response_about_a_certificate_makes_nothing_twice() {
    let environment = AzureEnvironment::new().await;
    let azure = &environment.azure;
    for (number, fault) in lost().into_iter().enumerate() {
        let (name, is_done) = (format!("lost-{number}"), number < 2);
        let lose =
            |verb: &str| environment.inject(FaultRule::new(fault.clone()).on(verb).about(&name).times(1));
        lose("ensureCertificate");
        let error = azure.ensure_certificate(&spec(&name)).await.unwrap_err();
        assert_eq!(error.class(), Class::Transient, "{error}");
        let made = environment.version(&name).await;
        assert_eq!(made.is_some(), is_done, "{fault}");
        let first = repeated(async || azure.ensure_certificate(&spec(&name)).await).await;
        assert!(made.is_none() || made == first.version, "{fault}");

        lose("renewCertificate");
        let renew = async || azure.renew_certificate(&name, first.version.as_deref()).await;
        let error = renew().await.unwrap_err();
        assert_eq!(error.class(), Class::Transient, "{error}");
        let made = environment.version(&name).await;
        assert_eq!(made != first.version, is_done, "{fault}");
        let second = repeated(renew).await;
        assert_ne!(second.version, first.version);
        assert!(!is_done || made == second.version, "{fault}");

        lose("certificate");
        let error = azure.certificate(&name).await.unwrap_err();
        assert_eq!(error.class(), Class::Transient, "{error}");
        lose("deleteCertificate");
        let error = azure.delete_certificate(&name).await.unwrap_err();
        assert_eq!(error.class(), Class::Transient, "{error}");
        assert_eq!(environment.version(&name).await.is_none(), is_done, "{fault}");
        repeated(async || azure.delete_certificate(&name).await).await;
        assert_eq!(environment.version(&name).await, None);
    }
}

#[tokio::test]
async fn a_lost_response_about_a_secret_is_repeated() {
    let environment = AzureEnvironment::new().await;
    let azure = &environment.azure;
    for (number, fault) in lost().into_iter().enumerate() {
        let (name, is_done) = (format!("lost-{number}"), number < 2);
        let lose =
            |verb: &str| environment.inject(FaultRule::new(fault.clone()).on(verb).about(&name).times(1));
        lose("putSecret");
        let error = azure.put_secret(&name, "value", None).await.unwrap_err();
        assert_eq!(error.class(), Class::Transient, "{error}");
        assert!(!error.to_string().contains("value"), "{error}");
        assert_eq!(environment.value(&name).await.is_some(), is_done, "{fault}");
        repeated(async || azure.put_secret(&name, "value", None).await).await;
        lose("secret");
        assert_eq!(azure.secret(&name).await.unwrap_err().class(), Class::Transient);
        assert_eq!(environment.value(&name).await.as_deref(), Some("value"));
        lose("deleteSecret");
        assert_eq!(azure.delete_secret(&name).await.unwrap_err().class(), Class::Transient);
        assert_eq!(environment.value(&name).await.is_none(), is_done, "{fault}");
        repeated(async || azure.delete_secret(&name).await).await;
        assert_eq!(environment.value(&name).await, None);
    }
}

#[tokio::test]
async fn a_rejected_token_is_renewed_for_the_vault() {
    let environment = AzureEnvironment::new().await;
    let azure = &environment.azure;
    for fault in [CloudFault::TokenExpires {}, CloudFault::Claims {}] {
        let reject = |verb: &str| environment.inject(FaultRule::new(fault.clone()).on(verb).times(1));
        reject("putSecret");
        azure.put_secret("two", "value", None).await.unwrap();
        reject("secret");
        assert_eq!(environment.value("two").await.as_deref(), Some("value"));
        reject("ensureCertificate");
        let first = azure.ensure_certificate(&spec("one")).await.unwrap();
        reject("renewCertificate");
        azure.renew_certificate("one", first.version.as_deref()).await.unwrap();
        reject("certificate");
        environment.issued("one").await;
        reject("deleteCertificate");
        azure.delete_certificate("one").await.unwrap();
        assert_eq!(environment.emulator.faults.present(), [], "every rule was met");
    }
}

#[tokio::test]
async fn refusals_of_the_vault_say_what_and_why() {
    let environment = AzureEnvironment::new().await;
    let azure = &environment.azure;
    environment.inject(FaultRule::new(CloudFault::Throttled { after_seconds: 7 }).on("secret").times(1));
    let error = azure.secret("one").await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)), "{error}");
    let error = azure.put_secret("under_score", "hidden", None).await.unwrap_err();
    assert!(matches!(&error, CloudError::Invalid { code, .. } if code == "BadParameter"), "{error}");
    assert!(!error.to_string().contains("hidden"), "{error}");
    azure.ensure_certificate(&spec("one")).await.unwrap();
    let other = CertificateSpec { name: "one".to_owned(), dns_names: vec!["other.example.org".to_owned()] };
    let error = azure.ensure_certificate(&other).await.unwrap_err();
    assert!(
        matches!(&error, CloudError::Conflict { why, .. } if why.contains("api.one.example.org")),
        "{error}"
    );
    // A principal without a role.
    let principal = environment.emulator.cloud.create_principal("nobody", Rights::ByRoles).await.unwrap();
    let nobody = environment.client_of(&principal.principal.client_id, &principal.secret);
    let error = nobody.secret("one").await.unwrap_err();
    assert!(matches!(&error, CloudError::Denied { .. }), "{error}");
    assert!(error.to_string().contains(&principal.principal.client_id), "{error}");
}

#[tokio::test]
async fn a_certificate_whose_issuing_failed_is_requested_again() {
    let environment = AzureEnvironment::new().await;
    let azure = &environment.azure;
    let (code, message) = ("IssuerRefuses".to_owned(), "The \"issuer\" refuses.".to_owned());
    let fault = CloudFault::ProvisioningFails { code, message };
    environment.inject(FaultRule::new(fault).on("ensureCertificate").times(1));
    let error = azure.ensure_certificate(&spec("one")).await.unwrap_err();
    assert!(matches!(&error, CloudError::Invalid { code, .. } if code == "IssuerRefuses"), "{error}");
    assert!(error.to_string().contains("The \"issuer\" refuses."), "{error}");
    assert!(azure.ensure_certificate(&spec("one")).await.unwrap().version.is_some());
    // An issuer that never answers leaves the version before it.
    let first = environment.version("one").await;
    environment.inject(FaultRule::new(CloudFault::OperationHangs {}).on("renewCertificate").times(1));
    for _ in 0..2 {
        let waiting = azure.renew_certificate("one", first.as_deref()).await.unwrap();
        assert_eq!((waiting.version, waiting.issuing), (first.clone(), true));
    }
    assert_eq!(environment.version("one").await, first);
}

fn at_pace() -> (Arc<ManualClock>, Options) {
    let clock = ManualClock::at("2026-03-01T12:00:00Z".parse().unwrap());
    (clock.clone(), Options { clock, pace: 1.0, ..Options::default() })
}

#[tokio::test]
async fn a_name_that_is_being_deleted_is_waited_for() {
    let (clock, options) = at_pace();
    let environment = AzureEnvironment::with(options).await;
    let azure = &environment.azure;
    azure.put_secret("one", "a", None).await.unwrap();
    azure.ensure_certificate(&spec("two")).await.unwrap();
    clock.advance(SignedDuration::from_mins(1));
    azure.delete_secret("one").await.unwrap();
    azure.delete_certificate("two").await.unwrap();
    for error in [
        azure.put_secret("one", "b", None).await.unwrap_err(),
        azure.ensure_certificate(&spec("two")).await.unwrap_err(),
    ] {
        assert!(matches!(&error, CloudError::Busy { code, .. } if code == "ObjectIsBeingDeleted"), "{error}");
    }
    clock.advance(SignedDuration::from_secs(10));
    azure.put_secret("one", "b", None).await.unwrap();
    azure.ensure_certificate(&spec("two")).await.unwrap();
}

#[tokio::test]
async fn a_certificate_that_is_being_issued_is_seen_so() {
    let (clock, options) = at_pace();
    let environment = AzureEnvironment::with(options).await;
    let azure = &environment.azure;
    for _ in 0..2 {
        let asked: VaultCertificate = azure.ensure_certificate(&spec("one")).await.unwrap();
        assert_eq!((asked.version, asked.issuing, asked.not_after), (None, true, None));
        assert!(azure.certificate("one").await.unwrap().is_none());
    }
    clock.advance(SignedDuration::from_mins(1));
    assert!(azure.ensure_certificate(&spec("one")).await.unwrap().version.is_some());
}
