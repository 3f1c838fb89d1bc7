//! One suite for two servers. Each case is a short conversation with an API server, written once. It is held with a real
//! kube-apiserver, where what the case expects must come true, and with kubesim, where every answer must also be the one
//! that the real server gave, after names, times and uids are made alike. A case that differs is a bug in kubesim.

#![expect(clippy::unwrap_used, reason = "all of this is a test: a case that fails says where")]

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial};
use testkit::{kube, prerequisites};

mod cases;
mod normal;
mod request;
mod script;
mod servers;
mod watch;

use script::{Case, Transcript};
use servers::Servers;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Cases mostly wait for a server; those of one server do not disturb each other.
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
            heard(&case, &one, &on_real).map(drop)
        }));
        trials.push(Trial::test(format!("kubesim::{}", case.name), move || agree(&case, &two, &on_sim)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// What the real server answered; none where there is no such server.
fn heard<'a>(
    case: &Case,
    servers: &Servers,
    cell: &'a OnceLock<Result<Option<Transcript>, String>>,
) -> Result<Option<&'a Transcript>, Failed> {
    let heard = cell.get_or_init(|| match servers.real() {
        None => Ok(None),
        Some(real) => servers.hold(case, real).map(Some),
    });
    match heard {
        Ok(Some(transcript)) => Ok(Some(transcript)),
        Ok(None) => {
            prerequisites::skip(prerequisites::KUBERNETES, kube::MISSING);
            Ok(None)
        }
        Err(error) => Err(Failed::from(error)),
    }
}

/// Whether kubesim answers as the case expects and as the real server did.
fn agree(
    case: &Case,
    servers: &Servers,
    cell: &OnceLock<Result<Option<Transcript>, String>>,
) -> Result<(), Failed> {
    let simulated = servers.hold(case, servers.sim())?;
    let Some(real) = heard(case, servers, cell)? else { return Ok(()) };
    match real.first_difference(&simulated) {
        None => Ok(()),
        Some(difference) => Err(Failed::from(difference)),
    }
}
