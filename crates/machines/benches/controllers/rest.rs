//! Machines at rest in a simulated cluster, with the controllers in another process.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use api::clock::{Clock as _, SystemClock};
use api::crd::machine::Machine;
use jiff::{SignedDuration, Timestamp};
use kube::{Api, Client};
use kubesim::{ClusterOptions, SimulatedCluster};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::population::{create_namespace, define, machine_name, populate, set_ready};
use crate::worker::{ARGUMENT, NAMESPACE, Usage};
use crate::{report, until};

const FEW: usize = 100;
const MANY: usize = 10_000;
/// Machines of each MachineSet.
const PER_SET: usize = 100;

const RESIDENT_GOAL_MIB: f64 = 300.0;
const CPU_GOAL: f64 = 0.05;
/// By how much a changed Node may cost more among many Machines than among few.
const GROWTH_GOAL: f64 = 1.25;
const REMEDIATION_GOAL: Duration = Duration::from_secs(2);
/// The timeout of the check that `populate` creates.
const CHECK_TIMEOUT: SignedDuration = SignedDuration::from_secs(3);

/// Time for which the process at rest is observed.
const OBSERVED: Duration = Duration::from_secs(20);
/// CPU time in a second from which on the process is not at rest.
const BUSY: Duration = Duration::from_millis(100);
/// Changes of Nodes that are measured together, and the time between them.
const CHANGES: usize = 400;
const BETWEEN: Duration = Duration::from_millis(20);
/// CPU time for a change below which a comparison measures noise.
const NOISE_MS: f64 = 0.1;
const REMEDIATIONS: usize = 5;

