//! Issues the certificates of vaults and identities, by the authority of the emulated cloud or self-signed.
//!
//! An RSA key takes a third of a second to make, and longer ones take seconds, so a database makes a few and its certificates share them.
//! A certificate of an elliptic curve has a key of its own.

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
/// The number of different keys of 2048 bits; there is one of each other length.
const RSA_KEYS_MAX: usize = 4;

/// The type of the key of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyType {
    Rsa2048,
    Rsa3072,
    Rsa4096,
    P256,
    P384,
}

/// A certificate to be issued.
#[derive(Debug, Clone)]
pub(crate) struct CertificateOrder {
    /// The subject in the form `CN=name, O=organization`.
    pub(crate) subject: String,
    pub(crate) dns_names: Vec<String>,
    pub(crate) key_type: KeyType,
    /// The key in PEM, where a new certificate has the key of an earlier one.
    pub(crate) key_pem: Option<String>,
    /// Whether it is signed with its own key instead of that of the authority.
    pub(crate) self_signed: bool,
    /// Usages of the key in the spelling of X.509, such as `digitalSignature`.
    pub(crate) key_usages: Vec<String>,
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
            key_pem: None,
            self_signed: false,
            key_usages: ["digitalSignature", "keyEncipherment"].map(str::to_owned).to_vec(),
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
    let curve =
        |algorithm| Ok::<_, Failure>(KeyPair::generate_for(algorithm).map_err(failed)?.serialize_pem());
    let key_pem = match (&order.key_pem, order.key_type) {
        (Some(key), _) => key.clone(),
        (None, KeyType::Rsa2048) => rsa_key(cx, 2048, RSA_KEYS_MAX)?,
        (None, KeyType::Rsa3072) => rsa_key(cx, 3072, 1)?,
        (None, KeyType::Rsa4096) => rsa_key(cx, 4096, 1)?,
        (None, KeyType::P256) => curve(&rcgen::PKCS_ECDSA_P256_SHA256)?,
        (None, KeyType::P384) => curve(&rcgen::PKCS_ECDSA_P384_SHA384)?,
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
    params.key_usages = order.key_usages.iter().filter_map(|it| key_usage(it)).collect();
    params.extended_key_usages = order.usages.iter().filter_map(|it| usage(it)).collect();
    let moment = |time: Timestamp| {
        let seconds = u64::try_from(time.as_second()).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds)
    };
    (params.not_before, params.not_after) = (moment(order.not_before), moment(order.not_after));
    Ok(params)
}

/// A usage of the key by its name in X.509.
pub(crate) fn key_usage(name: &str) -> Option<KeyUsagePurpose> {
    Some(match name {
        "digitalSignature" => KeyUsagePurpose::DigitalSignature,
        "nonRepudiation" => KeyUsagePurpose::ContentCommitment,
        "keyEncipherment" => KeyUsagePurpose::KeyEncipherment,
        "dataEncipherment" => KeyUsagePurpose::DataEncipherment,
        "keyAgreement" => KeyUsagePurpose::KeyAgreement,
        "keyCertSign" => KeyUsagePurpose::KeyCertSign,
        "cRLSign" => KeyUsagePurpose::CrlSign,
        "encipherOnly" => KeyUsagePurpose::EncipherOnly,
        "decipherOnly" => KeyUsagePurpose::DecipherOnly,
        _ => return None,
    })
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

/// One of the database's RSA keys of a length, in PKCS#8 and PEM. Successive calls give different ones, up to `count`.
fn rsa_key(cx: &CallContext<'_>, bits: usize, count: usize) -> Result<String, Failure> {
    let counter = format!("rsa-keys-{bits}");
    let number: usize = database::record(cx.db, "meta", &counter)?.unwrap_or(0);
    database::write(cx.db, "meta", &counter, &(number + 1))?;
    let place = format!("{bits}-{}", number % count);
    if let Some(found) = database::record(cx.db, RSA_KEY, &place)? {
        return Ok(found);
    }
    let broken =
        |error: &dyn std::fmt::Display| Failure::Broken(format!("an RSA key cannot be made: {error}"));
    let key = rsa::RsaPrivateKey::new(&mut rsa::rand_core::OsRng, bits).map_err(|error| broken(&error))?;
    let pem = key.to_pkcs8_pem(LineEnding::LF).map_err(|error| broken(&error))?.to_string();
    database::write(cx.db, RSA_KEY, &place, &pem)?;
    Ok(pem)
}
