//! The server's certificate in files. It is reloaded when its files change, so that a renewed certificate needs no restart.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::time::Instant;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::{FromDer as _, GeneralName};

use super::{TlsError, certificates, provider};

/// Shortest time between two checks of the files. They are checked only when a client connects.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// A certificate and its key, as their files are now.
#[derive(Debug)]
pub struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    check_interval: Duration,
    loaded: Mutex<LoadedPair>,
}

/// The pair that was read last, and the state of its files at that time.
#[derive(Debug)]
struct LoadedPair {
    pair: Arc<CertifiedKey>,
    names: Arc<[String]>,
    stamps: [FileStamp; 2],
    checked: Instant,
}

/// Time of the last write and length of a file; none when the file is missing.
type FileStamp = Option<(Option<SystemTime>, u64)>;

impl CertificateFiles {
    /// Reads both files; the key must belong to the certificate.
    pub fn open(certificate: &Path, key: &Path) -> Result<Arc<CertificateFiles>, TlsError> {
        CertificateFiles::with_interval(certificate, key, CHECK_INTERVAL).map(Arc::new)
    }

    fn with_interval(
        certificate: &Path,
        key: &Path,
        check_interval: Duration,
    ) -> Result<CertificateFiles, TlsError> {
        // Before the files are read: a change in between is read at the next check.
        let stamps = [stamp(certificate), stamp(key)];
        let pair = Arc::new(read_pair(certificate, key)?);
        let loaded = LoadedPair { names: subject_names(&pair), pair, stamps, checked: Instant::now() };
        Ok(CertificateFiles {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            check_interval,
            loaded: Mutex::new(loaded),
        })
    }

    /// The DNS names and addresses that the certificate is valid for.
    pub fn names(&self) -> Arc<[String]> {
        self.current().names.clone()
    }

    fn pair(&self) -> Arc<CertifiedKey> {
        self.current().pair.clone()
    }

    /// The current pair, reloaded if its files have changed. While they cannot be used, for example between the writes of the two
    /// files, the previous pair stays in use.
    fn current(&self) -> MutexGuard<'_, LoadedPair> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.checked.elapsed() < self.check_interval {
            return loaded;
        }
        loaded.checked = Instant::now();
        let stamps = [stamp(&self.certificate), stamp(&self.key)];
        if stamps != loaded.stamps {
            match read_pair(&self.certificate, &self.key) {
                Ok(pair) => {
                    tracing::info!("Reloaded the server certificate {}", self.certificate.display());
                    loaded.pair = Arc::new(pair);
                    loaded.names = subject_names(&loaded.pair);
                    loaded.stamps = stamps;
                }
                // Logged at every check until the files are valid again.
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "Cannot reload the server certificate, keeping the previous one: {error}"
                ),
            }
        }
        loaded
    }
}

impl ResolvesServerCert for CertificateFiles {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.pair())
    }
}

/// The subject alternative names of a certificate; none if they cannot be parsed.
fn subject_names(pair: &CertifiedKey) -> Arc<[String]> {
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

fn stamp(path: &Path) -> FileStamp {
    std::fs::metadata(path).ok().map(|metadata| (metadata.modified().ok(), metadata.len()))
}

/// Reads a certificate with its chain and its key.
fn read_pair(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(certificate)?;
    let unreadable = |source| TlsError::Unreadable { path: key.to_owned(), source };
    let private = PrivateKeyDer::from_pem_file(key).map_err(unreadable)?;
    CertifiedKey::from_der(chain, private, &provider())
        .map_err(|error| TlsError::unusable(certificate, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a certificate for `name` and its key into `directory`.
    fn write_pair(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
        let names = vec![name.to_owned(), "192.0.2.7".to_owned(), "::1".to_owned()];
        let generated = rcgen::generate_simple_self_signed(names).unwrap();
        let (certificate, key) = (directory.join("server.crt"), directory.join("server.key"));
        std::fs::write(&certificate, generated.cert.pem()).unwrap();
        std::fs::write(&key, generated.signing_key.serialize_pem()).unwrap();
        (certificate, key)
    }

    #[test]
    fn a_renewed_pair_is_loaded_and_a_broken_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = write_pair(directory.path(), "first.example");
        let files = CertificateFiles::with_interval(&certificate, &key, Duration::ZERO).unwrap();
        let first = files.pair().cert.clone();
        assert_eq!(files.pair().cert, first);
        assert_eq!(*files.names(), ["first.example", "192.0.2.7", "::1"]);
        write_pair(directory.path(), "the-second.example");
        let second = files.pair().cert.clone();
        assert_ne!(second, first);
        assert_eq!(files.names()[0], "the-second.example");

        // A certificate without its key, a truncated one and a missing one: the previous pair stays.
        let (whole, old_key) = (std::fs::read(&certificate).unwrap(), std::fs::read(&key).unwrap());
        let other = tempfile::tempdir().unwrap();
        let (other, other_key) = write_pair(other.path(), "another-one.example");
        std::fs::copy(&other, &certificate).unwrap();
        assert_eq!(files.pair().cert, second);
        std::fs::write(&certificate, &whole[..whole.len() / 2]).unwrap();
        assert_eq!(files.pair().cert, second);
        std::fs::remove_file(&certificate).unwrap();
        assert_eq!(files.pair().cert, second);
        assert_eq!(files.names()[0], "the-second.example");
        // A complete pair is loaded.
        std::fs::copy(&other, &certificate).unwrap();
        std::fs::copy(&other_key, &key).unwrap();
        let third = files.pair().cert.clone();
        assert!(third != second && third != first);
        std::fs::write(&key, old_key).unwrap();
        assert_eq!(files.pair().cert, third);
    }

    #[test]
    fn files_are_not_read_between_two_checks() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = write_pair(directory.path(), "first.example");
        let files = CertificateFiles::with_interval(&certificate, &key, Duration::from_secs(3600)).unwrap();
        let first = files.pair().cert.clone();
        write_pair(directory.path(), "second.example");
        assert_eq!(files.pair().cert, first);
    }
}
