//! A conformance suite for two servers. Each case is a short script of requests. It runs on a real kube-apiserver,
//! where its expectations must hold, and on kubesim, where every response must also equal that of the real server
//! after names, times and uids are normalized. A case that differs is a bug in kubesim.

#![expect(clippy::unwrap_used, reason = "all of this is a test: a case that fails says where")]

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial};
use testkit::{kube, prerequisites};

mod cases;
mod normalize;
mod request;
mod script;
mod servers;
mod watch;
mod webhook;

use script::{Case, Transcript};
use servers::Servers;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Cases mostly wait for a server, and cases on one server are independent.
    arguments.test_threads.get_or_insert(8);
    let servers = Arc::new(Servers::default());
    let mut trials = Vec::new();
    let cases = cases::all();
    println!("{} cases on kube-apiserver, {} on kubesim", cases.len(), cases.len());
    for case in cases {
        let real = Arc::new(OnceLock::new());
        let (one, two) = (servers.clone(), servers.clone());
        let (on_real, on_sim) = (real.clone(), real);
        trials.push(Trial::test(format!("kube-apiserver::{}", case.name), move || {
            real_transcript(&case, &one, &on_real).map(drop)
        }));
        trials.push(Trial::test(format!("kubesim::{}", case.name), move || compare(&case, &two, &on_sim)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The transcript of the real server; `None` if this machine has none.
fn real_transcript<'a>(
    case: &Case,
    servers: &Servers,
    cell: &'a OnceLock<Result<Option<Transcript>, String>>,
) -> Result<Option<&'a Transcript>, Failed> {
    let transcript = cell.get_or_init(|| match servers.real() {
        None => Ok(None),
        Some(real) => servers.run(case, real).map(Some),
    });
    match transcript {
        Ok(Some(transcript)) => Ok(Some(transcript)),
        Ok(None) => {
            prerequisites::skip(prerequisites::KUBERNETES, kube::MISSING);
            Ok(None)
        }
        Err(error) => Err(Failed::from(error)),
    }
}

/// Fails unless kubesim meets the expectations of the case and responds like the real server.
fn compare(
    case: &Case,
    servers: &Servers,
    cell: &OnceLock<Result<Option<Transcript>, String>>,
) -> Result<(), Failed> {
    let simulated = servers.run(case, servers.sim())?;
    let Some(real) = real_transcript(case, servers, cell)? else { return Ok(()) };
    match real.first_difference(&simulated) {
        None => Ok(()),
        Some(difference) => Err(Failed::from(difference)),
    }
}
