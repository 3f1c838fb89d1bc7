//! What a simulated API server has to agree with. Each case is a short conversation with an API server, written once. It
//! is held with a real kube-apiserver, where what the case expects must come true.

#![expect(clippy::unwrap_used, reason = "all of this is a test: a case that fails says where")]

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial};
use testbed::{kube, parts};

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
    println!("{} cases on kube-apiserver", cases.len());
    for case in cases {
        let real = Arc::new(OnceLock::new());
        let servers = servers.clone();
        trials.push(Trial::test(format!("kube-apiserver::{}", case.name), move || {
            heard(&case, &servers, &real).map(drop)
        }));
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
            parts::skip(parts::KUBERNETES, kube::MISSING);
            Ok(None)
        }
        Err(error) => Err(Failed::from(error)),
    }
}
