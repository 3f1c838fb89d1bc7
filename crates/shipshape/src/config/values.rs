//! Types of setting values. Each error message says what is accepted and does not
//! repeat the rejected value, because only the caller knows whether it may be shown.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
#[cfg(feature = "services")]
use std::time::Duration;

use api::duration::TimeSpan;
use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};
use serde::{Serialize, Serializer};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// A path in the configuration; relative to the working directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FilePath(PathBuf);

impl FilePath {
    pub(super) fn parse(text: &str) -> Result<FilePath, String> {
        if text.is_empty() {
            return Err("expected a path, but it is empty".to_owned());
        }
        if text.contains('\0') {
            return Err("expected a path, which cannot contain a NUL character".to_owned());
        }
        if text == "~" || text.starts_with("~/") {
            return Err("expected a full path; only a shell replaces the ~ by the home directory".to_owned());
        }
        Ok(FilePath(PathBuf::from(text)))
    }
}

impl AsRef<Path> for FilePath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl Serialize for FilePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FilePath, D::Error> {
        text(deserializer, "a path as text", FilePath::parse)
    }
}

/// Masks the password of any URL in `text`. If the end of a password is unclear, too
/// much is masked rather than too little.
pub(crate) fn redacted(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    // Separately: an @ in a parameter is not the end of a user's password.
    let (place, parameters) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
    let place = match (place.rsplit_once('@'), place.split_once(':')) {
        (Some((user, host)), _) => match user.split_once(':') {
            Some((name, _)) => format!("{name}:***@{host}"),
            None => place.to_owned(),
        },
        // The ? may be in a password.
        (None, Some((name, _))) if parameters.contains('@') => return format!("{scheme}://{name}:***"),
        (None, _) => place.to_owned(),
    };
    let masked: Vec<String> = parameters.split('&').map(mask_parameter).collect();
    format!("{scheme}://{place}{}", masked.join("&"))
}

/// Masks `password=…` and similar parameters. The value extends from the first `=` after
/// the name to the end: passwords in base64 end with `=`.
fn mask_parameter(part: &str) -> String {
    const NAME: &str = "password=";
    match part.to_ascii_lowercase().find(NAME) {
        Some(at) => format!("{}***", &part[..at + NAME.len()]),
        None => part.to_owned(),
    }
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line, for collectors.
    Json,
}

impl<'de> Deserialize<'de> for LogFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LogFormat, D::Error> {
        text(deserializer, "text or json", |value| match value {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err("expected text or json".to_owned()),
        })
    }
}

/// Filter of the log: a level, or directives per target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct LogFilter(String);

const LOG_LEVELS: &str =
    "expected off, error, warn, info, debug or trace, or directives such as info,store=debug";

impl LogFilter {
    fn parse(text: &str) -> Result<LogFilter, String> {
        // The filter parses a single word that is no level as a target, so a misspelt level would
        // silently disable everything else.
        for directive in text.split(',').map(str::trim) {
            let is_word = directive.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if directive.is_empty() || (is_word && directive.parse::<LevelFilter>().is_err()) {
                let hint = if directive.is_empty() {
                    String::new()
                } else {
                    format!("; for a target write {directive}=trace")
                };
                return Err(format!("{LOG_LEVELS}{hint}"));
            }
        }
        EnvFilter::builder().parse(text).map_err(|_| LOG_LEVELS.to_owned())?;
        Ok(LogFilter(text.to_owned()))
    }

    /// The filter itself.
    pub(crate) fn filter(&self) -> EnvFilter {
        EnvFilter::builder().parse_lossy(&self.0)
    }
}

impl Default for LogFilter {
    fn default() -> LogFilter {
        LogFilter("info".to_owned())
    }
}

impl<'de> Deserialize<'de> for LogFilter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LogFilter, D::Error> {
        text(deserializer, "a log level as text", LogFilter::parse)
    }
}

/// The address of an OpenTelemetry collector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct OtlpEndpoint(String);

const OTLP_ENDPOINTS: &str = "expected the http or https URL of a collector, such as http://localhost:4318";

impl OtlpEndpoint {
    fn parse(text: &str) -> Result<OtlpEndpoint, String> {
        if text.contains('@') {
            return Err(format!("{OTLP_ENDPOINTS}, without user or password"));
        }
        let uri: axum::http::Uri = text.parse().map_err(|_| OTLP_ENDPOINTS)?;
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        let has_host = uri.host().is_some_and(|host| !host.is_empty());
        if !is_web || !has_host || uri.query().is_some() {
            return Err(OTLP_ENDPOINTS.to_owned());
        }
        Ok(OtlpEndpoint(text.trim_end_matches('/').to_owned()))
    }

    /// URL of the traces endpoint; the standard path is added unless present.
    pub(crate) fn traces_url(&self) -> String {
        let path = "/v1/traces";
        if self.0.ends_with(path) { self.0.clone() } else { format!("{}{path}", self.0) }
    }

