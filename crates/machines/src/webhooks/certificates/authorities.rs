//! The private authorities of the webhooks' certificates, and how one succeeds another. Pure.
//!
//! The API server trusts the authorities in `caBundle`, and learns of a change only after a while. Therefore a successor is
//! published there first, signs only after it is known everywhere, and its predecessor stays trusted until its end: whichever of
//! the two an API server knows and a replica uses, every handshake succeeds.

use api::secret::Secret;
use jiff::{SignedDuration, Timestamp};
use serve::pki::{CertificateAuthority, CertificatePair, PkiError, Validity};
use x509_parser::pem::Pem;

/// The name of every authority; its key tells it from others.
const NAME: &str = "Shipshape machine webhooks";

/// How much earlier a certificate is valid than it was issued, for API servers whose clock is slow.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_hours(1);

/// How long certificates are valid and when they are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificatePolicy {
    /// How long an authority is valid.
    pub authority_lifetime: SignedDuration,
    /// How long before its end an authority gets a successor.
    pub authority_renewal: SignedDuration,
    /// How long a server's certificate is valid.
    pub serving_lifetime: SignedDuration,
    /// How long before its end a server's certificate is replaced.
    pub serving_renewal: SignedDuration,
    /// How long a successor is published before it signs. API servers read the webhook configurations by watches, which takes seconds
    /// unless they are overloaded.
    pub publication: SignedDuration,
}

impl Default for CertificatePolicy {
    fn default() -> CertificatePolicy {
        let days = |days: i64| SignedDuration::from_hours(24 * days);
        CertificatePolicy {
            authority_lifetime: days(365),
            authority_renewal: days(120),
            serving_lifetime: days(30),
            serving_renewal: days(10),
            publication: SignedDuration::from_mins(5),
        }
    }
}

/// A certificate that API servers trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrustedCertificate {
    pub(crate) validity: Validity,
    /// The certificate in PEM, without surrounding space.
    pub(crate) pem: String,
}

impl TrustedCertificate {
    /// The certificates of a bundle. What is no certificate is left out.
    pub(crate) fn parse_bundle(bundle: &[u8]) -> Vec<TrustedCertificate> {
        Pem::iter_from_buffer(bundle).map_while(Result::ok).filter_map(|pem| Self::from_pem(&pem)).collect()
    }

    /// The only certificate in PEM.
    fn parse(pem: &str) -> Option<TrustedCertificate> {
        let mut all = Self::parse_bundle(pem.as_bytes());
        let first = all.pop()?;
        all.is_empty().then_some(first)
    }

    fn from_pem(pem: &Pem) -> Option<TrustedCertificate> {
        let certificate = pem.parse_x509().ok()?;
        let at = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp()).ok();
        let validity = Validity {
            not_before: at(certificate.validity().not_before)?,
            not_after: at(certificate.validity().not_after)?,
        };
        Some(TrustedCertificate { validity, pem: encode_pem(&pem.contents) })
    }

    fn is_expired(&self, now: Timestamp) -> bool {
        self.validity.not_after <= now
    }
}

/// PEM in one form, so that bundles can be compared.
fn encode_pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for start in (0..text.len()).step_by(64) {
        pem.push_str(&text[start..text.len().min(start + 64)]);
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

/// An authority with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authority {
    pub(crate) certificate: TrustedCertificate,
    pub(crate) key: Secret<String>,
}

impl Authority {
    /// A new one.
    pub(crate) fn generate(policy: &CertificatePolicy, now: Timestamp) -> Result<Authority, PkiError> {
        let validity = validity(now, policy.authority_lifetime);
        let CertificatePair { certificate, key } = CertificateAuthority::generate(NAME, validity)?.pair();
        let certificate =
            TrustedCertificate::parse(&certificate).expect("a certificate that was made just now");
        Ok(Authority { certificate, key: Secret::new(key) })
    }

    /// The one that was stored; none if it cannot be used.
    pub(crate) fn read(certificate: &str, key: &str) -> Option<Authority> {
        kubelink::certificate::pair(certificate.as_bytes(), key.as_bytes()).ok()?;
        let certificate = TrustedCertificate::parse(certificate)?;
        Some(Authority { certificate, key: Secret::new(key.to_owned()) })
    }

    /// Issues a server's certificate, which ends with the authority at the latest.
    pub(crate) fn issue(
        &self,
        names: &[String],
        policy: &CertificatePolicy,
        now: Timestamp,
    ) -> Result<(CertificatePair, Validity), PkiError> {
        let mut validity = validity(now, policy.serving_lifetime);
        validity.not_after = validity.not_after.min(self.certificate.validity.not_after);
        let pair =
            CertificatePair { certificate: self.certificate.pem.clone(), key: self.key.expose().clone() };
        let request = serve::pki::CertificateRequest {
            common_name: "machine-api-webhooks",
            organization: None,
            alternative_names: names.to_vec(),
            purpose: serve::pki::Purpose::Server,
            validity,
        };
        Ok((CertificateAuthority::from_pem(NAME, pair)?.issue(&request)?, validity))
    }
}

