//! `shipshape task test`: runs one task on a simulated cluster and reports its steps.
//!
//! The engine, the store and the step kinds are the real ones; the cluster is simulated in this process and removed
//! afterwards. The clock skips the time between attempts, so that the work of a killed worker is taken over at once.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::admin::{Entry, EntryEvent, TaskForm};
use api::clock::{Clock, SharedClock, SystemClock};
use api::doc::ProvisioningState;
use api::duration::TimeSpan;
use api::work::{WorkKind, WorkState};
use clap::Args;
use cli::commands::{self, Document, Documents, KeyValue};
use cli::output;
use jiff::{SignedDuration, Timestamp};
use kubelink::apply::{self, ApplyOptions, apply};
use kubelink::{AllowedRisks, Kubeconfig, Link, ProgressSink, Timeouts};
use kubesim::kubelet::{Kubelets, NodeTemplate};
use planner::task::{Definition, check};
use serde_json::{Map, Value};
use steps::engine::{
    ATTEMPTS_MAX, Body, Journal, Plan, PollStatus, RunControl, RunOutcome, RunRequest, Step, StepError,
    run as run_plan,
};
use steps::{ClusterContext, ClusterFacts};
use store::{ClaimedWork, Keyring, LEASE, Location, NewWork, Options, Store, WorkView};
use tokio::sync::Notify;
use uuid::Uuid;

/// Largest number of claims: more than five attempts and a crash need.
const CLAIMS_MAX: usize = 20;
/// The nodes of the simulated cluster.
const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
/// Page size of the history.
const PAGE: usize = 200;
/// Longest wait until the simulated nodes are ready.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Flags of `shipshape task test`.
#[derive(Debug, Args)]
pub(crate) struct TestFlags {
    #[command(flatten)]
    documents: Documents,
    /// A parameter of the task; may be repeated
    #[arg(short, long = "param", value_name = "KEY=VALUE")]
    parameters: Vec<KeyValue>,
    /// Kill the worker in this step; another takes over
    #[arg(long, value_name = "STEP")]
    crash_at: Option<String>,
    /// Fail this step with a terminal error and undo the steps before it
    #[arg(long, value_name = "STEP")]
    fail_at: Option<String>,
    /// A file with objects to create in the cluster before the task starts
    #[arg(long, value_name = "FILE")]
    objects: Option<PathBuf>,
}

/// Runs the task of the flags, prints the report, and fails unless the result is the expected one.
pub(crate) async fn test(flags: &TestFlags) -> anyhow::Result<()> {
    let Document { place, value } = flags.documents.read_single()?;
    let form: TaskForm = planner::task::from_value(value).with_context(|| place.clone())?;
    let objects = flags.objects.as_ref().map(|file| {
        std::fs::read_to_string(file).with_context(|| format!("{}: cannot be read", file.display()))
    });
    let test = TaskTest {
        parameters: commands::parameters(&form, &flags.parameters),
        crash_at: flags.crash_at.clone(),
        fail_at: flags.fail_at.clone(),
        objects: objects.transpose()?,
    };
    let report = run(&form, &test).await.with_context(|| place)?;
    output::show(&report.text)?;
    if !report.as_expected {
        bail!("the task finished as {}", report.state);
    }
    Ok(())
}

/// Options of a test.
#[derive(Debug, Clone, Default)]
struct TaskTest {
    /// Parameters of the task.
    parameters: Map<String, Value>,
    /// The worker is killed in this step, after its effect and before its checkpoint.
    crash_at: Option<String>,
    /// This step fails with a terminal error, after its effect.
    fail_at: Option<String>,
    /// Objects in YAML that are created before the task starts.
    objects: Option<String>,
}

/// Result of a test.
#[derive(Debug, Clone)]
struct Report {
    /// Text for people.
    text: String,
    /// Final state.
    state: WorkState,
    /// Whether the result is the expected one: completed or, with an injected failure, failed with everything undone.
    as_expected: bool,
}

