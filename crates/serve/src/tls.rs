//! TLS: at least version 1.2; a client certificate is asked for but not demanded, and judged after the handshake, so that
//! a client without rights gets a response that says so. The server's own certificate is read again when its file has changed,
//! so that a renewed one needs no restart.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme};
use tokio::time::Instant;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::{FromDer as _, GeneralName};

/// The files of the server's certificate are looked at no more often than this, and only when somebody comes.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Certificates or keys that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// A file does not hold what it should.
    #[error("{} cannot be used: {why}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// TLS itself cannot be set up.
    #[error("TLS cannot be set up")]
    Protocol(#[source] Error),
}

impl TlsError {
    /// A file that does not hold what it should.
    pub fn unusable(path: &Path, why: impl std::fmt::Display) -> TlsError {
        TlsError::Unusable { path: path.to_owned(), why: why.to_string() }
    }
}

/// The algorithms that we speak.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// All certificates of a PEM file; at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |source| TlsError::Unreadable { path: path.to_owned(), source };
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(unreadable)?.collect();
    let found = found.map_err(|error| TlsError::unusable(path, error))?;
    if found.is_empty() {
        return Err(TlsError::unusable(path, "it holds no certificate in PEM"));
    }
    Ok(found)
}

/// How a server speaks TLS. `clients` says which authorities are named to clients; without it no client certificate is asked for.
pub fn server(
    certificate: Arc<CertificateFiles>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Protocol)?;
    let builder = match clients {
        Some(inner) => builder.with_client_cert_verifier(Arc::new(Lenient { inner })),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A resumed session would carry the judgement of an earlier handshake.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// A certificate and its key, as their files have them now.
#[derive(Debug)]
pub struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    look_every: Duration,
    known: Mutex<Known>,
}

/// What was read last, and of which files.
#[derive(Debug)]
struct Known {
    pair: Arc<CertifiedKey>,
    names: Arc<[String]>,
    marks: [Mark; 2],
    looked: Instant,
}

/// By what a file is told from the one that was there before: it is there at all, when it was written, how long it is.
type Mark = Option<(Option<SystemTime>, u64)>;

impl CertificateFiles {
    /// Reads both; they must belong together.
    pub fn open(certificate: &Path, key: &Path) -> Result<Arc<CertificateFiles>, TlsError> {
        CertificateFiles::looked_at(certificate, key, LOOK_EVERY).map(Arc::new)
    }

    fn looked_at(certificate: &Path, key: &Path, look_every: Duration) -> Result<CertificateFiles, TlsError> {
        // Before they are read: what changes in between is read once more.
        let marks = [mark(certificate), mark(key)];
        let pair = Arc::new(pair(certificate, key)?);
        let known = Mutex::new(Known { names: names(&pair), pair, marks, looked: Instant::now() });
        Ok(CertificateFiles { certificate: certificate.to_owned(), key: key.to_owned(), look_every, known })
    }

    /// The DNS names and addresses that the certificate is for.
    pub fn names(&self) -> Arc<[String]> {
        self.renewed().names.clone()
    }

    fn now(&self) -> Arc<CertifiedKey> {
        self.renewed().pair.clone()
    }

    /// The pair that counts now. Files that cannot be used, such as one half of a pair while the other is being written, leave
    /// the old one in its place.
    fn renewed(&self) -> MutexGuard<'_, Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.looked.elapsed() < self.look_every {
            return known;
        }
        known.looked = Instant::now();
        let marks = [mark(&self.certificate), mark(&self.key)];
        if marks != known.marks {
            match pair(&self.certificate, &self.key) {
                Ok(pair) => {
                    tracing::info!("The server's certificate was renewed: {}", self.certificate.display());
                    known.pair = Arc::new(pair);
                    known.names = names(&known.pair);
                    known.marks = marks;
                }
                // Said at every look until it is mended.
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "The server's certificate has changed and cannot be used; the old one stays: {error}"
                ),
            }
        }
        known
    }
}