fn validity(now: Timestamp, lifetime: SignedDuration) -> Validity {
    let after = |span: SignedDuration| now.saturating_add(span).unwrap_or(Timestamp::MAX);
    Validity { not_before: after(-CLOCK_TOLERANCE), not_after: after(lifetime) }
}

/// A successor of the current authority, which does not sign yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Successor {
    pub(crate) authority: Authority,
    /// When it was in the bundles of all webhooks.
    pub(crate) published: Option<Timestamp>,
}

/// The authorities that replicas share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authorities {
    /// The one that signs.
    pub(crate) current: Authority,
    pub(crate) next: Option<Successor>,
    /// The one that signed before.
    pub(crate) previous: Option<TrustedCertificate>,
}

/// The next step of a succession.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing is to be done now.
    None,
    /// The current authority has ended; nothing it signed is trusted, so that a new one can sign at once.
    StartAgain,
    /// Generate a successor.
    AddNext,
    /// Record that the successor is published.
    RecordPublication,
    /// Let the successor sign.
    Promote,
}

impl Authorities {
    /// The first ones.
    pub(crate) fn generate(policy: &CertificatePolicy, now: Timestamp) -> Result<Authorities, PkiError> {
        Ok(Authorities { current: Authority::generate(policy, now)?, next: None, previous: None })
    }

    /// The next step; `is_published` says whether the bundles of all webhooks have the successor.
    pub(crate) fn next_step(&self, policy: &CertificatePolicy, is_published: bool, now: Timestamp) -> Step {
        let end = self.current.certificate.validity.not_after;
        match &self.next {
            _ if end <= now => Step::StartAgain,
            None if end.duration_since(now) <= policy.authority_renewal => Step::AddNext,
            Some(Successor { published: None, .. }) if is_published => Step::RecordPublication,
            Some(Successor { published: Some(time), .. })
                if now.duration_since(*time) >= policy.publication =>
            {
                Step::Promote
            }
            None | Some(_) => Step::None,
        }
    }

    /// The authorities after a step.
    pub(crate) fn after(
        self,
        step: Step,
        policy: &CertificatePolicy,
        now: Timestamp,
    ) -> Result<Authorities, PkiError> {
        Ok(match (step, self.next) {
            (Step::None, next) => Authorities { next, ..self },
            (Step::StartAgain, _) => Authorities::generate(policy, now)?,
            (Step::AddNext, _) => {
                let authority = Authority::generate(policy, now)?;
                Authorities { next: Some(Successor { authority, published: None }), ..self }
            }
            (Step::RecordPublication, next) => {
                let next = next.map(|it| Successor { published: Some(now), ..it });
                Authorities { next, ..self }
            }
            (Step::Promote, Some(Successor { authority, .. })) => {
                let previous = Some(self.current.certificate).filter(|it| !it.is_expired(now));
                Authorities { current: authority, next: None, previous }
            }
            (Step::Promote, None) => Authorities { next: None, ..self },
        })
    }

    /// The authorities after the loss of what was stored, from what this process remembers: they get a successor, because the loss may
    /// have been meant as a renewal.
    pub(crate) fn restored(
        self,
        policy: &CertificatePolicy,
        now: Timestamp,
    ) -> Result<Authorities, PkiError> {
        let step = if self.current.certificate.is_expired(now) { Step::StartAgain } else { Step::AddNext };
        self.after(step, policy, now)
    }