/// Runs the task.
async fn run(form: &TaskForm, test: &TaskTest) -> anyhow::Result<Report> {
    let definition = check(form)?;
    let names = definition.step_names();
    for step in [&test.crash_at, &test.fail_at].into_iter().flatten() {
        if !names.iter().any(|name| *name == step.as_str()) {
            bail!("the task has no step {step}; its steps are {}", names.join(", "));
        }
    }
    let cluster = kubesim::SimulatedCluster::start("test", kubesim::ClusterOptions::default()).await?;
    let kubelets = Kubelets::for_cluster(&cluster, NODES.map(NodeTemplate::worker).to_vec());
    let run_state = TestRun::prepare(&cluster, &definition, test).await?;
    let work = run_state.execute().await;
    kubelets.stop().await;
    cluster.stop().await;
    run_state.report(&work?).await
}

/// One test run: its store, clock and cluster.
struct TestRun<'a> {
    definition: &'a Definition,
    test: &'a TaskTest,
    store: Store,
    clock: Arc<AdvancingClock>,
    context: Arc<ClusterContext>,
    work: Uuid,
    _directory: tempfile::TempDir,
}

impl<'a> TestRun<'a> {
    async fn prepare(
        cluster: &kubesim::SimulatedCluster,
        definition: &'a Definition,
        test: &'a TaskTest,
    ) -> anyhow::Result<TestRun<'a>> {
        let kubeconfig = Kubeconfig::parse(&cluster.kubeconfig(), None, &AllowedRisks::nothing())?;
        let link = Link::open("test", &kubeconfig, Timeouts::default(), Arc::new(SystemClock))?;
        wait_for_nodes(&link).await?;
        if let Some(objects) = &test.objects {
            let documents = apply::Documents::parse(objects).context("the objects of the test")?;
            apply(&link, &documents, &ApplyOptions::default(), &ProgressSink::disabled())
                .await
                .context("the objects of the test")?;
        }
        let facts = ClusterFacts {
            uuid: Uuid::now_v7(),
            id: "/subscriptions/00000000-0000-0000-0000-000000000000/resourcegroups/test/providers/Microsoft.RedHatOpenShift/openShiftClusters/test".to_owned(),
            name: "test".to_owned(),
            location: "test".to_owned(),
            version: Some(kubelink::facts::version(&link).await?),
            provisioning_state: ProvisioningState::Succeeded,
            labels: BTreeMap::new(),
        };
        let directory = tempfile::tempdir().context("a directory for the test's store")?;
        let clock = Arc::new(AdvancingClock::default());
        let location = Location::Sqlite(directory.path().join("store.db"));
        let store = Store::open(Options::new(location, Keyring::ephemeral()?, clock.clone())).await?;
        let work = Uuid::now_v7();
        store.enqueue(vec![NewWork::new(work, facts.uuid, WorkKind::Manifest)]).await?;
        let context = Arc::new(ClusterContext::new(link, facts, Arc::new(SystemClock)));
        Ok(TestRun { definition, test, store, clock, context, work, _directory: directory })
    }

    /// Claims and runs the work until it is finished.
    async fn execute(&self) -> anyhow::Result<WorkView> {
        let faults = InjectedFaults {
            crash_at: self.test.crash_at.clone(),
            fail_at: self.test.fail_at.clone(),
            crash: Arc::default(),
            injected: Arc::default(),
        };
        for _ in 0..CLAIMS_MAX {
            let claimed = self.next_claim().await?;
            let plan = self.definition.plan_from_forms(&self.test.parameters, &self.context.cluster)?;
            let plan = faults.inject(plan);
            let request = RunRequest {
                store: &self.store,
                claimed: &claimed,
                plan: &plan,
                context: self.context.clone(),
                journal: Journal::read(claimed.checkpoint.as_ref()),
                control: RunControl::new(),
                clock: self.clock.clone() as SharedClock,
                actor: "service:task-test",
                attempts_max: ATTEMPTS_MAX,
            };
            let outcome = tokio::select! {
                outcome = run_plan(request) => Some(outcome),
                () = faults.crash.notified() => None,
            };
            match outcome {
                Some(RunOutcome::Finished(completion)) => drop(self.store.complete(&[completion]).await?),
                Some(RunOutcome::Released { yielding, .. }) => self.store.release(yielding).await?,
                Some(RunOutcome::LeaseLost) => bail!("the lease was lost without a take-over"),
                None => {}
            }
            let work = self.store.work(self.work).await?.context("the work does not exist")?;
            if work.state.is_terminal() {
                return Ok(work);
            }
        }
        bail!("the task did not finish within {CLAIMS_MAX} claims")
    }

    /// Advances the clock until the work can be claimed or taken over.
    async fn next_claim(&self) -> anyhow::Result<ClaimedWork> {
        let owner = Uuid::now_v7();
        for _ in 0..2 {
            let mut claimed = self.store.claim(WorkKind::Manifest, 1, owner).await?;
            if claimed.is_empty() {
                claimed = self.store.take_over(WorkKind::Manifest, 1, owner).await?;
            }
            if let Some(claimed) = claimed.pop() {
                return Ok(claimed);
            }
            let due = self.store.until_due(WorkKind::Manifest).await?;
            self.clock.advance(due.unwrap_or(LEASE) + Duration::from_secs(1));
        }
        bail!("the work cannot be claimed")
    }

    async fn report(&self, work: &WorkView) -> anyhow::Result<Report> {
        let mut text = String::new();
        writeln!(text, "task {} on a simulated cluster of {} nodes", self.definition.name(), NODES.len())?;
        let mut after = None;
        loop {
            let page = self.store.entries(self.work, after, PAGE).await?;
            for (number, entry) in &page {
                after = Some(*number);
                if let Some(line) = line(entry) {
                    writeln!(text, "  {line}")?;
                }
            }
            if page.len() < PAGE {
                break;
            }
        }
        let result = work.result.clone().unwrap_or_default();
        for undone in result.undone.iter().flatten() {
            writeln!(text, "undone: {undone}")?;
        }
        let failed = result.undo_failed.clone().unwrap_or_default();
        for failed in &failed {
            writeln!(text, "not undone: {failed}")?;
        }
        writeln!(text, "{}: {}", work.state, result.message())?;
        let as_expected = match &self.test.fail_at {
            None => work.state == WorkState::Completed,
            Some(_) => work.state == WorkState::Failed && failed.is_empty(),
        };
        Ok(Report { text, state: work.state, as_expected })
    }
}

