//! An actuator that a test starts and kills: it works manifests of three steps, and writes what each step does to a file
//! that all of them share. It ends when its input does, so it never outlives a test that was itself killed.
//!
//! `hand URL KEYFILE LOG LEASE_MS`

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use api::clock::SystemClock;
use maintenance::actuator::{self, Config, Deps, Metrics, Timing};
use maintenance::trial::Scripted;
use steps::engine::{Look, Outcome, Plan, Step, StepContext, StepError};
use store::{Keyring, Options, Store};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// What all hands write to; one line is one write, so that lines of several processes do not mix.
struct Log(File);

impl Log {
    fn say(&self, what: &str, cx: &StepContext) -> Result<(), StepError> {
        let (pid, hold) = (std::process::id(), cx.hold);
        let line =
            format!("{what} {pid} {} {} {} {} {}\n", hold.lane, hold.owner, hold.fence, hold.work, cx.step);
        let written = (&self.0).write_all(line.as_bytes());
        written.map_err(|error| StepError::terminal("Log", "the log cannot be written").because(error))
    }
}

fn work(name: &'static str, takes: Duration) -> Step<Log> {
    Step::action(name, move |log: Arc<Log>, cx| async move {
        log.say("begin", &cx)?;
        tokio::time::sleep(takes).await;
        log.say("end", &cx)?;
        Ok(Outcome::default())
    })
}

fn plan() -> Plan<Log> {
    let wait = Step::wait("three", Duration::from_secs(60), |log: Arc<Log>, cx| async move {
        log.say("look", &cx)?;
        Ok(Look::Done(Outcome::default()))
    });
    Plan::new().step(work("one", Duration::from_millis(20))).step(work("two", Duration::ZERO)).step(wait)
}

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, key_file, log, lease] = arguments.as_slice() else {
        bail!("usage: hand URL KEYFILE LOG LEASE_MS")
    };
    let clock = Arc::new(SystemClock);
    let keyring = Keyring::read(Path::new(key_file))?;
    let store = Store::open(Options::new(url.parse()?, keyring, clock.clone())).await?;
    let log = Arc::new(Log(OpenOptions::new().append(true).create(true).open(log)?));
    let lease = Duration::from_millis(lease.parse()?);
    let timing = Timing { lease, renewal: lease / 3, self_stop: lease * 2 / 3, take_over: lease / 8 };
    let deps = Deps {
        store,
        tasks: Arc::new(Scripted::new(log, |_| Ok(plan()))),
        clock,
        metrics: Metrics::default(),
        config: Config { slots: 10, timing },
        owner: Uuid::new_v4(),
    };
    println!("ready");
    let over = CancellationToken::new();
    let ends = over.clone();
    // The input ends when the test closes it, or is gone.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ends.cancel();
    });
    actuator::run(deps, over).await?;
    println!("handed back");
    Ok(())
}
