//! The directory of a private authority with a certificate for the server and one for its operator. They are issued once, kept
//! across restarts and renewed before they expire. Only the owner of the directory may read it.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::{FromDer as _, GeneralName};

use super::{CertificateAuthority, CertificatePair, CertificateRequest, PkiError, Purpose, Validity};
use crate::write_private;

/// The common name of the operator's certificate.
pub const OPERATOR_NAME: &str = "shipshape-operator";

/// The common name of the authority. Directories of earlier releases have it in their certificates.
const AUTHORITY_NAME: &str = "Shipshape private authority";
/// The common name of the server's certificate.
const SERVER_NAME: &str = "shipshape";

const AUTHORITY_DAYS: i64 = 3650;
/// The authority is replaced, with everything that it signed, when less is left: a certificate must not outlive its issuer.
const AUTHORITY_RENEWAL_DAYS: i64 = LEAF_DAYS + LEAF_RENEWAL_DAYS;
/// Some clients accept at most 825 days.
const LEAF_DAYS: i64 = 397;
/// A certificate is renewed when less is left.
const LEAF_RENEWAL_DAYS: i64 = 90;

/// The files of a private authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PkiDirectory {
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

impl PkiDirectory {
    /// Ensures that `directory` has an authority, a server certificate for `localhost`, `127.0.0.1`, `::1` and `names`, and an
    /// operator certificate, and that none of them expires soon.
    pub fn ensure(directory: &Path, names: &[String], now: Timestamp) -> Result<PkiDirectory, PkiError> {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        created.map_err(|source| PkiError::Io { path: directory.to_owned(), action: "create", source })?;
        let at = |name: &str| directory.join(name);
        let authority = PairFiles { certificate: at("ca.crt"), key: at("ca.key") };
        let server = PairFiles { certificate: at("server.crt"), key: at("server.key") };
        let operator = PairFiles { certificate: at("operator.crt"), key: at("operator.key") };

        let (issuer, is_new) = ensure_authority(&authority, now)?;
        let validity = Validity::days(now, LEAF_DAYS);
        let names = server_names(names);
        let has_names = |found: &X509Certificate<'_>| names.iter().all(|name| has_name(found, name));
        if is_new || !server.is_usable(now, LEAF_RENEWAL_DAYS, has_names) {
            server.write(&issuer.issue(&CertificateRequest {
                common_name: SERVER_NAME,
                organization: None,
                alternative_names: names.clone(),
                purpose: Purpose::Server,
                validity,
            })?)?;
        }
        if is_new || !operator.is_usable(now, LEAF_RENEWAL_DAYS, |_| true) {
            operator.write(&issuer.issue(&CertificateRequest {
                common_name: OPERATOR_NAME,
                organization: None,
                alternative_names: Vec::new(),
                purpose: Purpose::Client,
                validity,
            })?)?;
        }
        Ok(PkiDirectory {
            authority: authority.certificate,
            server: server.certificate,
            server_key: server.key,
            operator: operator.certificate,
            operator_key: operator.key,
        })
    }

    /// Renews the certificates that expire soon while the server runs (it reloads its own), and returns whether any changed.
    ///
    /// The authority stays, because running processes trust the one that they started with. It is replaced at the next start,
    /// more than a year before it expires.
    pub fn renew(&self, names: &[String], now: Timestamp) -> Result<bool, PkiError> {
        let Some(directory) = self.authority.parent() else { return Ok(false) };
        let authority = PairFiles { certificate: self.authority.clone(), key: directory.join("ca.key") };
        if !authority.is_usable(now, AUTHORITY_RENEWAL_DAYS, |found| found.is_ca()) {
            tracing::warn!("The authority in {} expires soon; restart to replace it", directory.display());
            return Ok(false);
        }
        let before = (read(&self.server)?, read(&self.operator)?);
        PkiDirectory::ensure(directory, names, now)?;
        Ok(before != (read(&self.server)?, read(&self.operator)?))
    }

    /// The authority's certificate, in PEM.
    pub fn authority_pem(&self) -> Result<String, PkiError> {
        read(&self.authority)
    }

    /// The operator's certificate and key, in PEM.
    pub fn operator_pair(&self) -> Result<CertificatePair, PkiError> {
        Ok(CertificatePair { certificate: read(&self.operator)?, key: read(&self.operator_key)? })
    }
}

