//! A private authority for those who bring none: it signs a certificate for the server and one for its operator. Made
//! once, kept across restarts, renewed before it ends. Everything is for its owner's eyes only.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use api::secret::Secret;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData as _,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::{FromDer as _, GeneralName};

use crate::config::{ClientRule, Config};

/// The common name of the operator's certificate.
pub const OPERATOR: &str = "shipshape-operator";

const AUTHORITY: &str = "Shipshape private authority";

/// How long an authority lives.
const AUTHORITY_DAYS: i64 = 3650;
/// It is replaced, with all that it signed, when less is left: what it signs must not outlive it.
const AUTHORITY_RENEWAL_DAYS: i64 = LEAF_DAYS + LEAF_RENEWAL_DAYS;
/// How long what it signs lives; some clients accept no more than 825 days.
const LEAF_DAYS: i64 = 397;
/// It is signed anew when less is left.
const LEAF_RENEWAL_DAYS: i64 = 90;

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file cannot be read or written.
    #[error("{} cannot be {doing}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A certificate cannot be made.
    #[error("a certificate cannot be made")]
    Make(#[from] rcgen::Error),
}

/// Where the certificates and keys are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pki {
    /// The authority's certificate.
    pub authority: PathBuf,
    /// The server's certificate.
    pub server: PathBuf,
    /// The server's key.
    pub server_key: PathBuf,
    /// The operator's certificate.
    pub operator: PathBuf,
    /// The operator's key.
    pub operator_key: PathBuf,
}

impl Pki {
    /// Makes sure that `directory` holds an authority, a server certificate for `localhost`, `127.0.0.1`, `::1` and the
    /// given names, and an operator's certificate, none of which ends soon.
    pub fn ensure(directory: &Path, names: &[String], now: Timestamp) -> Result<Pki, PkiError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|source| PkiError::Io { path: directory.to_owned(), doing: "made", source })?;
        let at = |name: &str| directory.join(name);
        let authority = Pair { certificate: at("ca.crt"), key: at("ca.key") };
        let server = Pair { certificate: at("server.crt"), key: at("server.key") };
        let operator = Pair { certificate: at("operator.crt"), key: at("operator.key") };

        let (issuer, is_new) = ensure_authority(&authority, now)?;
        let wanted = server_names(names);
        let holds = |found: &X509Certificate<'_>| wanted.iter().all(|name| has_name(found, name));
        if is_new || !server.is_good(now, LEAF_RENEWAL_DAYS, holds) {
            let mut params = CertificateParams::new(wanted.clone())?;
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            server.sign(params, "shipshape", &issuer, now)?;
        }
        if is_new || !operator.is_good(now, LEAF_RENEWAL_DAYS, |_| true) {
            let mut params = CertificateParams::new(Vec::new())?;
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            operator.sign(params, OPERATOR, &issuer, now)?;
        }
        Ok(Pki {
            authority: authority.certificate,
            server: server.certificate,
            server_key: server.key,
            operator: operator.certificate,
            operator_key: operator.key,
        })
    }

    /// Signs anew what ends soon, while the server runs: it takes its own new certificate by itself. Whether anything is new.
    ///
    /// The authority stays: whoever runs knows the one that it began with. When that must be replaced, the next start does it,
    /// which is more than a year before it ends.
    pub fn renew(&self, names: &[String], now: Timestamp) -> Result<bool, PkiError> {
        let Some(directory) = self.authority.parent() else { return Ok(false) };
        let authority = Pair { certificate: self.authority.clone(), key: directory.join("ca.key") };
        if !authority.is_good(now, AUTHORITY_RENEWAL_DAYS, |found| found.is_ca()) {
            tracing::warn!("The authority of {} is replaced at the next start", directory.display());
            return Ok(false);
        }
        let before = (read(&self.server)?, read(&self.operator)?);
        Pki::ensure(directory, names, now)?;
        Ok(before != (read(&self.server)?, read(&self.operator)?))
    }

    /// Fills in what the settings leave open: the server's certificate, and the operator's place on the list.
    pub fn complete(&self, config: &mut Config) {
        if config.certificate.is_none() && config.key.is_none() {
            config.certificate = Some(self.server.clone());
            config.key = Some(self.server_key.clone());
        }
        if config.client_ca.is_none() {
            config.client_ca = Some(self.authority.clone());
            let operator = ClientRule::Name(OPERATOR.to_owned());
            if !config.operators.contains(&operator) {
                config.operators.push(operator);
            }
        }
    }

    /// The authority's certificate, in PEM.
    pub fn authority_pem(&self) -> Result<String, PkiError> {
        read(&self.authority)
    }

    /// The operator's certificate and key, in PEM.
    pub fn operator_pem(&self) -> Result<(String, Secret<String>), PkiError> {
        Ok((read(&self.operator)?, Secret::new(read(&self.operator_key)?)))
    }
}

