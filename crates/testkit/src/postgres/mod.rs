//! Real PostgreSQL servers for tests: private ones that can be stopped, killed and failed over, and one
//! that the tests of a process share.
//!
//! A private server has its own directory and port, listens on 127.0.0.1 only, and ends with the test
//! process whatever happens to that ([`crate::scratch`]). It keeps `fsync` on, because what is tested is
//! that nothing is lost. PostgreSQL refuses to run as root: a test that is root starts it as `postgres`
//! or, where there is no such account, as `nobody`.

use std::sync::OnceLock;

use anyhow::Context;

mod binaries;
mod endpoint;
mod place;
mod server;
#[cfg(test)]
mod tests;

pub use endpoint::{Endpoint, TestDatabase};
pub use server::{PostgresOptions, StopMode, TestPostgres};

use binaries::Binaries;

use crate::setting;

/// The server that the tests of this process share; `None` when this machine has none.
///
/// It is the one that `SHIPSHAPE_TEST_POSTGRES` names with a superuser's URL, else a private [`TestPostgres`]
/// started at the first call. Either way tests get databases from it, and nobody can stop it: what needs a
/// server to fail starts one of its own.
///
/// # Panics
/// When there are binaries but no server starts: that is a failure, not a missing part.
pub fn shared() -> Option<&'static Endpoint> {
    static SHARED: OnceLock<Result<Option<Shared>, String>> = OnceLock::new();
    match SHARED.get_or_init(|| Shared::find().map_err(|error| format!("{error:#}"))) {
        Ok(shared) => shared.as_ref().map(Shared::endpoint),
        Err(error) => panic!("the PostgreSQL server for tests did not start: {error}"),
    }
}

/// A server of the test's own, to stop, kill and fail over; `None` when no binaries are installed.
///
/// # Panics
/// When there are binaries but no server starts: that is a failure, not a missing part.
pub fn private(options: PostgresOptions) -> Option<TestPostgres> {
    let start = || anyhow::Ok(if is_installed()? { Some(TestPostgres::start(options)?) } else { None });
    match start() {
        Ok(server) => server,
        Err(error) => panic!("the PostgreSQL server for tests did not start: {error:#}"),
    }
}

/// Whether there are binaries to start a private server with.
pub fn is_installed() -> anyhow::Result<bool> {
    Ok(Binaries::find()?.is_some())
}

/// Keeps the private server alive; a static is never dropped, so its guardian ends it after the tests.
enum Shared {
    Given(Endpoint),
    Private(Box<TestPostgres>),
}

impl Shared {
    fn find() -> anyhow::Result<Option<Shared>> {
        let binaries = Binaries::find()?;
        if let Some(url) = setting::get("SHIPSHAPE_TEST_POSTGRES") {
            let psql = binaries.map_or_else(|| "psql".into(), |binaries| binaries.program("psql"));
            let url = url.to_str().context("SHIPSHAPE_TEST_POSTGRES is not UTF-8")?;
            let endpoint = Endpoint::new(url, psql).context("SHIPSHAPE_TEST_POSTGRES")?;
            endpoint
                .psql("select 1")
                .context("the server that SHIPSHAPE_TEST_POSTGRES names does not answer")?;
            return Ok(Some(Shared::Given(endpoint)));
        }
        match binaries {
            Some(_) => Ok(Some(Shared::Private(Box::new(TestPostgres::start(PostgresOptions::default())?)))),
            None => Ok(None),
        }
    }

    fn endpoint(&self) -> &Endpoint {
        match self {
            Shared::Given(endpoint) => endpoint,
            Shared::Private(server) => server,
        }
    }
}