/// The files of a certificate and its key.
#[derive(Debug)]
struct PairFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl PairFiles {
    /// Whether both exist and belong together, the certificate is valid for more than `days`, and it satisfies `predicate`.
    fn is_usable(&self, now: Timestamp, days: i64, predicate: impl Fn(&X509Certificate<'_>) -> bool) -> bool {
        let Ok(certificate) = CertificateDer::from_pem_file(&self.certificate) else { return false };
        let Ok((_, found)) = X509Certificate::from_der(&certificate) else { return false };
        let Some(key) = read(&self.key).ok().and_then(|text| KeyPair::from_pem(&text).ok()) else {
            return false;
        };
        let has_started = found.validity().not_before.timestamp() <= now.as_second();
        let lasts = found.validity().not_after.timestamp() - now.as_second() > days * 24 * 60 * 60;
        let is_pair = found.public_key().raw == key.subject_public_key_info();
        has_started && lasts && is_pair && predicate(&found)
    }

    fn write(&self, pair: &CertificatePair) -> Result<(), PkiError> {
        write(&self.key, &pair.key)?;
        write(&self.certificate, &pair.certificate)
    }
}

/// The stored authority, or a new one; whether it is new.
fn ensure_authority(files: &PairFiles, now: Timestamp) -> Result<(CertificateAuthority, bool), PkiError> {
    if files.is_usable(now, AUTHORITY_RENEWAL_DAYS, |found| found.is_ca()) {
        let pair = CertificatePair { certificate: read(&files.certificate)?, key: read(&files.key)? };
        return Ok((CertificateAuthority::from_pem(AUTHORITY_NAME, pair)?, false));
    }
    let authority = CertificateAuthority::generate(AUTHORITY_NAME, Validity::days(now, AUTHORITY_DAYS))?;
    files.write(&authority.pair())?;
    Ok((authority, true))
}

fn server_names(more: &[String]) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    for name in more {
        let name = name.to_ascii_lowercase();
        // Host names of machines may have characters that a certificate cannot have.
        let is_valid = !name.is_empty()
            && name.len() <= 253
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte));
        if is_valid && !names.contains(&name) {
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
    fs::read_to_string(path).map_err(|source| PkiError::Io { path: path.to_owned(), action: "read", source })
}

