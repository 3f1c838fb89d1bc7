//! A private certificate authority, for servers that are not given certificates.

mod directory;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

pub use directory::{OPERATOR_NAME, PkiDirectory};

/// A certificate cannot be read, written or issued.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A certificate cannot be issued.
    #[error("cannot issue a certificate")]
    Issue(#[from] rcgen::Error),
}

/// The time in which a certificate is valid, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First moment.
    pub not_before: Timestamp,
    /// Last moment.
    pub not_after: Timestamp,
}

impl Validity {
    /// For servers whose clock is simulated: longer than any simulation.
    pub const UNLIMITED: Validity =
        Validity { not_before: Timestamp::UNIX_EPOCH, not_after: Timestamp::constant(67_090_000_000, 0) };

    /// From a day before `now`, for clients whose clock is slow, until `days` after it.
    pub fn days(now: Timestamp, days: i64) -> Validity {
        let offset =
            |days: i64| now.saturating_add(SignedDuration::from_hours(24 * days)).unwrap_or(Timestamp::MAX);
        Validity { not_before: offset(-1), not_after: offset(days) }
    }

    fn apply(self, params: &mut CertificateParams) {
        // The clocks of the workspace show no time before the epoch.
        let moment = |time: Timestamp| {
            let seconds = u64::try_from(time.as_second()).unwrap_or_default();
            rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
        };
        params.not_before = moment(self.not_before);
        params.not_after = moment(self.not_after);
    }
}

/// The use of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Authenticates a server.
    Server,
    /// Authenticates a client.
    Client,
}

/// A certificate to be issued.
#[derive(Debug, Clone)]
pub struct CertificateRequest<'a> {
    /// The common name of its subject.
    pub common_name: &'a str,
    /// The organization of its subject.
    pub organization: Option<&'a str>,
    /// DNS names and addresses.
    pub alternative_names: Vec<String>,
    /// Its use.
    pub purpose: Purpose,
    /// The time in which it is valid.
    pub validity: Validity,
}

/// A certificate and its private key, in PEM.
#[derive(Clone)]
pub struct CertificatePair {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl fmt::Debug for CertificatePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificatePair").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// A certificate authority with its private key.
#[derive(Debug)]
pub struct CertificateAuthority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl CertificateAuthority {
    /// A new authority with a new key.
    pub fn generate(name: &str, validity: Validity) -> Result<CertificateAuthority, PkiError> {
        let mut params = authority_params(name)?;
        validity.apply(&mut params);
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(CertificateAuthority { certificate, issuer: Issuer::new(params, key) })
    }

    /// An authority that was generated before under this name, from its certificate and key in PEM.
    pub fn from_pem(name: &str, pair: CertificatePair) -> Result<CertificateAuthority, PkiError> {
        // A signature needs only the name and the key of its issuer.
        let issuer = Issuer::new(authority_params(name)?, KeyPair::from_pem(&pair.key)?);
        Ok(CertificateAuthority { certificate: pair.certificate, issuer })
    }

    /// Its certificate, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Its certificate and key, in PEM.
    pub fn pair(&self) -> CertificatePair {
        CertificatePair { certificate: self.certificate.clone(), key: self.issuer.key().serialize_pem() }
    }

    /// Issues a certificate with a new key.
    pub fn issue(&self, request: &CertificateRequest<'_>) -> Result<CertificatePair, PkiError> {
        let mut params = CertificateParams::new(request.alternative_names.clone())?;
        params.distinguished_name = subject(request.common_name);
        if let Some(organization) = request.organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match request.purpose {
            Purpose::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Purpose::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        request.validity.apply(&mut params);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(CertificatePair { certificate, key: key.serialize_pem() })
    }
}

fn authority_params(name: &str) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.distinguished_name = subject(name);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn subject(common_name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, common_name);
    distinguished
}
