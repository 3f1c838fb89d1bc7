//! The authority that issues the certificates of vaults and identities. It is created when it is first needed.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serve::pki::{CertificateAuthority, CertificatePair, Validity};

use crate::call_context::CallContext;
use crate::database;
use crate::failure::Failure;

pub(crate) const AUTHORITY_NAME: &str = "Simulated Cloud VaultCertificate Authority";
const VALIDITY_DAYS: i64 = 3650;

const META: &str = "meta";
const KEY: &str = "authority";

/// Certificate and key in PEM, as they are stored.
#[derive(Serialize, Deserialize)]
struct StoredAuthority {
    certificate: String,
    key: String,
}

/// The authority.
pub(crate) fn authority(cx: &CallContext<'_>) -> Result<CertificateAuthority, Failure> {
    if let Some(StoredAuthority { certificate, key }) = database::record(cx.db, META, KEY)? {
        return Ok(CertificateAuthority::from_pem(AUTHORITY_NAME, CertificatePair { certificate, key })?);
    }
    let lifetime = SignedDuration::from_hours(24 * VALIDITY_DAYS);
    let not_after = cx.now.saturating_add(lifetime).unwrap_or(Timestamp::MAX);
    let authority =
        CertificateAuthority::generate(AUTHORITY_NAME, Validity { not_before: cx.now, not_after })?;
    let CertificatePair { certificate, key } = authority.pair();
    database::write(cx.db, META, KEY, &StoredAuthority { certificate, key })?;
    Ok(authority)
}

/// The certificate of the authority, by which issued certificates are verified.
pub(crate) fn certificate_pem(cx: &CallContext<'_>) -> Result<String, Failure> {
    authority(cx).map(|authority| authority.certificate().to_owned())
}