/// One entry of the history; `None` for bookkeeping entries.
fn line(entry: &Entry) -> Option<String> {
    let step = entry.step.as_deref().unwrap_or_default();
    let duration = entry.duration_ms.map(|millis| TimeSpan::new(Duration::from_millis(millis)));
    let duration = duration.map(|duration| format!(" ({duration})")).unwrap_or_default();
    let message = entry.message.as_deref().unwrap_or_default().trim_end().replace('\n', "\n      ");
    let message = if message.is_empty() { String::new() } else { format!(": {message}") };
    Some(match &entry.event {
        EntryEvent::StepStarted => format!("{step} started"),
        EntryEvent::StepFinished => format!("{step} done{duration}{message}"),
        EntryEvent::StepFailed => format!("{step} failed{duration}{message}"),
        EntryEvent::Undone => format!("{step} undone{duration}{message}"),
        EntryEvent::TakenOver => {
            format!("the worker was killed; another takes over, attempt {}", entry.attempt)
        }
        EntryEvent::Retried => format!("retrying{message}"),
        EntryEvent::Yielded => format!("released{message}"),
        EntryEvent::Other(name) => format!("{name}{message}"),
        EntryEvent::Created
        | EntryEvent::Claimed
        | EntryEvent::CancelRequested
        | EntryEvent::Expedited
        | EntryEvent::Revived
        | EntryEvent::Finished => return None,
    })
}

