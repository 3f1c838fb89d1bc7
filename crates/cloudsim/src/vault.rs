//! The vault: certificates of an authority of its own, with versions, and secrets.

use std::time::Duration;

use cloud::{CertificateSpec, Properties, ResourceId, VaultCertificate};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serve::pki::{CertificateAuthority, CertificatePair, CertificateRequest, Purpose, Validity};

use crate::call_context::CallContext;
use crate::failure::{Failure, conflict, invalid, not_found};
use crate::protocol::{IssuedCertificate, VaultSecret};
use crate::resources::{Stored, find};
use crate::{database, seed};

const CERTIFICATE: &str = "certificate";
const IDENTITY: &str = "identity-certificate";
const SECRET: &str = "secret";

pub(crate) const AUTHORITY_NAME: &str = "Simulated Cloud VaultCertificate Authority";
const AUTHORITY_DAYS: i64 = 3650;
/// Certificates of clusters are good for a year, as those of the public authorities once were.
const CERTIFICATE_DAYS: i64 = 365;
/// So many days before its end a certificate of a cluster is issued anew, by itself.
const CERTIFICATE_RENEWAL_DAYS: i64 = 30;
/// Certificates of identities are good for 90 days, and a new one is to be had from day 45 on.
const IDENTITY_DAYS: i64 = 90;
const IDENTITY_RENEWAL_DAYS: i64 = 45;
/// About how long the authority takes to issue one.
const ISSUING: Duration = Duration::from_secs(20);

/// An authority: its certificate and key in PEM.
#[derive(Serialize, Deserialize)]
struct Authority {
    certificate: String,
    key: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    version: String,
    /// When it is issued.
    ready: Timestamp,
    not_before: Timestamp,
    not_after: Timestamp,
    chain_pem: String,
    key_pem: String,
}

/// A certificate with its versions, oldest first.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredCertificate {
    name: String,
    dns_names: Vec<String>,
    versions: Vec<Version>,
}

impl StoredCertificate {
    fn newest_issued(&self, now: Timestamp) -> Option<&Version> {
        self.versions.iter().rev().find(|it| it.ready <= now)
    }

    fn shown(&self, now: Timestamp) -> VaultCertificate {
        let issued = self.newest_issued(now);
        VaultCertificate {
            name: self.name.clone(),
            dns_names: self.dns_names.clone(),
            version: issued.map(|it| it.version.clone()),
            not_before: issued.map(|it| it.not_before),
            not_after: issued.map(|it| it.not_after),
            issuing: self.versions.iter().any(|it| now < it.ready),
        }
    }

    fn issued(&self, now: Timestamp) -> Option<IssuedCertificate> {
        self.newest_issued(now).map(|version| IssuedCertificate {
            certificate: self.shown(now),
            chain_pem: version.chain_pem.clone(),
            key_pem: version.key_pem.clone(),
        })
    }
}

fn days(from: Timestamp, days: i64) -> Timestamp {
    from.saturating_add(SignedDuration::from_hours(24 * days)).unwrap_or(Timestamp::MAX)
}

/// The authority. It is created when it is first needed.
pub(crate) fn authority(cx: &CallContext<'_>) -> Result<CertificateAuthority, Failure> {
    if let Some(Authority { certificate, key }) = database::record(cx.db, "meta", "authority")? {
        return Ok(CertificateAuthority::from_pem(AUTHORITY_NAME, CertificatePair { certificate, key })?);
    }
    let validity = Validity { not_before: cx.now, not_after: days(cx.now, AUTHORITY_DAYS) };
    let authority = CertificateAuthority::generate(AUTHORITY_NAME, validity)?;
    let CertificatePair { certificate, key } = authority.pair();
    database::write(cx.db, "meta", "authority", &Authority { certificate, key })?;
    Ok(authority)
}

/// The certificate of the authority, by which issued certificates are verified.
pub(crate) fn authority_pem(cx: &CallContext<'_>) -> Result<String, Failure> {
    authority(cx).map(|authority| authority.certificate().to_owned())
}

