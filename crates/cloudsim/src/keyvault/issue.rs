//! Issues the certificates of vaults and identities, by the authority of the emulated cloud or self-signed.
//!
//! An RSA key takes a third of a second to make, so a database makes a few and its certificates share them. A certificate of an elliptic
//! curve has a key of its own.

use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rsa::pkcs8::{EncodePrivateKey as _, LineEnding};
use serve::pki::PkiError;

use crate::call_context::CallContext;
use crate::database;
use crate::failure::Failure;
use crate::keyvault::authority;

const RSA_KEY: &str = "rsa-key";
const RSA_KEYS_MAX: usize = 4;
const RSA_BITS: usize = 2048;

/// The type of the key of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyType {
    Rsa,
    EllipticCurve,
}

/// A certificate to be issued.
#[derive(Debug, Clone)]
pub(crate) struct CertificateOrder {
    /// The subject in the form `CN=name, O=organization`.
    pub(crate) subject: String,
    pub(crate) dns_names: Vec<String>,
    pub(crate) key_type: KeyType,
    /// Whether it is signed with its own key instead of that of the authority.
    pub(crate) self_signed: bool,
    /// Object identifiers of extended key usages.
    pub(crate) usages: Vec<String>,
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

impl CertificateOrder {
    /// An order whose times are still to be set.
    pub(crate) fn new(subject: &str, key_type: KeyType) -> CertificateOrder {
        CertificateOrder {
            subject: subject.to_owned(),
            dns_names: Vec::new(),
            key_type,
            self_signed: false,
            usages: Vec::new(),
            not_before: Timestamp::UNIX_EPOCH,
            not_after: Timestamp::UNIX_EPOCH,
        }
    }
}

/// An issued certificate.
pub(crate) struct Issued {
    pub(crate) der: Vec<u8>,
    /// The signing request, in DER.
    pub(crate) request: Vec<u8>,
    /// The certificate, then its issuer's.
    pub(crate) chain_pem: String,
    pub(crate) key_pem: String,
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

/// The time some months later.
pub(crate) fn months_later(from: Timestamp, months: i64) -> Timestamp {
    let later = from.to_zoned(TimeZone::UTC).checked_add(months.clamp(1, 1200).months());
    later.map_or(Timestamp::MAX, |it| it.timestamp())
}

/// Issues a certificate.
pub(crate) fn issue(cx: &CallContext<'_>, order: &CertificateOrder) -> Result<Issued, Failure> {
    let failed = |error: rcgen::Error| Failure::from(PkiError::from(error));
    let key_pem = match order.key_type {
        KeyType::Rsa => rsa_key(cx)?,
        KeyType::EllipticCurve => KeyPair::generate().map_err(failed)?.serialize_pem(),
    };
    let key = KeyPair::from_pem(&key_pem).map_err(failed)?;
    let mut params = params(order).map_err(failed)?;
    let request = params.serialize_request(&key).map_err(failed)?.der().to_vec();
    // A request cannot have it.
    params.use_authority_key_identifier_extension = true;
    let (certificate, issuer_pem) = match order.self_signed {
        true => (params.self_signed(&key).map_err(failed)?, String::new()),
        false => {
            let pair = authority::authority(cx)?.pair();
            let mut authority = CertificateParams::new(Vec::new()).map_err(failed)?;
            authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            authority.distinguished_name =
                name(&[(DnType::CommonName, authority::AUTHORITY_NAME.to_owned())]);
            authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            let issuer = Issuer::new(authority, KeyPair::from_pem(&pair.key).map_err(failed)?);
            (params.signed_by(&key, &issuer).map_err(failed)?, pair.certificate)
        }
    };
    Ok(Issued {
        der: certificate.der().to_vec(),
        request,
        chain_pem: format!("{}{issuer_pem}", certificate.pem()),
        key_pem,
        not_before: whole(order.not_before),
        not_after: whole(order.not_after),
    })
}

/// Whole seconds, so that the stored time equals that of the certificate.
fn whole(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn params(order: &CertificateOrder) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(order.dns_names.clone())?;
    params.distinguished_name = name(&subject(&order.subject));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = order.usages.iter().filter_map(|it| usage(it)).collect();
    let moment = |time: Timestamp| {
        let seconds = u64::try_from(time.as_second()).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds)
    };
    (params.not_before, params.not_after) = (moment(order.not_before), moment(order.not_after));
    Ok(params)
}

fn usage(oid: &str) -> Option<ExtendedKeyUsagePurpose> {
    match oid {
        "1.3.6.1.5.5.7.3.1" => Some(ExtendedKeyUsagePurpose::ServerAuth),
        "1.3.6.1.5.5.7.3.2" => Some(ExtendedKeyUsagePurpose::ClientAuth),
        other => {
            let arcs: Option<Vec<u64>> = other.split('.').map(|it| it.parse().ok()).collect();
            arcs.filter(|it| it.len() > 2).map(ExtendedKeyUsagePurpose::Other)
        }
    }
}

fn name(parts: &[(DnType, String)]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for (kind, value) in parts {
        name.push(kind.clone(), value.as_str());
    }
    name
}

/// The parts of a subject such as `CN=api.example.org, O=Example`.
fn subject(text: &str) -> Vec<(DnType, String)> {
    text.split(',')
        .filter_map(|part| part.split_once('='))
        .filter_map(|(kind, value)| {
            let kind = match kind.trim().to_ascii_uppercase().as_str() {
                "CN" => DnType::CommonName,
                "O" => DnType::OrganizationName,
                "OU" => DnType::OrganizationalUnitName,
                "C" => DnType::CountryName,
                "L" => DnType::LocalityName,
                "ST" | "S" => DnType::StateOrProvinceName,
                _ => return None,
            };
            Some((kind, value.trim().trim_matches('"').to_owned()))
        })
        .collect()
}

/// One of the database's RSA keys, in PKCS#8 and PEM. Successive calls give different ones.
fn rsa_key(cx: &CallContext<'_>) -> Result<String, Failure> {
    let number: usize = database::record(cx.db, "meta", "rsa-keys")?.unwrap_or(0);
    database::write(cx.db, "meta", "rsa-keys", &(number + 1))?;
    let place = (number % RSA_KEYS_MAX).to_string();
    if let Some(found) = database::record(cx.db, RSA_KEY, &place)? {
        return Ok(found);
    }
    let broken =
        |error: &dyn std::fmt::Display| Failure::Broken(format!("an RSA key cannot be made: {error}"));
    let key =
        rsa::RsaPrivateKey::new(&mut rsa::rand_core::OsRng, RSA_BITS).map_err(|error| broken(&error))?;
    let pem = key.to_pkcs8_pem(LineEnding::LF).map_err(|error| broken(&error))?.to_string();
    database::write(cx.db, RSA_KEY, &place, &pem)?;
    Ok(pem)
}