/// A certificate and its key.
#[derive(Debug)]
struct Pair {
    certificate: PathBuf,
    key: PathBuf,
}

impl Pair {
    /// Whether both are there, belong together, last for some days and hold what is wanted.
    fn is_good(&self, now: Timestamp, days: i64, holds: impl Fn(&X509Certificate<'_>) -> bool) -> bool {
        let Ok(certificate) = CertificateDer::from_pem_file(&self.certificate) else { return false };
        let Ok((_, found)) = X509Certificate::from_der(&certificate) else { return false };
        let Some(key) = read(&self.key).ok().and_then(|text| KeyPair::from_pem(&text).ok()) else {
            return false;
        };
        let lasts = found.validity().not_after.timestamp() - now.as_second() > days * 24 * 60 * 60;
        let has_begun = found.validity().not_before.timestamp() <= now.as_second();
        lasts && has_begun && found.public_key().raw == key.subject_public_key_info() && holds(&found)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        name: &str,
        issuer: &Issuer<'_, KeyPair>,
        now: Timestamp,
    ) -> Result<(), PkiError> {
        let key = KeyPair::generate()?;
        params.distinguished_name = named(name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        limit(&mut params, now, LEAF_DAYS);
        let signed = params.signed_by(&key, issuer)?;
        self.keep(&signed.pem(), &key)
    }

    fn keep(&self, certificate: &str, key: &KeyPair) -> Result<(), PkiError> {
        write(&self.key, &key.serialize_pem())?;
        write(&self.certificate, certificate)
    }
}

/// The authority that is kept, or a new one.
fn ensure_authority(pair: &Pair, now: Timestamp) -> Result<(Issuer<'static, KeyPair>, bool), PkiError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.distinguished_name = named(AUTHORITY);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    limit(&mut params, now, AUTHORITY_DAYS);
    if pair.is_good(now, AUTHORITY_RENEWAL_DAYS, |found| found.is_ca()) {
        // Its name and key are all that a signature needs of it.
        let key = KeyPair::from_pem(&read(&pair.key)?)?;
        return Ok((Issuer::new(params, key), false));
    }
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    pair.keep(&certificate.pem(), &key)?;
    Ok((Issuer::new(params, key), true))
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// From yesterday, for clocks that are behind, until some days from now.
fn limit(params: &mut CertificateParams, now: Timestamp, days: i64) {
    let day = |offset: i64| {
        let moment = now.saturating_add(SignedDuration::from_hours(24 * offset)).unwrap_or(Timestamp::MAX);
        let date = moment.to_zoned(jiff::tz::TimeZone::UTC).date();
        // Years beyond 9999 cannot be written in a certificate; jiff does not know them either.
        let part = |number: i8| u8::try_from(number).unwrap_or(1);
        rcgen::date_time_ymd(i32::from(date.year()), part(date.month()), part(date.day()))
    };
    params.not_before = day(-1);
    params.not_after = day(days);
}

fn server_names(more: &[String]) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    for name in more {
        let name = name.to_ascii_lowercase();
        // A host may be called by anything; a certificate cannot.
        let is_name = !name.is_empty()
            && name.len() <= 253
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte));
        if is_name && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn has_name(certificate: &X509Certificate<'_>, wanted: &str) -> bool {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return false };
    let address: Option<std::net::IpAddr> = wanted.parse().ok();
    extension.value.general_names.iter().any(|name| match (name, address) {
        (GeneralName::DNSName(name), None) => name.eq_ignore_ascii_case(wanted),
        (GeneralName::IPAddress(bytes), Some(std::net::IpAddr::V4(v4))) => *bytes == v4.octets(),
        (GeneralName::IPAddress(bytes), Some(std::net::IpAddr::V6(v6))) => *bytes == v6.octets(),
        _ => false,
    })
}

fn read(path: &Path) -> Result<String, PkiError> {
    fs::read_to_string(path).map_err(|source| PkiError::Io { path: path.to_owned(), doing: "read", source })
}

/// Replaces a file as a whole; it is for its owner's eyes only from the first byte on.
fn write(path: &Path, text: &str) -> Result<(), PkiError> {
    let beside = path.with_extension("new");
    let written = (|| {
        let _ = fs::remove_file(&beside);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    written.map_err(|source| PkiError::Io { path: path.to_owned(), doing: "written", source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn all(pki: &Pki) -> Vec<String> {
        let files = [&pki.authority, &pki.server, &pki.server_key, &pki.operator, &pki.operator_key];
        files.map(|path| read(path).unwrap()).to_vec()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn certificates_are_kept_and_only_what_ends_soon_is_signed_anew() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("pki");
        let ensure = |now: &str| all(&Pki::ensure(&directory, &["Host-1".to_owned()], at(now)).unwrap());
        let first = ensure("2026-01-01T00:00:00Z");
        assert_eq!(ensure("2026-06-01T00:00:00Z"), first);
        let second = ensure("2027-01-01T00:00:00Z");
        assert_eq!(second[0], first[0]);
        assert!(second[1..].iter().zip(&first[1..]).all(|(new, old)| new != old));
        let third = ensure("2035-01-01T00:00:00Z");
        assert!(third.iter().zip(&second).all(|(new, old)| new != old));
    }

    #[test]
    fn a_new_name_or_a_lost_file_makes_only_that_certificate_new() {
        let place = tempfile::tempdir().unwrap();
        let now = at("2026-01-01T00:00:00Z");
        let ensure = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            Pki::ensure(place.path(), &names, now).unwrap()
        };
        let pki = ensure(&["a"]);
        let first = all(&pki);
        let second = all(&ensure(&["a", "b.example", "10.0.0.1", "not a name!"]));
        assert_eq!((&second[0], &second[3]), (&first[0], &first[3]));
        assert_ne!(second[1], first[1]);
        assert_eq!(all(&ensure(&["a"])), second);
        fs::remove_file(&pki.operator_key).unwrap();
        let third = all(&ensure(&["a"]));
        assert_eq!((&third[0], &third[1]), (&second[0], &second[1]));
        assert_ne!(third[3], second[3]);
    }

    #[test]
    fn a_running_server_renews_its_leaves_and_never_its_authority() {
        let place = tempfile::tempdir().unwrap();
        let pki = Pki::ensure(place.path(), &[], at("2026-01-01T00:00:00Z")).unwrap();
        let first = all(&pki);
        assert!(!pki.renew(&[], at("2026-06-01T00:00:00Z")).unwrap());
        assert!(pki.renew(&[], at("2027-01-01T00:00:00Z")).unwrap());
        let second = all(&pki);
        assert_eq!(second[0], first[0]);
        assert!(second[1..].iter().zip(&first[1..]).all(|(new, old)| new != old));
        assert!(!pki.renew(&[], at("2035-01-01T00:00:00Z")).unwrap());
        assert_eq!(all(&pki), second);
    }

    #[test]
    fn nobody_else_reads_the_files() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("pki");
        let pki = Pki::ensure(&directory, &[], at("2026-01-01T00:00:00Z")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&directory), 0o700);
        for name in ["ca.crt", "ca.key", "server.crt", "server.key", "operator.crt", "operator.key"] {
            assert_eq!(mode(&directory.join(name)), 0o600, "{name}");
        }
        let mut config = Config::default();
        pki.complete(&mut config);
        assert_eq!(config.problems(), Vec::<String>::new());
    }
}
