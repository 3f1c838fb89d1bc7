//! Checks between settings, after each was checked alone.

use std::collections::BTreeMap;

use super::origin::Origin;
use super::{Config, StoreUrl};

/// Largest number of concurrent manifests or operations of a process.
const SLOTS_MAX: usize = 1000;

/// One message for each conflict between settings.
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
                    "store.url ({}) contains a password, and store.password_file ({}) is set too; remove one of them",
                    origin("store.url"),
                    origin("store.password_file"),
                ));
            }
        }
    }
    if config.frontend.insecure && !config.frontend.listen.ip().is_loopback() {
        problems.push(format!(
            "frontend.insecure ({}) disables authentication, but frontend.listen = {} ({}) is not a loopback address; \
             listen on a loopback address, such as 127.0.0.1:8443",
            origin("frontend.insecure"),
            config.frontend.listen,
            origin("frontend.listen"),
        ));
    }
    if config.frontend.insecure && !config.portal.listen.ip().is_loopback() {
        problems.push(format!(
            "frontend.insecure ({}) disables authentication, but portal.listen = {} ({}) is not a loopback address; \
             listen on a loopback address, such as 127.0.0.1:8444",
            origin("frontend.insecure"),
            config.portal.listen,
            origin("portal.listen"),
        ));
    }
    if config.portal.certificate.is_some() != config.portal.key.is_some() {
        problems.push(format!(
            "portal.certificate ({}) and portal.key ({}) belong together; set both or neither",
            origin("portal.certificate"),
            origin("portal.key"),
        ));
    }
    for (key, slots) in [("actuator.slots", config.actuator.slots), ("backend.slots", config.backend.slots)] {
        if !(1..=SLOTS_MAX).contains(&slots) {
            problems.push(format!(
                "{key} = {slots} ({}): expected a whole number from 1 to {SLOTS_MAX}",
                origin(key),
            ));
        }
    }
    if let Some((key, problem)) = config.monitor.problem() {
        problems.push(format!("{key} ({}): {problem}", origin(key)));
    }
    if !config.cloud.simulated_at.ip().is_loopback() {
        problems.push(format!(
            "cloud.simulated_at = {} ({}) is not a loopback address, but the simulated cloud uses plain HTTP; \
             listen on a loopback address, such as 127.0.0.1:0",
            config.cloud.simulated_at,
            origin("cloud.simulated_at"),
        ));
    }
    problems
}