fn issue(
    cx: &CallContext<'_>,
    name: &str,
    names: &[String],
    number: usize,
    ready: Timestamp,
    lasts_days: i64,
    purpose: Purpose,
) -> Result<Version, Failure> {
    let authority = authority(cx)?;
    // Whole seconds, so that the stored time equals that of the certificate.
    let whole = |time: Timestamp| Timestamp::from_second(time.as_second()).unwrap_or(time);
    let (not_before, not_after) = (whole(ready), whole(days(ready, lasts_days)));
    let issued = authority.issue(&CertificateRequest {
        common_name: names.first().map_or(name, String::as_str),
        organization: None,
        alternative_names: names.to_vec(),
        purpose,
        validity: Validity { not_before, not_after },
    })?;
    Ok(Version {
        version: seed::uuid(cx.seed, &["version", name, &number.to_string()]).simple().to_string(),
        ready,
        not_before,
        not_after,
        chain_pem: format!("{}{}", issued.certificate, authority.certificate()),
        key_pem: issued.key,
    })
}

/// Asks the authority for a further version at that moment.
fn issue_further(
    cx: &CallContext<'_>,
    kept: &mut StoredCertificate,
    asked: Timestamp,
) -> Result<(), Failure> {
    // Each version has a number that is never used again, even after the certificate was removed and made anew.
    let number: usize = database::record(cx.db, "meta", "certificate-versions")?.unwrap_or(0);
    database::write(cx.db, "meta", "certificate-versions", &(number + 1))?;
    let asking = CallContext { now: asked, effects: cx.effects.clone(), ..*cx };
    let ready = asking.done_at(ISSUING, &["certificate", &kept.name, &number.to_string()]);
    let version = issue(cx, &kept.name, &kept.dns_names, number, ready, CERTIFICATE_DAYS, Purpose::Server)?;
    kept.versions.push(version);
    database::write(cx.db, CERTIFICATE, &kept.name.to_lowercase(), kept)
}

/// A certificate as it is now. The vault renews by itself what comes near its end: a read returns the versions that were
/// issued since, each at its time, however long ago the last read was.
fn stored_certificate(cx: &CallContext<'_>, name: &str) -> Result<Option<StoredCertificate>, Failure> {
    let found: Option<StoredCertificate> = database::record(cx.db, CERTIFICATE, &name.to_lowercase())?;
    let Some(mut kept) = found else { return Ok(None) };
    while let Some(due) = kept.versions.last().map(|it| days(it.not_after, -CERTIFICATE_RENEWAL_DAYS))
        && due <= cx.now
    {
        issue_further(cx, &mut kept, due)?;
    }
    Ok(Some(kept))
}

pub(crate) fn ensure_certificate(
    cx: &CallContext<'_>,
    spec: &CertificateSpec,
) -> Result<VaultCertificate, Failure> {
    if spec.name.is_empty() || spec.dns_names.is_empty() {
        let why = format!("the certificate '{}' needs a name and at least one DNS name", spec.name);
        return Err(invalid("BadParameter", why));
    }
    if let Some(kept) = stored_certificate(cx, &spec.name)? {
        return match kept.dns_names == spec.dns_names {
            true => Ok(kept.shown(cx.now)),
            false => Err(conflict(
                format!("the certificate {}", spec.name),
                format!("it is for {}", kept.dns_names.join(", ")),
            )),
        };
    }
    let (name, dns_names) = (spec.name.clone(), spec.dns_names.clone());
    let mut kept = StoredCertificate { name, dns_names, versions: Vec::new() };
    issue_further(cx, &mut kept, cx.now)?;
    Ok(kept.shown(cx.now))
}

pub(crate) fn renew_certificate(
    cx: &CallContext<'_>,
    name: &str,
    newer_than: Option<&str>,
) -> Result<VaultCertificate, Failure> {
    let mut kept =
        stored_certificate(cx, name)?.ok_or_else(|| not_found(format!("the certificate {name}")))?;
    // A later one may be there already, or on its way.
    if kept.versions.last().is_none_or(|last| Some(last.version.as_str()) == newer_than) {
        issue_further(cx, &mut kept, cx.now)?;
    }
    Ok(kept.shown(cx.now))
}

pub(crate) fn certificate(cx: &CallContext<'_>, name: &str) -> Result<Option<IssuedCertificate>, Failure> {
    Ok(stored_certificate(cx, name)?.and_then(|it| it.issued(cx.now)))
}

