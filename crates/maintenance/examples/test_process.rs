//! Actuator or scheduler process that a test starts and kills. The actuator runs manifests of three steps, and each step appends
//! lines to a file that all processes share. It shuts down gracefully on SIGTERM and at the end of its input, so it never outlives
//! a test that was killed.
//!
//! `test_process actuator|scheduler URL KEYFILE LOG LEASE_MS`

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use api::clock::SystemClock;
use maintenance::actuator::{self, Config};
use maintenance::fixture::ScriptedTasks;
use maintenance::scheduler;
use steps::engine::{Plan, PollStatus, Step, StepContext, StepError, StepOutcome};
use store::{Keyring, Options, Store};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// File that all processes append to; each line is one write, so that lines do not mix.
struct Log(File);

impl Log {
    fn append(&self, event: &str, cx: &StepContext) -> Result<(), StepError> {
        let (pid, hold) = (std::process::id(), cx.hold);
        let line =
            format!("{event} {pid} {} {} {} {} {}\n", hold.lane, hold.owner, hold.fence, hold.work, cx.step);
        let written = (&self.0).write_all(line.as_bytes());
        written.map_err(|error| StepError::terminal("Log", "the log cannot be written").with_source(error))
    }
}

fn step(name: &'static str, takes: Duration) -> Step<Log> {
    Step::action(name, move |log: Arc<Log>, cx| async move {
        log.append("begin", &cx)?;
        tokio::time::sleep(takes).await;
        log.append("end", &cx)?;
        Ok(StepOutcome::default())
    })
}

fn plan() -> Plan<Log> {
    let wait = Step::wait("three", Duration::from_secs(60), |log: Arc<Log>, cx| async move {
        log.append("look", &cx)?;
        Ok(PollStatus::Done(StepOutcome::default()))
    });
    Plan::new()
        .step(step("one", Duration::from_millis(150)))
        .step(step("two", Duration::from_millis(50)))
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
        bail!("usage: test_process actuator|scheduler URL KEYFILE LOG LEASE_MS")
    };
    let keyring = Keyring::read(Path::new(key_file))?;
    let store = Store::open(Options::new(url.parse()?, keyring, Arc::new(SystemClock))).await?;
    let lease = Duration::from_millis(lease.parse()?);
    let mut terminate = signal(SignalKind::terminate())?;
    println!("ready");
    let shutdown = CancellationToken::new();
    let input_closed = shutdown.clone();
    // The input ends when the test closes it or exits.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        input_closed.cancel();
    });
    let terminated = async {
        terminate.recv().await;
        shutdown.cancel();
        std::future::pending::<()>().await;
    };
    let serve = async {
        match role.as_str() {
            "actuator" => {
                let log = Log(OpenOptions::new().append(true).create(true).open(log)?);
                Ok(actuator::run(actuator(store, log, lease), shutdown.clone()).await?)
            }
            "scheduler" => Ok(scheduler::run(scheduler(store, lease), shutdown.clone()).await?),
            other => bail!("{other} is neither actuator nor scheduler"),
        }
    };
    tokio::select! {
        result = serve => result?,
        () = terminated => {}
    }
    println!("stopped");
    Ok(())
}
