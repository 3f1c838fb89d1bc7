//! Certificates of the webhooks: a private authority in a Secret that all replicas share, and a certificate of each replica that it
//! signs. The private key of a replica is in its memory only.

mod authorities;
mod secret;

use std::sync::Arc;

use api::clock::SharedClock;
use controller::{FieldManager, RequestError};
use jiff::Timestamp;
use kube::Client;
use serve::pki::PkiError;
use serve::tls::{ReplaceableCertificate, TlsError};

use super::registration::{Registration, Trust};
pub use authorities::CertificatePolicy;
use authorities::Step;
pub(crate) use authorities::{Authorities, TrustedCertificate};
use secret::{AuthoritySecret, StoredAuthorities, Written};

/// Attempts of one pass when other replicas write at the same time.
const ATTEMPTS_MAX: usize = 10;

/// The certificates cannot be maintained.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    /// A request to the API server failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A certificate cannot be issued.
    #[error(transparent)]
    Issue(#[from] PkiError),
    /// A certificate cannot be served.
    #[error(transparent)]
    Serve(#[from] TlsError),
    /// Other replicas changed the Secret at every attempt.
    #[error("Secret {name} was changed by others at {ATTEMPTS_MAX} attempts")]
    Contention {
        /// The Secret.
        name: &'static str,
    },
}

/// The certificates of this replica.
pub(crate) struct Certificates {
    secret: AuthoritySecret,
    policy: CertificatePolicy,
    clock: SharedClock,
    names: Vec<String>,
    /// The authorities as they were read last, for the case that the Secret is lost.
    remembered: Option<Authorities>,
    serving: Option<Serving>,
}

/// The certificate that is served.
struct Serving {
    certificate: Arc<ReplaceableCertificate>,
    /// The certificate of the authority that signed it.
    authority: TrustedCertificate,
    end: Timestamp,
}

impl Certificates {
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        manager: FieldManager,
        policy: CertificatePolicy,
        clock: SharedClock,
        names: Vec<String>,
    ) -> Certificates {
        let secret = AuthoritySecret::new(client, namespace, manager);
        Certificates { secret, policy, clock, names, remembered: None, serving: None }
    }

    /// Reads or creates the authorities, and issues the first certificate.
    pub(crate) async fn prepare(&mut self) -> Result<Arc<ReplaceableCertificate>, CertificateError> {
        let (authorities, _) = self.read().await?;
        self.serve(&authorities)
    }

    /// Brings the certificate, the Secret and the registration up to date.
    pub(crate) async fn reconcile(&mut self, registration: &Registration) -> Result<(), CertificateError> {
        for _ in 0..ATTEMPTS_MAX {
            let (authorities, stored) = self.read().await?;
            self.serve(&authorities)?;
            let trust = Trust::Authorities(&authorities, self.clock.now());
            let is_published = registration.apply(trust).await?;
            let now = self.clock.now();
            let step = authorities.next_step(&self.policy, is_published, now);
            if step == Step::None {
                return Ok(());
            }
            let changed = authorities.after(step, &self.policy, now)?;
            if self.secret.write(&changed, &stored).await? == Written::Stored {
                tracing::info!("Certificate authority of the webhooks: {}", description(step));
            }
        }
        Err(CertificateError::Contention { name: secret::NAME })
    }

    /// The authorities of the Secret, which is created if it is missing.
    async fn read(&mut self) -> Result<(Authorities, StoredAuthorities), CertificateError> {
        for _ in 0..ATTEMPTS_MAX {
            let mut stored = self.secret.read().await?;
            if let Some(authorities) = stored.authorities.take() {
                self.remembered = Some(authorities.clone());
                return Ok((authorities, stored));
            }
            let now = self.clock.now();
            let authorities = match self.remembered.clone() {
                Some(remembered) => remembered.restored(&self.policy, now)?,
                None => Authorities::generate(&self.policy, now)?,
            };
            if self.secret.write(&authorities, &stored).await? == Written::Stored {
                tracing::info!("Stored the certificate authority of the webhooks in Secret {}", secret::NAME);
            }
        }
        Err(CertificateError::Contention { name: secret::NAME })
    }

    /// Serves a certificate of the current authority that is not about to end.
    fn serve(&mut self, authorities: &Authorities) -> Result<Arc<ReplaceableCertificate>, CertificateError> {
        let (now, authority) = (self.clock.now(), &authorities.current);
        if let Some(serving) = &self.serving
            && serving.authority == authority.certificate
        {
            let is_fresh = serving.end.duration_since(now) > self.policy.serving_renewal;
            // Another certificate of an authority that is about to end would end with it as well.
            if is_fresh || serving.end >= authority.certificate.validity.not_after {
                return Ok(serving.certificate.clone());
            }
        }
        let (pair, validity) = authority.issue(&self.names, &self.policy, now)?;
        let certificate = match &self.serving {
            Some(Serving { certificate, .. }) => {
                certificate.replace(&pair.certificate, &pair.key)?;
                certificate.clone()
            }
            None => ReplaceableCertificate::new(&pair.certificate, &pair.key)?,
        };
        let serving = Serving {
            certificate: certificate.clone(),
            authority: authority.certificate.clone(),
            end: validity.not_after,
        };
        self.serving = Some(serving);
        Ok(certificate)
    }
}

fn description(step: Step) -> &'static str {
    match step {
        Step::None => "unchanged",
        Step::StartAgain => "replaced, because it had ended",
        Step::AddNext => "added a successor",
        Step::RecordPublication => "the API server trusts the successor",
        Step::Promote => "the successor signs certificates",
    }
}
