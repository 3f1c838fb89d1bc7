//! Client certificates: signed by the configured authority, issued for clients, valid now, and listed.

use std::time::Duration;

use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, UnixTime};
use serve::tls::{ClientAuthority, TlsError};
use sha2::{Digest as _, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::{AuthenticationError, Role, identity};
use crate::config::{ClientRule, Config};

/// Verifies client certificates and assigns roles to them.
#[derive(Debug)]
pub(crate) struct CertificateVerifier {
    authority: ClientAuthority,
    operators: Vec<ClientRule>,
    readers: Vec<ClientRule>,
}

/// The holder of an accepted certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateHolder {
    name: String,
    pub(crate) role: Role,
    not_before: Timestamp,
    not_after: Timestamp,
}

impl CertificateHolder {
    /// A component of this process, which needs no certificate.
    pub(crate) fn in_process(name: &str) -> CertificateHolder {
        let (not_before, not_after) = (Timestamp::MIN, Timestamp::MAX);
        CertificateHolder { name: name.to_owned(), role: Role::Operator, not_before, not_after }
    }

    /// The name, if the certificate is valid at `now`: a connection may outlive its certificate.
    pub(crate) fn name_at(&self, now: Timestamp) -> Result<String, AuthenticationError> {
        if now < self.not_before || now > self.not_after {
            return Err(AuthenticationError::new(format!(
                "the certificate of {} is not valid now",
                self.name
            )));
        }
        Ok(self.name.clone())
    }
}

impl CertificateVerifier {
    /// Reads the configured authority, if any.
    pub(crate) fn open(config: &Config) -> Result<Option<CertificateVerifier>, TlsError> {
        let Some(path) = &config.client_ca else { return Ok(None) };
        Ok(Some(CertificateVerifier {
            authority: ClientAuthority::open(path)?,
            operators: config.operators.clone(),
            readers: config.readers.clone(),
        }))
    }

    /// The authority of the client certificates, for the handshake.
    pub(crate) fn authority(&self) -> &ClientAuthority {
        &self.authority
    }

    /// The holder of a certificate chain.
    pub(crate) fn holder(
        &self,
        chain: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<CertificateHolder, AuthenticationError> {
        let Some(leaf) = chain.first() else {
            return Err(AuthenticationError::new("the client showed no certificate"));
        };
        let since = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
        self.authority
            .verify(chain, UnixTime::since_unix_epoch(since))
            .map_err(|error| AuthenticationError::new(format!("the certificate is not accepted: {error}")))?;
        let (_, parsed) = X509Certificate::from_der(leaf)
            .map_err(|_| AuthenticationError::new("the certificate cannot be read"))?;
        let name = common_name(&parsed).unwrap_or_default();
        // The TLS library accepts a certificate without this extension; this API does not.
        let is_for_clients = parsed
            .extended_key_usage()
            .ok()
            .flatten()
            .is_some_and(|usage| usage.value.client_auth || usage.value.any);
        if !is_for_clients {
            return Err(AuthenticationError::new(format!(
                "the certificate of {name:?} is not one for clients"
            )));
        }
        let digest: [u8; 32] = Sha256::digest(leaf).into();
        let names = |rule: &ClientRule| match rule {
            ClientRule::Name(wanted) => *wanted == name,
            ClientRule::Fingerprint(wanted) => *wanted == digest,
        };
        let role = if self.operators.iter().any(names) {
            Role::Operator
        } else if self.readers.iter().any(names) {
            Role::Reader
        } else {
            return Err(AuthenticationError::new(format!("the certificate of {name:?} is on no list")));
        };
        let moment = |at: x509_parser::time::ASN1Time| Timestamp::from_second(at.timestamp());
        let (Ok(not_before), Ok(not_after)) =
            (moment(parsed.validity().not_before), moment(parsed.validity().not_after))
        else {
            return Err(AuthenticationError::new("the certificate's times cannot be read"));
        };
        let name = if name.is_empty() { ClientRule::Fingerprint(digest).to_string() } else { name };
        let name = identity(&name)?;
        Ok(CertificateHolder { name, role, not_before, not_after })
    }
}

fn common_name(certificate: &X509Certificate<'_>) -> Option<String> {
    let mut names = certificate.subject().iter_common_name();
    let first = names.next()?.as_str().ok()?.to_owned();
    // Two common names are ambiguous.
    names.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_does_not_outlive_its_certificate() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let holder = CertificateHolder {
            name: "jo".to_owned(),
            role: Role::Reader,
            not_before: at(100),
            not_after: at(200),
        };
        let check =
            |second: i64, expect: bool| assert_eq!(holder.name_at(at(second)).is_ok(), expect, "{second}");
        check(99, false);
        check(100, true);
        check(200, true);
        check(201, false);
    }
}