    /// The certificates that API servers shall trust, given those that a webhook has now.
    ///
    /// Another replica may know a newer authority than this one, so that newer ones stay.
    pub(crate) fn trusted(&self, present: &[TrustedCertificate], now: Timestamp) -> Vec<TrustedCertificate> {
        let newer =
            |it: &&TrustedCertificate| it.validity.not_before > self.current.certificate.validity.not_before;
        let next = self.next.as_ref().map(|it| &it.authority.certificate);
        let own = [Some(&self.current.certificate), next, self.previous.as_ref()];
        let mut trusted: Vec<TrustedCertificate> = own.into_iter().flatten().cloned().collect();
        trusted.extend(present.iter().filter(newer).cloned());
        trusted.retain(|it| !it.is_expired(now));
        trusted.sort_by(|a, b| (a.validity.not_before, &a.pem).cmp(&(b.validity.not_before, &b.pem)));
        trusted.dedup();
        trusted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn at(days: i64) -> Timestamp {
        START + SignedDuration::from_hours(24 * days)
    }

    fn policy() -> CertificatePolicy {
        CertificatePolicy::default()
    }

    fn next(authorities: &Authorities) -> &TrustedCertificate {
        &authorities.next.as_ref().unwrap().authority.certificate
    }

    #[test]
    fn a_successor_is_published_before_it_signs_and_its_predecessor_stays_trusted() {
        let first = Authorities::generate(&policy(), START).unwrap();
        assert_eq!(first.next_step(&policy(), false, at(244)), Step::None);
        assert_eq!(first.next_step(&policy(), false, at(245)), Step::AddNext);

        let two = first.clone().after(Step::AddNext, &policy(), at(245)).unwrap();
        assert_eq!(two.current, first.current);
        let both = [first.current.certificate.clone(), next(&two).clone()];
        assert_eq!(two.trusted(&[], at(245)), both);
        assert_eq!(two.next_step(&policy(), false, at(246)), Step::None);
        assert_eq!(two.next_step(&policy(), true, at(246)), Step::RecordPublication);

        let published = two.after(Step::RecordPublication, &policy(), at(246)).unwrap();
        assert_eq!(published.next_step(&policy(), true, at(246) + SignedDuration::from_mins(4)), Step::None);
        assert_eq!(
            published.next_step(&policy(), true, at(246) + SignedDuration::from_mins(5)),
            Step::Promote
        );

        let second = published.clone().after(Step::Promote, &policy(), at(247)).unwrap();
        assert_eq!(second.current.certificate, *next(&published));
        assert_eq!(second.trusted(&[], at(247)), both);
        assert_eq!(second.next_step(&policy(), true, at(247)), Step::None);
        assert_eq!(second.trusted(&[], at(365)), both[1..]);
    }

    #[test]
    fn an_ended_authority_is_replaced_at_once() {
        let first = Authorities::generate(&policy(), START).unwrap();
        assert_eq!(first.next_step(&policy(), false, at(365)), Step::StartAgain);
        let again = first.clone().after(Step::StartAgain, &policy(), at(365)).unwrap();
        assert_ne!(again.current, first.current);
        assert_eq!(again.trusted(std::slice::from_ref(&first.current.certificate), at(365)).len(), 1);
        let restored = first.clone().restored(&policy(), at(365)).unwrap();
        assert_ne!(restored.current, first.current);
    }

    #[test]
    fn a_loss_leads_to_a_successor_and_not_to_a_gap() {
        let first = Authorities::generate(&policy(), START).unwrap();
        let restored = first.clone().restored(&policy(), at(1)).unwrap();
        assert_eq!(restored.current, first.current);
        assert_eq!(restored.next_step(&policy(), true, at(1)), Step::RecordPublication);
    }

    #[test]
    fn a_replica_that_is_behind_does_not_remove_a_newer_authority() {
        let behind = Authorities::generate(&policy(), START).unwrap();
        let ahead = behind.clone().after(Step::AddNext, &policy(), at(245)).unwrap();
        let bundle = ahead.trusted(&[], at(245));
        assert_eq!(behind.trusted(&bundle, at(245)), bundle);
        // An older one that nobody stores any more is removed.
        let promoted = ahead.clone().after(Step::Promote, &policy(), at(246)).unwrap();
        let promoted = Authorities { previous: None, ..promoted };
        assert_eq!(promoted.trusted(&bundle, at(246)), [next(&ahead).clone()]);
    }

    #[test]
    fn a_certificate_ends_with_its_authority() {
        let first = Authority::generate(&policy(), START).unwrap();
        let names = ["webhook.svc".to_owned(), "127.0.0.1".to_owned()];
        let (_, validity) = first.issue(&names, &policy(), START).unwrap();
        assert_eq!(validity.not_after, at(30));
        let (pair, validity) = first.issue(&names, &policy(), at(350)).unwrap();
        assert_eq!(validity.not_after, at(365));
        let parsed = TrustedCertificate::parse(&pair.certificate).unwrap();
        assert_eq!(parsed.validity, validity);
    }

    #[test]
    fn only_a_certificate_with_its_own_key_is_read() {
        let (first, second) =
            (Authority::generate(&policy(), START).unwrap(), Authority::generate(&policy(), START).unwrap());
        let pem = &first.certificate.pem;
        assert_eq!(Authority::read(pem, first.key.expose()), Some(first.clone()));
        assert_eq!(Authority::read(pem, second.key.expose()), None);
        assert_eq!(Authority::read("", first.key.expose()), None);
        assert_eq!(Authority::read(pem, "text"), None);
    }

    #[test]
    fn a_bundle_is_read_up_to_what_is_no_pem() {
        let first = Authority::generate(&policy(), START).unwrap().certificate;
        let text = format!("# comment\n{}\n\n{}rest", first.pem, first.pem);
        assert_eq!(TrustedCertificate::parse_bundle(text.as_bytes()), [first.clone(), first]);
        assert_eq!(TrustedCertificate::parse_bundle(b"\xff\n"), []);
        assert_eq!(
            TrustedCertificate::parse_bundle(
                b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
            ),
            []
        );
    }
}