impl ResolvesServerCert for CertificateFiles {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.now())
    }
}

/// The names in a certificate; none of one that cannot be read that far.
fn names(pair: &CertifiedKey) -> Arc<[String]> {
    let Some(Ok((_, certificate))) = pair.cert.first().map(|der| X509Certificate::from_der(der)) else {
        return Arc::default();
    };
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return Arc::default() };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(std::net::IpAddr::from);
            let v6 = || <[u8; 16]>::try_from(*bytes).map(std::net::IpAddr::from);
            v4.or_else(|_| v6()).ok().map(|address| address.to_string())
        }
        _ => None,
    };
    extension.value.general_names.iter().filter_map(name).collect()
}

fn mark(path: &Path) -> Mark {
    std::fs::metadata(path).ok().map(|found| (found.modified().ok(), found.len()))
}

/// Reads a certificate with its chain and the key that belongs to it.
fn pair(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(certificate)?;
    let unreadable = |source| TlsError::Unreadable { path: key.to_owned(), source };
    let private = PrivateKeyDer::from_pem_file(key).map_err(unreadable)?;
    CertifiedKey::from_der(chain, private, &provider())
        .map_err(|error| TlsError::unusable(certificate, error))
}

/// Lets every certificate through the handshake whose holder proves that it is theirs; who signed it is asked later.
#[derive(Debug)]
struct Lenient {
    inner: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for Lenient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate for `name` and its key, in files of `directory`.
    fn made(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
        let names = vec![name.to_owned(), "192.0.2.7".to_owned(), "::1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let (certificate, key) = (directory.join("server.crt"), directory.join("server.key"));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        (certificate, key)
    }

    #[test]
    fn a_renewed_pair_is_taken_and_a_broken_one_is_not() {
        let place = tempfile::tempdir().unwrap();
        let (certificate, key) = made(place.path(), "first.example");
        let renewed = CertificateFiles::looked_at(&certificate, &key, Duration::ZERO).unwrap();
        let first = renewed.now().cert.clone();
        assert_eq!(renewed.now().cert, first);
        assert_eq!(*renewed.names(), ["first.example", "192.0.2.7", "::1"]);
        made(place.path(), "the-second.example");
        let second = renewed.now().cert.clone();
        assert_ne!(second, first);
        assert_eq!(renewed.names()[0], "the-second.example");

        // A certificate whose key is not there yet, one that is cut off, and none at all: the old one stays.
        let (whole, old_key) = (std::fs::read(&certificate).unwrap(), std::fs::read(&key).unwrap());
        let other = tempfile::tempdir().unwrap();
        let (other, other_key) = made(other.path(), "another-one.example");
        std::fs::copy(&other, &certificate).unwrap();
        assert_eq!(renewed.now().cert, second);
        std::fs::write(&certificate, &whole[..whole.len() / 2]).unwrap();
        assert_eq!(renewed.now().cert, second);
        std::fs::remove_file(&certificate).unwrap();
        assert_eq!(renewed.now().cert, second);
        assert_eq!(renewed.names()[0], "the-second.example");
        // Once the pair is whole it counts.
        std::fs::copy(&other, &certificate).unwrap();
        std::fs::copy(&other_key, &key).unwrap();
        let third = renewed.now().cert.clone();
        assert!(third != second && third != first);
        std::fs::write(&key, old_key).unwrap();
        assert_eq!(renewed.now().cert, third);
    }

    #[test]
    fn files_are_left_alone_between_two_looks() {
        let place = tempfile::tempdir().unwrap();
        let (certificate, key) = made(place.path(), "first.example");
        let renewed = CertificateFiles::looked_at(&certificate, &key, Duration::from_secs(3600)).unwrap();
        let first = renewed.now().cert.clone();
        made(place.path(), "second.example");
        assert_eq!(renewed.now().cert, first);
    }
}