/// Every certificate, by name.
pub(crate) fn certificates(cx: &CallContext<'_>) -> Result<Vec<VaultCertificate>, Failure> {
    let kept: Vec<StoredCertificate> = database::records(cx.db, CERTIFICATE)?;
    Ok(kept.iter().map(|it| it.shown(cx.now)).collect())
}

pub(crate) fn delete_certificate(cx: &CallContext<'_>, name: &str) -> Result<(), Failure> {
    database::delete(cx.db, CERTIFICATE, &name.to_lowercase()).map(drop)
}

pub(crate) fn identity_certificate(
    cx: &CallContext<'_>,
    identity: &ResourceId,
) -> Result<IssuedCertificate, Failure> {
    let found = find(cx.db, &identity.key())?;
    let Some(Stored { properties: Properties::Identity { client_id, .. }, .. }) = found else {
        return Err(not_found(identity));
    };
    let key = identity.key();
    let subject = client_id.unwrap_or_default();
    let kept: Option<StoredCertificate> = database::record(cx.db, IDENTITY, &key)?;
    let mut kept = kept
        // An identity that was removed and made again is another one.
        .filter(|it| it.dns_names == [subject.as_str()])
        .unwrap_or_else(|| StoredCertificate {
            name: key.clone(),
            dns_names: vec![subject.clone()],
            versions: Vec::new(),
        });
    let fresh = kept.versions.last().is_some_and(|it| cx.now < days(it.not_before, IDENTITY_RENEWAL_DAYS));
    if !fresh {
        let number = kept.versions.len();
        let version = issue(cx, &key, &kept.dns_names, number, cx.now, IDENTITY_DAYS, Purpose::Client)?;
        kept.versions = vec![version];
        database::write(cx.db, IDENTITY, &key, &kept)?;
    }
    kept.issued(cx.now).ok_or_else(|| not_found(identity))
}

#[derive(Serialize, Deserialize)]
struct StoredSecret {
    name: String,
    /// The newest is last.
    versions: Vec<SecretVersion>,
    /// How many there have been.
    count: u64,
}

#[derive(Serialize, Deserialize)]
struct SecretVersion {
    version: String,
    expires: Option<Timestamp>,
    value: String,
}

/// So many versions of a secret are kept.
const SECRET_VERSIONS_MAX: usize = 10;

fn shown(name: &str, version: SecretVersion) -> VaultSecret {
    VaultSecret {
        name: name.to_owned(),
        version: version.version,
        expires: version.expires,
        value: version.value,
    }
}

pub(crate) fn put_secret(
    cx: &CallContext<'_>,
    name: &str,
    value: &str,
    expires: Option<Timestamp>,
) -> Result<VaultSecret, Failure> {
    if name.is_empty() {
        return Err(invalid("BadParameter", "a secret needs a name"));
    }
    let key = name.to_lowercase();
    let kept: Option<StoredSecret> = database::record(cx.db, SECRET, &key)?;
    let mut kept =
        kept.unwrap_or_else(|| StoredSecret { name: name.to_owned(), versions: Vec::new(), count: 0 });
    kept.count += 1;
    let version = seed::uuid(cx.seed, &["secret", &key, &kept.count.to_string(), &cx.now.to_string()]);
    let version = version.simple().to_string();
    kept.versions.push(SecretVersion { version: version.clone(), expires, value: value.to_owned() });
    if kept.versions.len() > SECRET_VERSIONS_MAX {
        kept.versions.remove(0);
    }
    database::write(cx.db, SECRET, &key, &kept)?;
    Ok(VaultSecret { name: name.to_owned(), version, expires, value: value.to_owned() })
}

pub(crate) fn secret(cx: &CallContext<'_>, name: &str) -> Result<Option<VaultSecret>, Failure> {
    let kept: Option<StoredSecret> = database::record(cx.db, SECRET, &name.to_lowercase())?;
    Ok(kept.and_then(|mut it| it.versions.pop().map(|version| shown(&it.name, version))))
}

pub(crate) fn delete_secret(cx: &CallContext<'_>, name: &str) -> Result<(), Failure> {
    database::delete(cx.db, SECRET, &name.to_lowercase()).map(drop)
}
