//! Assertions of an application that proves itself with a certificate: an RS256 JWT of our own, so that no OpenSSL is needed.

use std::fmt;

use api::clock::{Clock as _, SystemClock};
use api::secret::Secret;
use azure_core::error::{Error, ErrorKind};
use azure_core::http::ClientMethodOptions;
use azure_identity::ClientAssertion;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Serialize;
use sha1::Digest as _;

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
        let wrong = |why: &str| SettingsError { setting: "credential.pem", why: why.to_owned() };
        let pem = pem.expose().as_bytes();
        let chain: Vec<CertificateDer<'_>> =
            CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
        let Some(first) = chain.first() else {
            return Err(wrong("holds no certificate; expected certificate and RSA key in PEM"));
        };
        let blocks = String::from_utf8_lossy(pem);
        let key = blocks
            .find("-----BEGIN PRIVATE KEY-----")
            .or_else(|| blocks.find("-----BEGIN RSA PRIVATE KEY-----"))
            .ok_or_else(|| wrong("holds no private key; expected certificate and RSA key in PEM"))?;
        let rest = &blocks[key..];
        let end = rest.find("PRIVATE KEY-----\n-----").map_or(rest.len(), |at| at + 17);
        let key = EncodingKey::from_rsa_pem(&rest.as_bytes()[..end])
            .map_err(|_| wrong("holds a private key that is not RSA; expected PKCS#8 or PKCS#1"))?;
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

#[async_trait::async_trait]
impl ClientAssertion for CertificateAssertion {
    async fn secret(&self, _: Option<ClientMethodOptions<'_>>) -> azure_core::Result<String> {
        self.sign().map_err(|error| Error::new(ErrorKind::Credential, error))
    }
}
