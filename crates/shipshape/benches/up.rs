//! The goals of `shipshape up --demo`, measured from outside on the executable of this build: `cargo bench --bench up -- [CLUSTERS…]`.
//!
//! For each number of clusters it is started in an empty directory. Printed are the times until the first cluster and until all are
//! usable, and memory and CPU time at rest, when nothing is asked of it but what the demonstration has started.
//!
//! A missed goal is printed, and the run still ends well: speed depends on the machine.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// Time until the first cluster is usable.
const FIRST_GOAL: Duration = Duration::from_secs(60);
/// Share of one core at rest, in percent.
const CPU_GOAL: f64 = 10.0;
/// Clusters of the usual demonstration, and of the large one, with the memory at rest in MiB.
const SIZES: [(u16, u64); 2] = [(12, 700), (100, 2048)];
/// Longest time until all clusters are usable.
const ALL_MAX: Duration = Duration::from_secs(1800);
/// Time between the last cluster and rest: schedules run for the first time, health is read, caches settle.
const SETTLE: Duration = Duration::from_secs(90);
/// Duration of the measurement at rest.
const REST: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Names of threads that are listed.
const THREADS_MAX: usize = 6;

fn main() -> anyhow::Result<()> {
    let asked: Vec<u16> = std::env::args().skip(1).filter_map(|it| it.parse().ok()).collect();
    let clusters = if asked.is_empty() { SIZES.map(|(clusters, _)| clusters).to_vec() } else { asked };
    clusters.into_iter().try_for_each(measure)
}

/// A running `up`; killed when it goes out of scope.
struct Up {
    child: Child,
    home: tempfile::TempDir,
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn shipshape(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shipshape"));
    command.env_clear().env("HOME", home).current_dir(home).stdin(Stdio::null());
    command
}

impl Up {
    fn start(clusters: u16) -> anyhow::Result<Up> {
        let home = tempfile::tempdir()?;
        let mut command = shipshape(home.path());
        command.args(["up", "--health", "127.0.0.1:0", "--api", "127.0.0.1:0", "--portal", "127.0.0.1:0"]);
        command.arg(format!("--demo={clusters}")).args(["--log-level", "warn"]);
        let child = command.stdout(Stdio::null()).spawn().context("shipshape up")?;
        Ok(Up { child, home })
    }

    /// The number of clusters that are usable, and of all; nothing while it does not answer.
    fn usable(&self) -> Option<(usize, usize)> {
        let listed = shipshape(self.home.path()).args(["cluster", "list", "-o", "json"]).output().ok()?;
        let clusters: Vec<Value> = serde_json::from_slice(&listed.stdout).ok()?;
        let is_usable = |it: &&Value| it["properties"]["provisioningState"] == "Succeeded";
        Some((clusters.iter().filter(is_usable).count(), clusters.len()))
    }

    /// Waits until so many clusters are usable.
    fn wait_for(&mut self, clusters: usize, begun: Instant) -> anyhow::Result<Duration> {
        loop {
            if self.usable().is_some_and(|(usable, _)| usable >= clusters) {
                return Ok(begun.elapsed());
            }
            ensure!(self.child.try_wait()?.is_none(), "shipshape up ended");
            ensure!(begun.elapsed() < ALL_MAX, "{:?} clusters are usable after {ALL_MAX:?}", self.usable());
            pause(POLL_INTERVAL);
        }
    }

    fn memory_mib(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
        Ok(line.split_whitespace().nth(1).unwrap_or("0").parse::<u64>()? / 1024)
    }

    /// CPU time in hundredths of a second by the names of threads. Threads that have ended are not counted.
    fn processor_ticks(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let mut ticks: BTreeMap<String, u64> = BTreeMap::new();
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let Ok(stat) = std::fs::read_to_string(thread?.path().join("stat")) else { continue };
            let Some((name, fields)) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')'))
            else {
                continue;
            };
            let fields: Vec<&str> = fields.split_whitespace().collect();
            let field = |index: usize| fields.get(index).and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
            *ticks.entry(name.to_owned()).or_default() += field(11) + field(12);
        }
        Ok(ticks)
    }
}

fn measure(clusters: u16) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut up = Up::start(clusters)?;
    let first = up.wait_for(1, begun)?;
    let all = up.wait_for(clusters.into(), begun)?;
    pause(SETTLE);
    let (before, since) = (up.processor_ticks()?, Instant::now());
    pause(REST);
    let (after, seconds) = (up.processor_ticks()?, since.elapsed().as_secs_f64());
    let mut threads: Vec<(f64, String)> = after
        .into_iter()
        .map(|(name, ticks)| {
            let spent = ticks.saturating_sub(before.get(&name).copied().unwrap_or(0));
            (f64::from(u32::try_from(spent).unwrap_or(u32::MAX)) / seconds, name)
        })
        .collect();
    threads.sort_by(|one, other| other.0.total_cmp(&one.0));
    let (cpu, memory) = (threads.iter().map(|it| it.0).sum::<f64>(), up.memory_mib()?);
    let verdict = |is_met: bool| if is_met { "pass" } else { "MISS" };
    println!("shipshape up --demo={clusters}");
    println!(
        "  {:<34} {:>8.1} s    goal at most {} s   {}",
        "first cluster usable",
        first.as_secs_f64(),
        FIRST_GOAL.as_secs(),
        verdict(first <= FIRST_GOAL)
    );
    println!("  {:<34} {:>8.1} s", "all clusters usable", all.as_secs_f64());
    let goal = SIZES.iter().rev().find(|it| it.0 <= clusters).unwrap_or(&SIZES[0]).1;
    println!(
        "  {:<34} {memory:>8} MiB  goal at most {goal} MiB   {}",
        "memory at rest",
        verdict(memory <= goal)
    );
    // The goal is for the usual number of clusters.
    let goal = match clusters <= SIZES[0].0 {
        true => format!("  goal at most {CPU_GOAL} %   {}", verdict(cpu <= CPU_GOAL)),
        false => String::new(),
    };
    println!("  {:<34} {cpu:>8.1} % of a core{goal}", "CPU at rest");
    for (percent, name) in threads.iter().take(THREADS_MAX).filter(|it| it.0 >= 0.1) {
        println!("    {name:<32} {percent:>8.1} %");
    }
    Ok(())
}

/// A timed wait on a channel that nobody sends to.
fn pause(span: Duration) {
    let (_sender, receiver) = mpsc::channel::<()>();
    let _ = receiver.recv_timeout(span);
}
