//! What must hold between settings, checked when each alone is right.

use std::collections::BTreeMap;

use super::origin::Origin;
use super::{Config, StoreUrl};

/// One sentence for each pair of settings that do not go together.
pub(super) fn between_settings(config: &Config, origins: &BTreeMap<String, Origin>) -> Vec<String> {
    let origin = |key: &str| origins.get(key).unwrap_or(&Origin::Default);
    let mut problems = Vec::new();
    match &config.store.url {
        StoreUrl::Sqlite(_) => {
            let postgres_only = [
                ("store.password_file", &config.store.password_file),
                ("store.ca_file", &config.store.ca_file),
            ];
            for (key, path) in postgres_only {
                if let Some(path) = path {
                    problems.push(format!(
                        "{key} = \"{path}\" ({}) is for PostgreSQL only, but store.url ({}) is SQLite; \
                         remove it, or set store.url to postgres://…",
                        origin(key),
                        origin("store.url"),
                    ));
                }
            }
        }
        StoreUrl::Postgres(_) => {
            if config.store.password_file.is_some() && config.store.url.has_password() {
                problems.push(format!(
                    "store.url ({}) holds a password, and store.password_file ({}) names another; keep one of them",
                    origin("store.url"),
                    origin("store.password_file"),
                ));
            }
        }
    }
    problems
}
