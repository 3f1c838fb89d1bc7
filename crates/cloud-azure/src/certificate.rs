//! Assertions of an application that proves itself with a certificate: an RS256 JWT of our own, so that no OpenSSL is needed.

use std::fmt;

use api::clock::{Clock as _, SystemClock};
use api::secret::Secret;
use azure_core::error::{Error, ErrorKind};
use azure_core::http::ClientMethodOptions;
use azure_identity::ClientAssertion;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Serialize;
use sha1::Digest as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::public_key::PublicKey;

use crate::settings::SettingsError;

/// Validity of an assertion, in seconds.
const VALIDITY: u64 = 600;

pub(crate) struct CertificateAssertion {
    key: EncodingKey,
    header: Header,
    client_id: String,
    audience: String,
}

impl fmt::Debug for CertificateAssertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAssertion").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct Claims<'a> {
    aud: &'a str,
    iss: &'a str,
    sub: &'a str,
    jti: String,
    iat: u64,
    nbf: u64,
    exp: u64,
}

impl CertificateAssertion {
    /// The assertion of the first certificate of a PEM, whose key is in the same PEM.
    pub(crate) fn new(
        pem: &Secret<String>,
        client_id: &str,
        audience: &str,
    ) -> Result<CertificateAssertion, SettingsError> {
        let wrong = |why: &str| SettingsError { setting: "client_certificate_file", why: why.to_owned() };
        let text = pem.expose();
        let chain: Vec<CertificateDer<'_>> =
            CertificateDer::pem_slice_iter(text.as_bytes()).filter_map(Result::ok).collect();
        let Some(first) = chain.first() else {
            return Err(wrong("holds no certificate; expected certificate and RSA key in PEM"));
        };
        if block(text, "ENCRYPTED PRIVATE KEY").is_some() {
            return Err(wrong("holds an encrypted private key; expected one without a password"));
        }
        let key = ["PRIVATE KEY", "RSA PRIVATE KEY"].into_iter().find_map(|label| block(text, label));
        let key = match key {
            Some(key) => EncodingKey::from_rsa_pem(key.as_bytes())
                .map_err(|_| wrong("holds a private key that is not RSA; expected PKCS#8 or PKCS#1"))?,
            None if block(text, "EC PRIVATE KEY").is_some() => {
                return Err(wrong("holds a private key that is not RSA; expected PKCS#8 or PKCS#1"));
            }
            None => return Err(wrong("holds no private key; expected certificate and RSA key in PEM")),
        };
        check(first, &key, SystemClock.now().as_second())
            .map_err(|why| SettingsError { setting: "client_certificate_file", why })?;
        let mut header = Header::new(Algorithm::RS256);
        header.x5t = Some(URL_SAFE_NO_PAD.encode(sha1::Sha1::digest(first)));
        header.x5t_s256 = Some(URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(first)));
        header.x5c = Some(chain.iter().map(|it| STANDARD.encode(it)).collect());
        Ok(CertificateAssertion {
            key,
            header,
            client_id: client_id.to_owned(),
            audience: audience.to_owned(),
        })
    }

    fn sign(&self) -> Result<String, jsonwebtoken::errors::Error> {
        // The time of the machine: Entra ID compares it with its own.
        let now = u64::try_from(SystemClock.now().as_second()).unwrap_or_default();
        let claims = Claims {
            aud: &self.audience,
            iss: &self.client_id,
            sub: &self.client_id,
            jti: uuid::Uuid::new_v4().to_string(),
            iat: now,
            nbf: now.saturating_sub(60),
            exp: now + VALIDITY,
        };
        jsonwebtoken::encode(&self.header, &claims, &self.key)
    }
}

/// The block of a label, with the lines that begin and end it.
fn block<'a>(pem: &'a str, label: &str) -> Option<&'a str> {
    let start = pem.find(&format!("-----BEGIN {label}-----"))?;
    let end_line = format!("-----END {label}-----");
    let end = pem[start..].find(&end_line)? + end_line.len();
    Some(&pem[start..start + end])
}

/// Checks that a certificate is valid now and belongs to the key, both of which the authority would say less clearly.
fn check(certificate: &CertificateDer<'_>, key: &EncodingKey, now: i64) -> Result<(), String> {
    let (_, parsed) = X509Certificate::from_der(certificate)
        .map_err(|_| "holds a certificate that cannot be read".to_owned())?;
    let (from, until) = (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp());
    let date = |second| Timestamp::from_second(second).map(|it| it.to_string()).unwrap_or_default();
    if now > until {
        return Err(format!("holds a certificate that expired at {}; renew it", date(until)));
    }
    if now < from {
        return Err(format!("holds a certificate that is valid from {} on; check the clock", date(from)));
    }
    let Ok(PublicKey::RSA(public)) = parsed.public_key().parsed() else {
        return Err("holds a certificate whose key is not RSA; expected an RSA certificate".to_owned());
    };
    let probe = b"shipshape";
    let signature = jsonwebtoken::crypto::sign(probe, key, Algorithm::RS256)
        .map_err(|_| "holds a private key that cannot sign; expected RSA of 2048 bits or more".to_owned())?;
    let public = DecodingKey::from_rsa_raw_components(strip_zeros(public.modulus), public.exponent);
    match jsonwebtoken::crypto::verify(&signature, probe, &public, Algorithm::RS256) {
        Ok(true) => Ok(()),
        _ => Err("holds a private key of another certificate; expected the key of its first certificate"
            .to_owned()),
    }
}

/// A number without the zeros that DER puts in front.
fn strip_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|it| **it == 0).count();
    &number[zeros..]
}

#[async_trait::async_trait]
impl ClientAssertion for CertificateAssertion {
    async fn secret(&self, _: Option<ClientMethodOptions<'_>>) -> azure_core::Result<String> {
        self.sign().map_err(|error| Error::new(ErrorKind::Credential, error))
    }
}

#[cfg(test)]
mod tests;
