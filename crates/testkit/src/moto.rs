//! moto's server: Amazon's services in one process, as far as tests need them.
//!
//! It starts on a port of the system's choice, and ends with the test process: see [`crate::scratch`].

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use anyhow::Context;

use crate::process::ChildProcess;
use crate::scratch::ScratchDirectory;
use crate::tools;

/// Why a test that needs it is skipped.
pub const MISSING: &str = "no moto_server was found; tools/setup installs it";

/// Longest start, also on a busy machine: Python reads the descriptions of the services.
const START_MAX: Duration = Duration::from_secs(90);

/// A running server.
#[derive(Debug)]
pub struct MotoServer {
    url: String,
    _process: Mutex<ChildProcess>,
    _scratch: ScratchDirectory,
}

impl MotoServer {
    /// Starts a server that validates what it validates on request: images and key pairs. It has no images of Amazon's, which it would
    /// read for every region; tests register their own.
    pub fn start(program: PathBuf) -> anyhow::Result<MotoServer> {
        let scratch = ScratchDirectory::new("moto")?;
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$0\" -H 127.0.0.1 -p 0 2>&1"])
            .arg(program)
            .env("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
            .env("MOTO_ENABLE_AMI_VALIDATION", "1")
            .env("MOTO_ENABLE_KEYPAIR_VALIDATION", "1")
            .env("PYTHONUNBUFFERED", "1")
            .current_dir(scratch.path());
        let mut process = ChildProcess::start(command)?;
        loop {
            let line = process.line(START_MAX).context("moto_server did not start")?;
            if let Some((_, url)) = line.split_once("Running on ") {
                let url = url.trim().trim_end_matches('/').to_owned();
                return Ok(MotoServer { url, _process: Mutex::new(process), _scratch: scratch });
            }
        }
    }

    /// Where it listens, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// A server of the caller's own, or `None` if this machine has no moto.
///
/// # Panics
/// When it does not start.
pub fn start() -> Option<MotoServer> {
    let program =
        tools::named("SHIPSHAPE_TEST_MOTO").or_else(|| tools::newest_cached("moto-", "bin/moto_server"))?;
    match MotoServer::start(program) {
        Ok(server) => Some(server),
        Err(error) => panic!("{error:#}"),
    }
}

/// The server that the tests of an executable share, or `None` if this machine has no moto.
///
/// # Panics
/// When it does not start.
pub fn shared() -> Option<&'static MotoServer> {
    static SERVER: OnceLock<Option<MotoServer>> = OnceLock::new();
    SERVER.get_or_init(start).as_ref()
}