async fn wait_for_nodes(link: &Link) -> anyhow::Result<()> {
    let ready = async {
        loop {
            let nodes = kubelink::facts::nodes(link).await?;
            if nodes.len() == NODES.len() && nodes.iter().all(|node| node.ready) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(READY_WITHIN, ready).await.context("the simulated nodes did not become ready")?
}

/// The system clock plus the time that the test skipped.
#[derive(Debug, Default)]
struct AdvancingClock {
    skipped_millis: AtomicI64,
}

impl AdvancingClock {
    fn advance(&self, span: Duration) {
        self.skipped_millis.fetch_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }
}

impl Clock for AdvancingClock {
    fn now(&self) -> Timestamp {
        let skipped = SignedDuration::from_millis(self.skipped_millis.load(Ordering::SeqCst));
        SystemClock.now().saturating_add(skipped).unwrap_or(Timestamp::MAX)
    }
}

/// Faults that are injected into the plan, each once.
#[derive(Clone)]
struct InjectedFaults {
    crash_at: Option<String>,
    fail_at: Option<String>,
    crash: Arc<Notify>,
    injected: Arc<std::sync::Mutex<(bool, bool)>>,
}

impl InjectedFaults {
    fn inject(&self, plan: Plan<ClusterContext>) -> Plan<ClusterContext> {
        let steps = plan.steps.into_iter().map(|step| self.inject_into_step(step)).collect();
        Plan { steps, ..plan }
    }

    fn inject_into_step(&self, step: Step<ClusterContext>) -> Step<ClusterContext> {
        let has_fault =
            [&self.crash_at, &self.fail_at].into_iter().flatten().any(|name| step.name == name.as_str());
        if !has_fault {
            return step;
        }
        let (faults, name) = (self.clone(), step.name.clone());
        let body = match step.body {
            Body::Action(action) => {
                let action = Arc::new(action);
                Body::Action(Box::new(move |context, cx| {
                    let (faults, name, action) = (faults.clone(), name.clone(), action.clone());
                    Box::pin(async move {
                        let outcome = action(context, cx).await?;
                        faults.fail_if_due(&name).await?;
                        Ok(outcome)
                    })
                }))
            }
            Body::Wait { interval, poll } => {
                let poll = Arc::new(poll);
                let poll = Box::new(move |context, cx| -> futures_util::future::BoxFuture<'static, _> {
                    let (faults, name, poll) = (faults.clone(), name.clone(), poll.clone());
                    Box::pin(async move {
                        let seen: PollStatus = poll(context, cx).await?;
                        faults.fail_if_due(&name).await?;
                        Ok(seen)
                    })
                });
                Body::Wait { interval, poll }
            }
        };
        Step { body, ..step }
    }

    async fn fail_if_due(&self, step: &str) -> Result<(), StepError> {
        let matches = |wanted: &Option<String>| wanted.as_deref() == Some(step);
        let (crashes, fails) = {
            let mut injected = self.injected.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let crashes = matches(&self.crash_at) && !injected.0;
            injected.0 |= crashes;
            let fails = !crashes && matches(&self.fail_at) && !injected.1;
            injected.1 |= fails;
            (crashes, fails)
        };
        if crashes {
            self.crash.notify_one();
            std::future::pending::<()>().await;
        }
        if fails {
            return Err(StepError::terminal("InjectedFailure", "failed by --fail-at"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> TaskForm {
        serde_json::from_value(serde_json::json!({
            "name": "demo", "title": "A demonstration",
            "parameters": {"type": "object", "required": ["node"], "properties": {"node": {"type": "string"}}},
            "steps": [
                {"name": "steady", "uses": "assert", "with": {"that": "nodes.all(n, n.ready) && nodes.size() == 3"}},
                {"name": "cordon", "uses": "node/cordon", "with": {"node": "${{ parameters.node }}"}},
                {"name": "note", "uses": "kubernetes/apply", "with": {"manifests": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "note"}, "data": {"node": "${{ parameters.node }}"}}]},
                 "undo": {"uses": "kubernetes/delete", "with": {"apiVersion": "v1", "kind": "ConfigMap", "name": "note"}}},
                {"name": "drain", "uses": "node/drain", "with": {"node": "${{ parameters.node }}"}},
                {"name": "uncordon", "uses": "node/uncordon", "with": {"node": "${{ parameters.node }}"}},
            ],
        }))
        .unwrap()
    }

    fn test() -> TaskTest {
        let parameters = serde_json::json!({"node": "node-2"}).as_object().unwrap().clone();
        TaskTest { parameters, ..TaskTest::default() }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_task_runs_to_completion_and_each_step_is_printed() {
        let report = run(&task(), &test()).await.unwrap();
        assert!(report.as_expected && report.state == WorkState::Completed, "{}", report.text);
        for expect in [
            "steady done",
            "node node-2 cordoned",
            "1 created",
            "node node-2 is drained",
            "takes pods again",
            "Completed:",
        ] {
            assert!(report.text.contains(expect), "{expect}: {}", report.text);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_worker_that_is_killed_in_a_step_is_taken_over() {
        for step in ["cordon", "note", "drain"] {
            let report = run(&task(), &TaskTest { crash_at: Some(step.to_owned()), ..test() }).await.unwrap();
            assert!(report.as_expected, "{step}: {}", report.text);
            assert!(
                report.text.contains("the worker was killed; another takes over, attempt 2"),
                "{}",
                report.text
            );
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_step_that_fails_is_undone_with_those_before_it() {
        let report = run(&task(), &TaskTest { fail_at: Some("drain".to_owned()), ..test() }).await.unwrap();
        assert!(report.as_expected && report.state == WorkState::Failed, "{}", report.text);
        assert!(report.text.contains("undone: node node-2 uncordoned"), "{}", report.text);
        assert!(report.text.contains("undone: ConfigMap default/note is gone"), "{}", report.text);
        let none = run(&task(), &TaskTest { fail_at: Some("drian".to_owned()), ..test() }).await.unwrap_err();
        assert_eq!(
            none.to_string(),
            "the task has no step drian; its steps are steady, cordon, note, drain, uncordon"
        );
    }

    /// The values of a flag in a command line.
    fn flag_values<'a>(words: &[&'a str], flag: &str) -> Vec<&'a str> {
        words.windows(2).filter(|pair| pair[0] == flag).map(|pair| pair[1]).collect()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn commands_of_the_how_to_finish_as_expected() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let text = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).unwrap();
        let how_to = text("docs/how-to/write-a-task.md");
        let lines = how_to.lines().filter(|line| line.starts_with("shipshape task test "));
        let mut tried = 0;
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            let value = |flag: &str| flag_values(&words, flag).first().map(|value| (*value).to_owned());
            let task = text(&value("-f").unwrap());
            let form = planner::task::read(task.as_bytes(), planner::task::Format::Yaml).unwrap();
            let pairs = flag_values(&words, "-p").into_iter().map(|pair| pair.split_once('=').unwrap());
            let test = TaskTest {
                parameters: pairs.map(|(name, value)| (name.to_owned(), Value::from(value))).collect(),
                crash_at: value("--crash-at"),
                fail_at: value("--fail-at"),
                objects: value("--objects").map(|path| text(&path)),
            };
            let report = run(&form, &test).await.unwrap();
            assert!(report.as_expected, "{line}: {}", report.text);
            tried += 1;
        }
        assert_eq!(tried, 6, "each example is tried, and one twice");
    }
}
