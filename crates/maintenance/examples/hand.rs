//! An actuator or a scheduler that a test starts and kills. The actuator works manifests of three steps, and writes what each
//! step does to a file that all of them share. It ends in order by SIGTERM and when its input does, so it never outlives a
//! test that was itself killed.
//!
//! `hand actuator|scheduler URL KEYFILE LOG LEASE_MS`

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use api::clock::SystemClock;
use maintenance::actuator::{self, Config};
use maintenance::scheduler;
use maintenance::trial::ScriptedTasks;
use steps::engine::{Plan, PollStatus, Step, StepContext, StepError, StepOutcome};
use store::{Keyring, Options, Store};
use tokio::signal::unix::{SignalKind, signal};
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
        written.map_err(|error| StepError::terminal("Log", "the log cannot be written").with_source(error))
    }
}

fn work(name: &'static str, takes: Duration) -> Step<Log> {
    Step::action(name, move |log: Arc<Log>, cx| async move {
        log.say("begin", &cx)?;
        tokio::time::sleep(takes).await;
        log.say("end", &cx)?;
        Ok(StepOutcome::default())
    })
}

fn plan() -> Plan<Log> {
    let wait = Step::wait("three", Duration::from_secs(60), |log: Arc<Log>, cx| async move {
        log.say("look", &cx)?;
        Ok(PollStatus::Done(StepOutcome::default()))
    });
    Plan::new()
        .step(work("one", Duration::from_millis(150)))
        .step(work("two", Duration::from_millis(50)))
        .step(wait)
}

fn actuator(store: Store, log: Log, lease: Duration) -> actuator::Deps<ScriptedTasks<Log>> {
    let timing =
        actuator::Timing { lease, renewal: lease / 3, self_stop: lease * 2 / 3, take_over: lease / 8 };
    actuator::Deps {
        store,
        tasks: Arc::new(ScriptedTasks::new(Arc::new(log), |_| Ok(plan()))),
        clock: Arc::new(SystemClock),
        metrics: actuator::Metrics::default(),
        config: Config { slots: 10, timing },
        owner: Uuid::new_v4(),
    }
}

fn scheduler(store: Store, lease: Duration) -> scheduler::Deps {
    scheduler::Deps {
        store,
        clock: Arc::new(SystemClock),
        metrics: scheduler::Metrics::default(),
        owner: Uuid::new_v4(),
        timing: scheduler::Timing { lease, renewal: lease / 4, standby: lease / 8 },
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, url, key_file, log, lease] = arguments.as_slice() else {
        bail!("usage: hand actuator|scheduler URL KEYFILE LOG LEASE_MS")
    };
    let keyring = Keyring::read(Path::new(key_file))?;
    let store = Store::open(Options::new(url.parse()?, keyring, Arc::new(SystemClock))).await?;
    let lease = Duration::from_millis(lease.parse()?);
    let mut terminate = signal(SignalKind::terminate())?;
    println!("ready");
    let over = CancellationToken::new();
    let ends = over.clone();
    // The input ends when the test closes it, or is gone.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ends.cancel();
    });
    let told = async {
        terminate.recv().await;
        over.cancel();
        std::future::pending::<()>().await;
    };
    let serve = async {
        match role.as_str() {
            "actuator" => {
                let log = Log(OpenOptions::new().append(true).create(true).open(log)?);
                Ok(actuator::run(actuator(store, log, lease), over.clone()).await?)
            }
            "scheduler" => Ok(scheduler::run(scheduler(store, lease), over.clone()).await?),
            other => bail!("{other} is neither actuator nor scheduler"),
        }
    };
    tokio::select! {
        ended = serve => ended?,
        () = told => {}
    }
    println!("handed back");
    Ok(())
}
