//! Opens the store by the settings: key file, password file, options.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use api::clock::SystemClock;
use api::secret::Secret;
use store::{Keyring, Location, OpenError, Options, Reader, Retention, Store};

use crate::config::{Config, Migrate, RetentionConfig, StoreConfig, StoreUrl};

/// Opens the store for writing; only a new store creates a new key file.
pub(crate) async fn open_store(config: &StoreConfig) -> anyhow::Result<Store> {
    let key_file: &Path = config.key_file.as_ref();
    let keyring = Keyring::read_or_draft(key_file)?;
    Store::open(options(config, keyring)?).await.map_err(|error| with_key_file(error, key_file))
}

/// Opens an existing store for reading, beside a process that writes to it.
pub(crate) async fn open_reader(config: &StoreConfig) -> anyhow::Result<Reader> {
    let key_file: &Path = config.key_file.as_ref();
    let keyring = match Keyring::read(key_file) {
        Ok(keyring) => keyring,
        // Without a key file there may be no store either, which is the better error message.
        Err(error) => {
            if let StoreUrl::Sqlite(path) = &config.url
                && !path.as_ref().exists()
            {
                anyhow::bail!("store {path}: does not exist; run `shipshape up` to create it");
            }
            return Err(error.into());
        }
    };
    Reader::open(options(config, keyring)?).await.map_err(|error| with_key_file(error, key_file))
}

/// The schema version of the store, and the newest that this release knows.
pub(crate) async fn schema(config: &StoreConfig) -> anyhow::Result<store::Schema> {
    Ok(Store::schema(&options(config, Keyring::ephemeral()?)?).await?)
}

fn options(config: &StoreConfig, keyring: Keyring) -> anyhow::Result<Options> {
    let location = match &config.url {
        StoreUrl::Sqlite(path) => Location::Sqlite(path.as_ref().to_owned()),
        StoreUrl::Postgres(url) => Location::Postgres(url.clone()),
    };
    let password = match &config.password_file {
        None => None,
        Some(file) => {
            let text = std::fs::read_to_string(file.as_ref())
                .with_context(|| format!("store.password_file {file}: cannot be read"))?;
            Some(Secret::new(text.trim_end_matches(['\r', '\n']).to_owned()))
        }
    };
    let mut options = Options::new(location, keyring, Arc::new(SystemClock));
    options.password = password;
    options.ca_file = config.ca_file.as_ref().map(|file| file.as_ref().to_owned());
    options.connections = usize::try_from(config.connections).unwrap_or(8);
    options.migrate = match config.migrate {
        Migrate::Auto => store::Migrate::Auto,
        Migrate::Never => store::Migrate::Never,
    };
    Ok(options)
}

fn with_key_file(error: OpenError, key_file: &Path) -> anyhow::Error {
    match error {
        OpenError::WrongKey { .. } => {
            anyhow::anyhow!("{error}; store.key_file is {}", key_file.display())
        }
        other => other.into(),
    }
}

/// Converts the retention settings.
pub(crate) fn retention(config: &RetentionConfig) -> Retention {
    Retention {
        manifests: config.manifests.duration(),
        feed: config.feed.duration(),
        operations: config.operations.duration(),
        audit: config.audit.duration(),
        health: config.health.duration(),
    }
}

/// Creates the directories of the store; the store creates its files.
pub(crate) fn ensure_directories(config: &Config) -> anyhow::Result<()> {
    crate::data_dir::ensure_writable(config.data_dir.as_ref())
}