    /// Whether the collector is reached over TLS.
    pub(crate) fn is_https(&self) -> bool {
        self.0.starts_with("https:")
    }
}

impl fmt::Display for OtlpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for OtlpEndpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OtlpEndpoint, D::Error> {
        text(deserializer, "a URL as text", OtlpEndpoint::parse)
    }
}

/// The name under which traces appear.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ServiceName(String);

impl ServiceName {
    /// The name as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ServiceName {
    fn default() -> ServiceName {
        ServiceName("shipshape".to_owned())
    }
}

impl<'de> Deserialize<'de> for ServiceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ServiceName, D::Error> {
        text(deserializer, "a name as text", |name| {
            let fits = (1..=255).contains(&name.len()) && !name.contains(char::is_control);
            let name = fits.then(|| ServiceName(name.to_owned()));
            name.ok_or_else(|| "expected a name of 1 to 255 printable characters".to_owned())
        })
    }
}

/// `shutdown_deadline`: zero would abort everything, and more than an hour is a hang.
pub(super) fn deadline<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TimeSpan, D::Error> {
    let span = TimeSpan::deserialize(deserializer)?;
    let fits = (TimeSpan::seconds(1)..=TimeSpan::hours(1)).contains(&span);
    fits.then_some(span).ok_or_else(|| de::Error::custom("expected a duration from 1s to 1h"))
}

/// `cloud.poll`: shorter would only burden the cloud, longer would make every operation slow.
#[cfg(feature = "services")]
pub(super) fn poll<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TimeSpan, D::Error> {
    let span = TimeSpan::deserialize(deserializer)?;
    let fits = (Duration::from_millis(10)..=Duration::from_secs(300)).contains(&span.duration());
    fits.then_some(span).ok_or_else(|| de::Error::custom("expected a duration from 10ms to 5m"))
}

/// `retention.*`: less than an hour would delete what users still look at.
#[cfg(feature = "services")]
pub(super) fn retention<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TimeSpan, D::Error> {
    let span = TimeSpan::deserialize(deserializer)?;
    let fits = span >= TimeSpan::hours(1);
    fits.then_some(span).ok_or_else(|| de::Error::custom("expected a duration of at least 1h"))
}

/// `store.connections`: one for the writer and one for a reader at least.
#[cfg(feature = "services")]
pub(super) fn connections<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    number(deserializer, "a whole number from 2 to 64", |number| match number {
        Number::Whole(count @ 2..=64) => u32::try_from(count).ok(),
        Number::Whole(_) | Number::Broken(_) => None,
    })
}

/// `portal.connections` and `portal.connections_per_address`.
#[cfg(feature = "services")]
pub(super) fn open_connections<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    number(deserializer, "a whole number from 1 to 65536", |number| match number {
        Number::Whole(count @ 1..=65_536) => usize::try_from(count).ok(),
        Number::Whole(_) | Number::Broken(_) => None,
    })
}

/// `telemetry.sample_ratio`.
pub(super) fn ratio<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    number(deserializer, "a number from 0 to 1", |number| match number {
        Number::Whole(0) => Some(0.0),
        Number::Whole(1) => Some(1.0),
        Number::Broken(ratio) => (0.0..=1.0).contains(&ratio).then_some(ratio),
        Number::Whole(_) => None,
    })
}

/// `*.listen`.
pub(super) fn listen<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let expected = "an IP address and a port, such as 127.0.0.1:8446 or [::]:8446";
    text(deserializer, expected, |address| address.parse().map_err(|_| format!("expected {expected}")))
}

/// Reads a setting that is written as text.
pub(super) fn text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    accept: impl Fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    deserializer.deserialize_str(Text { expected, accept })
}

struct Text<F> {
    expected: &'static str,
    accept: F,
}

impl<T, F: Fn(&str) -> Result<T, String>> Visitor<'_> for Text<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.accept)(text).map_err(E::custom)
    }
}

/// A number as TOML tells them apart.
enum Number {
    Whole(i64),
    Broken(f64),
}

/// Reads a setting that is written as a number.
fn number<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    accept: impl Fn(Number) -> Option<T>,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Numeric { expected, accept })
}

struct Numeric<F> {
    expected: &'static str,
    accept: F,
}

impl<F> Numeric<F> {
    fn take<T, E: de::Error>(self, number: Number) -> Result<T, E>
    where
        F: Fn(Number) -> Option<T>,
    {
        (self.accept)(number).ok_or_else(|| E::custom(format!("expected {}", self.expected)))
    }
}

impl<T, F: Fn(Number) -> Option<T>> Visitor<'_> for Numeric<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.take(Number::Whole(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        self.take(Number::Broken(number))
    }

    fn visit_str<E: de::Error>(self, _text: &str) -> Result<T, E> {
        // Without the text: it may have been meant for another key.
        Err(E::invalid_type(Unexpected::Other("text"), &self))
    }
}
