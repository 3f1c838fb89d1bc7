//! Callers of the resource manager's API besides operators: clients whose certificate is listed, in a file or by the cloud's metadata
//! endpoint, and clients whose token the token validation service accepts.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::fetch::{Fetcher, Validation};
use super::{AuthenticationError, RequestContext, identity};
use crate::config::ArmCallers;
use serve::tls::{self, TlsError};

/// Time between two reads of the list.
const REFRESH_EVERY: Duration = Duration::from_secs(60 * 60);

/// Wait after a failed read of the list.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// An older list is not used.
const LIST_AGE_MAX: SignedDuration = SignedDuration::from_hours(24);

/// Attempts to validate the token of one request.
const VALIDATION_TRIES: u32 = 3;

/// The certificates of callers.
#[derive(Debug)]
pub(crate) struct AllowList {
    source: Source,
    known: RwLock<LoadedList>,
}

#[derive(Debug)]
enum Source {
    File(std::path::PathBuf),
    Metadata { url: String, fetcher: Box<Fetcher> },
}

#[derive(Debug, Default)]
struct LoadedList {
    entries: Vec<Entry>,
    read: Option<Timestamp>,
}

/// A certificate and the time in which it is accepted.
#[derive(Debug, Clone)]
struct Entry {
    der: Vec<u8>,
    name: String,
    not_before: Timestamp,
    not_after: Timestamp,
}

impl Entry {
    fn counts_at(&self, now: Timestamp) -> bool {
        self.not_before <= now && now <= self.not_after
    }
}

/// The response of the metadata endpoint.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    client_certificates: Vec<MetadataEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataEntry {
    #[serde(default)]
    thumbprint: String,
    not_before: Timestamp,
    not_after: Timestamp,
    certificate: String,
}

impl AllowList {
    /// The configured list, if any. A file is read at once.
    pub(crate) fn open(config: &ArmCallers, now: Timestamp) -> Result<Option<AllowList>, TlsError> {
        let source = match (&config.certificates, &config.metadata_url) {
            (Some(path), _) => Source::File(path.clone()),
            (None, Some(url)) => Source::Metadata {
                url: url.clone(),
                fetcher: Box::new(Fetcher::open(config.ca_file.as_deref())?),
            },
            (None, None) => return Ok(None),
        };
        let list = AllowList { source, known: RwLock::default() };
        if let Source::File(path) = &list.source {
            list.put(from_file(path)?, now);
        }
        Ok(Some(list))
    }

    fn put(&self, entries: Vec<Entry>, now: Timestamp) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = LoadedList { entries, read: Some(now) };
    }

    /// The name of the caller with this certificate.
    pub(crate) fn caller(&self, leaf: &[u8], now: Timestamp) -> Result<String, AuthenticationError> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if known.is_stale(now) {
            return Err(AuthenticationError::new("the list of callers is too old to be trusted"));
        }
        let found = known.entries.iter().find(|entry| entry.der == leaf);
        match found {
            Some(entry) if entry.counts_at(now) => identity(&entry.name),
            Some(entry) => {
                Err(AuthenticationError::new(format!("the certificate of {} does not count now", entry.name)))
            }
            None => Err(AuthenticationError::new("the certificate is not listed among the callers")),
        }
    }

    /// Why the list cannot be used now; none when it can.
    pub(crate) fn problem(&self, now: Timestamp) -> Option<&'static str> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if known.is_stale(now) {
            return Some("the list of callers could not be read for more than a day");
        }
        (!known.entries.iter().any(|entry| entry.counts_at(now)))
            .then_some("no certificate in the list of callers counts now")
    }

    /// Reads the list periodically until `closing`.
    pub(crate) async fn follow(&self, clock: &dyn api::clock::Clock, closing: CancellationToken) {
        loop {
            let read = match &self.source {
                Source::File(path) => from_file(path).map_err(|error| error.to_string()),
                Source::Metadata { url, fetcher } => fetcher
                    .get::<Metadata>(url)
                    .await
                    .map_err(|error| error.to_string())
                    .and_then(from_metadata),
            };
            let pause = match read {
                Ok(entries) => {
                    self.put(entries, clock.now());
                    REFRESH_EVERY
                }
                Err(why) => {
                    tracing::warn!("Cannot read the list of callers, keeping the previous one: {why}");
                    RETRY_AFTER
                }
            };
            if closing.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }
}

impl LoadedList {
    fn is_stale(&self, now: Timestamp) -> bool {
        self.read.is_none_or(|read| now.duration_since(read) > LIST_AGE_MAX)
    }
}

fn from_file(path: &std::path::Path) -> Result<Vec<Entry>, TlsError> {
    let read = |der: rustls::pki_types::CertificateDer<'static>| {
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|error| TlsError::unusable(path, error))?;
        let moment = |at: x509_parser::time::ASN1Time| {
            Timestamp::from_second(at.timestamp()).map_err(|error| TlsError::unusable(path, error))
        };
        Ok(Entry {
            name: name_of(&parsed),
            not_before: moment(parsed.validity().not_before)?,
            not_after: moment(parsed.validity().not_after)?,
            der: der.to_vec(),
        })
    };
    tls::certificates(path)?.into_iter().map(read).collect()
}

fn from_metadata(metadata: Metadata) -> Result<Vec<Entry>, String> {
    let read = |entry: MetadataEntry| {
        let compact: String = entry.certificate.split_whitespace().collect();
        let der = STANDARD
            .decode(compact)
            .map_err(|_| format!("certificate {} is not base64", entry.thumbprint))?;
        let (_, parsed) = X509Certificate::from_der(&der)
            .map_err(|_| format!("certificate {} cannot be read", entry.thumbprint))?;
        let name = name_of(&parsed);
        Ok(Entry { name, der, not_before: entry.not_before, not_after: entry.not_after })
    };
    metadata.client_certificates.into_iter().map(read).collect()
}

fn name_of(certificate: &X509Certificate<'_>) -> String {
    let name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    name.unwrap_or("the resource manager").to_owned()
}

/// The token validation service.
#[derive(Debug)]
pub(crate) struct TokenService {
    url: String,
    fetcher: Fetcher,
    pub(crate) is_enforced: bool,
}

impl TokenService {
    pub(crate) fn open(config: &ArmCallers) -> Result<Option<TokenService>, TlsError> {
        let Some(base) = &config.token_service else { return Ok(None) };
        let url = format!("{}/ValidateRequest", base.trim_end_matches('/'));
        let fetcher = Fetcher::open(config.ca_file.as_deref())?;
        Ok(Some(TokenService { url, fetcher, is_enforced: config.enforce_tokens }))
    }

    /// Whether the service accepts the request's token.
    pub(crate) async fn accepts(
        &self,
        context: &RequestContext<'_>,
        token: &str,
    ) -> Result<(), AuthenticationError> {
        let validation = Validation {
            authorization: format!("Bearer {token}"),
            uri: context.uri.to_string(),
            method: context.method.to_string(),
            forwarded_for: context.peer.to_owned(),
        };
        let mut last = String::new();
        for _ in 0..VALIDATION_TRIES {
            match self.fetcher.validate(&self.url, &validation).await {
                Ok(http::StatusCode::OK) => return Ok(()),
                // The decision is final; another attempt would not change it.
                Ok(status) if !status.is_server_error() => {
                    return Err(AuthenticationError::new(format!("the token service answered {status}")));
                }
                Ok(status) => last = format!("the token service answered {status}"),
                Err(error) => last = error.to_string(),
            }
        }
        Err(AuthenticationError::new(last))
    }
}
