//! Real PostgreSQL servers for tests: private ones that can be stopped, killed and failed over, and one that the
//! tests of a process share.
//!
//! A private server has its own directory and port, listens on 127.0.0.1 only, and ends with the test process in any
//! case ([`crate::scratch`]). `fsync` stays on, because tests check that nothing is lost. PostgreSQL refuses to run
//! as root: a test that runs as root starts it as `postgres` or, if there is no such account, as `nobody`.

use std::sync::OnceLock;

use anyhow::Context;

mod binaries;
mod endpoint;
mod server;
mod server_directory;
#[cfg(test)]
mod tests;

pub use endpoint::{Endpoint, TestDatabase};
pub use server::{PostgresOptions, StopMode, TestPostgres};

use binaries::Binaries;

use crate::environment;

/// The server that the tests of this process share; `None` if this machine has none.
///
/// It is the one that `SHIPSHAPE_TEST_POSTGRES` names with a superuser's URL, else a private [`TestPostgres`] that the
/// first call starts. Tests create databases on it and cannot stop it: a test that needs a server to fail starts a
/// private one.
///
/// # Panics
/// When there are binaries but no server starts: that is a failure, not a missing prerequisite.
pub fn shared() -> Option<&'static Endpoint> {
    static SHARED: OnceLock<Result<Option<Shared>, String>> = OnceLock::new();
    match SHARED.get_or_init(|| Shared::find().map_err(|error| format!("{error:#}"))) {
        Ok(shared) => shared.as_ref().map(Shared::endpoint),
        Err(error) => panic!("failed to start the PostgreSQL server for tests: {error}"),
    }
}

/// A server of one test, to stop, kill and fail over; `None` if no binaries are installed.
///
/// # Panics
/// When there are binaries but no server starts: that is a failure, not a missing prerequisite.
pub fn private(options: PostgresOptions) -> Option<TestPostgres> {
    let start = || anyhow::Ok(if is_installed()? { Some(TestPostgres::start(options)?) } else { None });
    match start() {
        Ok(server) => server,
        Err(error) => panic!("failed to start the PostgreSQL server for tests: {error:#}"),
    }
}

/// Whether the binaries of a private server are installed.
pub fn is_installed() -> anyhow::Result<bool> {
    Ok(Binaries::find()?.is_some())
}

/// The shared server. A static is never dropped, so the guardian of a private server ends it after the tests.
enum Shared {
    External(Endpoint),
    Private(Box<TestPostgres>),
}

impl Shared {
    fn find() -> anyhow::Result<Option<Shared>> {
        let binaries = Binaries::find()?;
        if let Some(url) = environment::get("SHIPSHAPE_TEST_POSTGRES") {
            let psql = binaries.map_or_else(|| "psql".into(), |binaries| binaries.program("psql"));
            let url = url.to_str().context("SHIPSHAPE_TEST_POSTGRES is not UTF-8")?;
            let endpoint = Endpoint::new(url, psql).context("SHIPSHAPE_TEST_POSTGRES")?;
            endpoint
                .psql("select 1")
                .context("the server that SHIPSHAPE_TEST_POSTGRES names does not respond")?;
            return Ok(Some(Shared::External(endpoint)));
        }
        match binaries {
            Some(_) => Ok(Some(Shared::Private(Box::new(TestPostgres::start(PostgresOptions::default())?)))),
            None => Ok(None),
        }
    }

    fn endpoint(&self) -> &Endpoint {
        match self {
            Shared::External(endpoint) => endpoint,
            Shared::Private(server) => server,
        }
    }
}