/// A process with the controllers.
struct Worker {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(kubeconfig: &std::path::Path) -> anyhow::Result<Worker> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([ARGUMENT.as_ref(), kubeconfig.as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().context("its input")?;
        let output = BufReader::new(child.stdout.take().context("its output")?).lines();
        Ok(Worker { _child: child, input, output })
    }

    async fn usage(&mut self) -> anyhow::Result<Usage> {
        self.input.write_all(b"\n").await?;
        let line = self.output.next_line().await?.context("the process of the controllers ended")?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Waits until it has requested nothing and computed little for a while.
    async fn rests(&mut self) -> anyhow::Result<()> {
        let (mut before, mut quiet_seconds) = (self.usage().await?, 0);
        while quiet_seconds < 3 || before.requests == 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = self.usage().await?;
            let is_quiet = now.requests == before.requests && now.cpu - before.cpu < BUSY;
            quiet_seconds = if is_quiet { quiet_seconds + 1 } else { 0 };
            before = now;
        }
        Ok(())
    }

    /// The share of a core that it uses at rest.
    async fn cpu_at_rest(&mut self) -> anyhow::Result<f64> {
        self.rests().await?;
        let (begun, before) = (Instant::now(), self.usage().await?);
        tokio::time::sleep(OBSERVED).await;
        Ok((self.usage().await?.cpu - before.cpu).as_secs_f64() / begun.elapsed().as_secs_f64())
    }
}

/// What a changed Node costs.
#[derive(Debug, Clone, Copy)]
struct Cost {
    requests: f64,
    cpu_ms: f64,
}

/// What was measured with a number of Machines.
struct Measured {
    resident_mib: f64,
    cpu: f64,
    heartbeat: Cost,
    flip: Cost,
    remediated_after: Duration,
}

pub(crate) async fn measure() -> anyhow::Result<()> {
    let few = with_machines(FEW).await?;
    let many = with_machines(MANY).await?;
    println!("{MANY} Machines at rest in MachineSets of {PER_SET}, one check of all, kubesim");
    let mib = format!("{:.0} MiB", many.resident_mib);
    let goal = format!("at most {RESIDENT_GOAL_MIB:.0} MiB");
    report("memory of the controllers' process", &mib, &goal, many.resident_mib <= RESIDENT_GOAL_MIB);
    let cpu = format!("{:.2} % of a core", many.cpu * 100.0);
    let goal = format!("at most {:.0} %", CPU_GOAL * 100.0);
    report("CPU, compared with the cloud ten times as often", &cpu, &goal, many.cpu <= CPU_GOAL);
    compare("a Node that reports that it lives", few.heartbeat, many.heartbeat);
    compare("a Node that becomes ready or not", few.flip, many.flip);
    let after = few.remediated_after.max(many.remediated_after);
    let seconds = format!("{:.2} s", after.as_secs_f64());
    let goal = format!("at most {} s", REMEDIATION_GOAL.as_secs());
    report("remediation after the timeout, longest", &seconds, &goal, after <= REMEDIATION_GOAL);
    Ok(())
}

fn compare(what: &str, few: Cost, many: Cost) {
    let goal = format!("at most {GROWTH_GOAL:.2}");
    let requests = format!("{:.2} / {:.2}", few.requests, many.requests);
    let is_met = many.requests <= few.requests * GROWTH_GOAL + 0.01;
    report(&format!("{what}: requests, {FEW} / {MANY}"), &requests, "the same", is_met);
    let cpu = format!("{:.2} / {:.2} ms", few.cpu_ms, many.cpu_ms);
    let ratio = many.cpu_ms.max(NOISE_MS) / few.cpu_ms.max(NOISE_MS);
    report(&format!("{what}: CPU"), &format!("{cpu}, ratio {ratio:.2}"), &goal, ratio <= GROWTH_GOAL);
}

async fn with_machines(machines: usize) -> anyhow::Result<Measured> {
    let options = ClusterOptions { controllers: false, ..ClusterOptions::default() };
    let cluster = SimulatedCluster::start("bench", options).await?;
    let client = cluster.client();
    define(&client).await?;
    create_namespace(&client, NAMESPACE).await?;
    populate(&client, NAMESPACE, machines, PER_SET).await?;
    let directory = tempfile::tempdir()?;
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(&kubeconfig, cluster.kubeconfig())?;
    let mut worker = Worker::start(&kubeconfig)?;
    let cpu = worker.cpu_at_rest().await?;
    // The time of a heartbeat changes, the state does not; then the state flips, and its time is recent, so that no timeout is over.
    let heartbeat = cost(&mut worker, &client, machines, |_| "True").await?;
    let flip = |round: usize| if round.is_multiple_of(2) { "Unknown" } else { "True" };
    let flip = cost(&mut worker, &client, machines, flip).await?;
    worker.rests().await?;
    let mut remediated_after = Duration::ZERO;
    for index in 0..REMEDIATIONS {
        let latency = remediation(&client, &machine_name(0, index)).await?;
        remediated_after = remediated_after.max(latency);
    }
    let resident_mib = worker.usage().await?.resident_mib;
    cluster.stop().await;
    Ok(Measured { resident_mib, cpu, heartbeat, flip, remediated_after })
}

/// What each of many changes of Nodes costs, without what the process uses at rest. Each Node is changed twice.
async fn cost(
    worker: &mut Worker,
    client: &Client,
    machines: usize,
    ready: impl Fn(usize) -> &'static str,
) -> anyhow::Result<Cost> {
    let resting = worker.cpu_at_rest().await?;
    let (begun, before) = (Instant::now(), worker.usage().await?);
    for change in 0..CHANGES {
        let node = change / 2;
        let sets = machines / PER_SET;
        let name = machine_name(node % sets, (node / sets) % PER_SET);
        let now = SystemClock.now().to_string();
        set_ready(client, &name, ready(change), &now).await?;
        tokio::time::sleep(BETWEEN).await;
    }
    worker.rests().await?;
    let after = worker.usage().await?;
    let cpu = (after.cpu - before.cpu).as_secs_f64() - resting * begun.elapsed().as_secs_f64();
    let changes = CHANGES as f64;
    Ok(Cost { requests: (after.requests - before.requests) as f64 / changes, cpu_ms: cpu * 1000.0 / changes })
}

/// The time from the end of the timeout of a Node's condition to the deletion of its Machine.
async fn remediation(client: &Client, name: &str) -> anyhow::Result<Duration> {
    let machines: Api<Machine> = Api::namespaced(client.clone(), NAMESPACE);
    let since = Timestamp::from_second(SystemClock.now().as_second())?;
    set_ready(client, name, "False", &since.to_string()).await?;
    until("the Machine is remediated", Duration::from_secs(30), async || {
        machines
            .get_opt(name)
            .await
            .is_ok_and(|found| found.is_none_or(|machine| machine.metadata.deletion_timestamp.is_some()))
    })
    .await?;
    let late = SystemClock.now().duration_since(since + CHECK_TIMEOUT);
    anyhow::ensure!(!late.is_negative(), "Machine {name} was remediated before its timeout");
    Ok(late.unsigned_abs())
}
