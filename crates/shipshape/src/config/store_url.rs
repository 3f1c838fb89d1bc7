//! URL of the store, and whether a starting process may change its schema.

use std::fmt;

use api::secret::Secret;
use serde::de::{Deserialize, Deserializer};
use serde::{Serialize, Serializer};

use super::values::{FilePath, redacted, text};

/// Kind and location of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    /// A SQLite file.
    Sqlite(FilePath),
    /// A PostgreSQL connection URL. It may contain a password, so all of it is secret.
    Postgres(Secret<String>),
}

/// Accepted URLs, for error messages.
const STORE_URLS: &str = "expected sqlite:PATH or postgres://USER@HOST[:PORT]/DATABASE";

impl StoreUrl {
    fn parse(text: &str) -> Result<StoreUrl, String> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            if path.starts_with("//") {
                return Err(format!(
                    "{STORE_URLS}; expected a plain path after sqlite:, such as sqlite:/var/lib/x.db"
                ));
            }
            if path.starts_with(":memory:") {
                return Err(format!(
                    "{STORE_URLS}; a store in memory would lose its content when the process ends"
                ));
            }
            return FilePath::parse(path).map(StoreUrl::Sqlite).map_err(|why| format!("{STORE_URLS}; {why}"));
        }
        let rest = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"));
        let rest = rest.ok_or(STORE_URLS)?;
        if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(format!("{STORE_URLS}; it must not contain spaces"));
        }
        let (authority, after) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if after.contains('@') && !authority.contains('@') {
            return Err(format!("{STORE_URLS}; write / ? and @ in a name or password as %2F %3F and %40"));
        }
        let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
        if hosts.is_empty() && !after.contains("host=") {
            return Err(format!("{STORE_URLS}; the host is missing"));
        }
        let port_is_wrong = |host: &str| {
            let port = host.rsplit(']').next().and_then(|end| end.split_once(':')).map(|(_, port)| port);
            port.is_some_and(|port| port.parse::<u16>().map_or(true, |port| port == 0))
        };
        if hosts.split(',').any(port_is_wrong) {
            return Err(format!("{STORE_URLS}; the port is not a number from 1 to 65535"));
        }
        Ok(StoreUrl::Postgres(Secret::new(text.to_owned())))
    }

    /// Whether the URL contains a password.
    pub(super) fn has_password(&self) -> bool {
        match self {
            StoreUrl::Sqlite(_) => false,
            StoreUrl::Postgres(url) => redacted(url.expose()) != *url.expose(),
        }
    }
}

impl fmt::Display for StoreUrl {
    /// The URL with `***` in place of its password: for display, not for connecting.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Sqlite(path) => write!(f, "sqlite:{path}"),
            StoreUrl::Postgres(url) => f.write_str(&redacted(url.expose())),
        }
    }
}

impl Serialize for StoreUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StoreUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StoreUrl, D::Error> {
        text(deserializer, "sqlite:PATH or postgres://USER@HOST[:PORT]/DATABASE", StoreUrl::parse)
    }
}

/// Whether a starting process may change the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Migrate {
    /// It migrates the schema.
    #[default]
    Auto,
    /// It fails to start on an old schema; an operator runs `shipshape store migrate`.
    Never,
}

impl<'de> Deserialize<'de> for Migrate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Migrate, D::Error> {
        text(deserializer, "auto or never", |value| match value {
            "auto" => Ok(Migrate::Auto),
            "never" => Ok(Migrate::Never),
            _ => Err("expected auto or never".to_owned()),
        })
    }
}