fn write(path: &Path, text: &str) -> Result<(), PkiError> {
    write_private(path, text).map_err(|source| PkiError::Io {
        path: path.to_owned(),
        action: "write",
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyUsagePurpose,
    };

    use super::*;

    fn contents(pki: &PkiDirectory) -> Vec<String> {
        let files = [&pki.authority, &pki.server, &pki.server_key, &pki.operator, &pki.operator_key];
        files.map(|path| read(path).unwrap()).to_vec()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn certificates_are_kept_and_renewed_when_they_expire_soon() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pki");
        let ensure =
            |now: &str| contents(&PkiDirectory::ensure(&path, &["Host-1".to_owned()], at(now)).unwrap());
        let first = ensure("2026-01-01T00:00:00Z");
        assert_eq!(ensure("2026-06-01T00:00:00Z"), first);
        let second = ensure("2027-01-01T00:00:00Z");
        assert_eq!(second[0], first[0]);
        assert!(second[1..].iter().zip(&first[1..]).all(|(new, old)| new != old));
        let third = ensure("2035-01-01T00:00:00Z");
        assert!(third.iter().zip(&second).all(|(new, old)| new != old));
    }

    #[test]
    fn a_new_name_or_a_lost_file_replaces_only_that_certificate() {
        let directory = tempfile::tempdir().unwrap();
        let now = at("2026-01-01T00:00:00Z");
        let ensure = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            PkiDirectory::ensure(directory.path(), &names, now).unwrap()
        };
        let pki = ensure(&["a"]);
        let first = contents(&pki);
        let second = contents(&ensure(&["a", "b.example", "10.0.0.1", "not a name!"]));
        assert_eq!((&second[0], &second[3]), (&first[0], &first[3]));
        assert_ne!(second[1], first[1]);
        assert_eq!(contents(&ensure(&["a"])), second);
        fs::remove_file(&pki.operator_key).unwrap();
        let third = contents(&ensure(&["a"]));
        assert_eq!((&third[0], &third[1]), (&second[0], &second[1]));
        assert_ne!(third[3], second[3]);
    }

    #[test]
    fn a_running_server_renews_its_certificates_and_never_its_authority() {
        let directory = tempfile::tempdir().unwrap();
        let pki = PkiDirectory::ensure(directory.path(), &[], at("2026-01-01T00:00:00Z")).unwrap();
        let first = contents(&pki);
        assert!(!pki.renew(&[], at("2026-06-01T00:00:00Z")).unwrap());
        assert!(pki.renew(&[], at("2027-01-01T00:00:00Z")).unwrap());
        let second = contents(&pki);
        assert_eq!(second[0], first[0]);
        assert!(second[1..].iter().zip(&first[1..]).all(|(new, old)| new != old));
        assert!(!pki.renew(&[], at("2035-01-01T00:00:00Z")).unwrap());
        assert_eq!(contents(&pki), second);
    }

    #[test]
    fn only_the_owner_may_read_the_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pki");
        PkiDirectory::ensure(&path, &[], at("2026-01-01T00:00:00Z")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        for name in ["ca.crt", "ca.key", "server.crt", "server.key", "operator.crt", "operator.key"] {
            assert_eq!(mode(&path.join(name)), 0o600, "{name}");
        }
    }

    /// Writes the files as releases before this module did: the same names and extensions, valid in whole days.
    fn write_earlier_release(directory: &Path) {
        let params = |names: &[&str], common_name: &str, end: i32| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let mut params = CertificateParams::new(names).unwrap();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, common_name);
            params.not_before = rcgen::date_time_ymd(2025, 12, 31);
            params.not_after = rcgen::date_time_ymd(end, 2, 1);
            params
        };
        let write_pair = |name: &str, certificate: &str, key: &KeyPair| {
            fs::write(directory.join(format!("{name}.crt")), certificate).unwrap();
            fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).unwrap();
        };
        let mut authority = params(&[], "Shipshape private authority", 2035);
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        write_pair("ca", &authority.self_signed(&key).unwrap().pem(), &key);
        let issuer = Issuer::new(authority, key);
        for (name, common_name, names, usage) in [
            (
                "server",
                "shipshape",
                &["localhost", "127.0.0.1", "::1"][..],
                ExtendedKeyUsagePurpose::ServerAuth,
            ),
            ("operator", "shipshape-operator", &[], ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            let mut leaf = params(names, common_name, 2027);
            leaf.extended_key_usages = vec![usage];
            leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            leaf.use_authority_key_identifier_extension = true;
            let key = KeyPair::generate().unwrap();
            write_pair(name, &leaf.signed_by(&key, &issuer).unwrap().pem(), &key);
        }
    }

    #[test]
    fn the_directory_of_an_earlier_release_is_used_and_its_authority_still_signs() {
        let directory = tempfile::tempdir().unwrap();
        write_earlier_release(directory.path());
        let ensure = |now: &str| PkiDirectory::ensure(directory.path(), &[], at(now)).unwrap();
        let before = ["ca", "server", "operator"].map(|name| {
            let path = |extension: &str| directory.path().join(format!("{name}.{extension}"));
            (read(&path("crt")).unwrap(), read(&path("key")).unwrap())
        });
        let pki = ensure("2026-06-01T00:00:00Z");
        let kept = contents(&pki);
        assert_eq!(kept[0], before[0].0);
        assert_eq!((&kept[1], &kept[2]), (&before[1].0, &before[1].1));
        assert_eq!((&kept[3], &kept[4]), (&before[2].0, &before[2].1));

        let renewed = contents(&ensure("2027-01-01T00:00:00Z"));
        assert_eq!(renewed[0], kept[0]);
        assert_ne!(renewed[3], kept[3]);
        let authority = crate::tls::ClientAuthority::open(&pki.authority).unwrap();
        let operator = CertificateDer::from_pem_file(&pki.operator).unwrap();
        let now = std::time::Duration::from_secs(at("2027-01-01T00:00:00Z").as_second().unsigned_abs());
        authority.verify(&[operator], rustls::pki_types::UnixTime::since_unix_epoch(now)).unwrap();
    }
}
