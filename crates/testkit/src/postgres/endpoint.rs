//! The address of a server, and databases on it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::server_directory::clear_postgres_environment;
use crate::{process, random};

/// Longer than any statement of a test's preparation; a server that hangs must not block the test.
const PSQL_DEADLINE: Duration = Duration::from_secs(60);

/// The address of a running server, with the right to create databases.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Everything before the database's name: `postgres://user@host:port`.
    base: String,
    /// The database in the URL.
    database: String,
    /// Everything after it: `?sslmode=require` or nothing.
    parameters: String,
    psql: PathBuf,
}

impl Endpoint {
    pub(super) fn new(url: &str, psql: PathBuf) -> anyhow::Result<Endpoint> {
        let (address, parameters) = match url.find('?') {
            Some(at) => url.split_at(at),
            None => (url, ""),
        };
        let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
        ensure!(
            matches!(scheme, "postgres" | "postgresql"),
            "a URL of the form postgres://user:password@host:port/database was expected"
        );
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let database = if database.is_empty() { "postgres" } else { database };
        Ok(Endpoint {
            base: format!("{scheme}://{authority}"),
            database: database.to_owned(),
            parameters: parameters.to_owned(),
            psql,
        })
    }

    /// The URL of a database on this server, as a superuser.
    pub fn url(&self, database: &str) -> String {
        let Endpoint { base, parameters, .. } = self;
        format!("{base}/{database}{parameters}")
    }

    /// Creates an empty database, which is dropped with the returned value.
    pub fn database(&self) -> anyhow::Result<TestDatabase> {
        let name = format!("test_{}", random::suffix());
        self.psql(&format!("create database {name}"))?;
        Ok(TestDatabase { url: self.url(&name), endpoint: self.clone(), name })
    }

    /// Runs statements as a superuser in the server's own database (`postgres`), each in its own transaction, and
    /// returns their output: a line for each row, `|` between columns.
    pub fn psql(&self, sql: &str) -> anyhow::Result<String> {
        self.psql_in(&self.database, sql)
    }

    fn psql_in(&self, database: &str, sql: &str) -> anyhow::Result<String> {
        let mut command = Command::new(&self.psql);
        clear_postgres_environment(&mut command);
        command
            .args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--no-password"])
            .args(["--set=ON_ERROR_STOP=1", "--file=-", "--dbname"])
            .arg(self.url(database))
            .env("PGCONNECT_TIMEOUT", "10");
        let output = process::output(command, sql, PSQL_DEADLINE).context("psql")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "psql failed on {sql:?}: {}", stderr.trim());
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }
}

/// A database of one test. It is dropped with this value if possible: a stopped server keeps it, and so does the
/// server of `SHIPSHAPE_TEST_POSTGRES` when the test process is killed.
#[derive(Debug)]
pub struct TestDatabase {
    endpoint: Endpoint,
    name: String,
    url: String,
}

impl TestDatabase {
    /// The URL, as a superuser.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The name on the server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Like [`Endpoint::psql`], in this database.
    pub fn psql(&self, sql: &str) -> anyhow::Result<String> {
        self.endpoint.psql_in(&self.name, sql)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let _ = self.endpoint.psql(&format!("drop database if exists {} with (force)", self.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_changes_only_in_its_database() {
        let check = |given: &str, own: &str, other: &str| {
            let endpoint = Endpoint::new(given, "psql".into()).unwrap();
            assert_eq!(endpoint.url(&endpoint.database), own);
            assert_eq!(endpoint.url("other"), other);
        };
        check("postgres://me@host:1/mine", "postgres://me@host:1/mine", "postgres://me@host:1/other");
        check("postgresql://me:pw@host", "postgresql://me:pw@host/postgres", "postgresql://me:pw@host/other");
        check(
            "postgres://host/?sslmode=disable",
            "postgres://host/postgres?sslmode=disable",
            "postgres://host/other?sslmode=disable",
        );
        check(
            "postgres:///mine?host=/run/pg",
            "postgres:///mine?host=/run/pg",
            "postgres:///other?host=/run/pg",
        );
    }

    #[test]
    fn an_invalid_url_is_rejected() {
        for given in ["", "host=localhost dbname=x", "mysql://host/db"] {
            assert!(Endpoint::new(given, "psql".into()).is_err(), "{given}");
        }
    }
}
