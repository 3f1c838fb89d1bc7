//! A certificate in memory that its owner replaces.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::{TlsError, provider};

/// A certificate in memory that its owner replaces. Established connections keep the one of their handshake.
#[derive(Debug)]
pub struct ReplaceableCertificate {
    current: RwLock<Arc<CertifiedKey>>,
}

impl ReplaceableCertificate {
    /// A certificate with its chain and its key, in PEM.
    pub fn new(certificate: &str, key: &str) -> Result<Arc<ReplaceableCertificate>, TlsError> {
        Ok(Arc::new(ReplaceableCertificate { current: RwLock::new(read_pair(certificate, key)?) }))
    }

    /// Serves another certificate from the next handshake on. If it cannot be used, the present one stays.
    pub fn replace(&self, certificate: &str, key: &str) -> Result<(), TlsError> {
        let pair = read_pair(certificate, key)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = pair;
        Ok(())
    }

    fn current(&self) -> Arc<CertifiedKey> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for ReplaceableCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

/// Reads a certificate with its chain and its key.
pub(super) fn read_pair(certificate: &str, key: &str) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(TlsError::invalid)?;
    CertifiedKey::from_der(chain.map_err(TlsError::invalid)?, key, &provider())
        .map(Arc::new)
        .map_err(TlsError::invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_replaced_and_an_unusable_one_is_not_taken() {
        let generate = || {
            let generated = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
            (generated.cert.pem(), generated.signing_key.serialize_pem())
        };
        let ((first, first_key), (second, second_key)) = (generate(), generate());
        let served = ReplaceableCertificate::new(&first, &first_key).unwrap();
        let before = served.current().cert.clone();
        assert!(served.replace(&second, &first_key).is_err());
        assert!(served.replace("no certificate", &second_key).is_err());
        assert_eq!(served.current().cert, before);
        served.replace(&second, &second_key).unwrap();
        assert_ne!(served.current().cert, before);
    }
}
