//! The loop of the kubelets: two watches report nodes and pods, pure functions decide the next step of each, and the
//! engine writes the steps that are due.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, Patch};
use kube::core::ApiResource;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::containers::{self, Containers, Directive, Exit};
use super::node::{self, LastWrites, NodeStep};
use super::pod::{self, Delays, PodStep};
use super::requests::{MANAGER, create_node, delete_params, patch_params, renew};
use super::views::{NodeView, PodView, RawNode, RawPod};
use super::{KubeletOptions, annotations, events};

/// Highest number of concurrent writes.
const WRITES_MAX: usize = 16;
/// Delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// A clock that tests set by hand sends no wake-up, so it is read at this interval.
const CLOCK_POLL: Duration = Duration::from_secs(5);
/// Leases that are due within this fraction of a heartbeat are renewed together.
const RENEW_AHEAD_DIVISOR: u32 = 5;
/// The node or pod that a step is due for; pods by uid.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum QueueKey {
    Node(String),
    Pod(String),
}

/// A pod, and the time since when it is in its current state.
struct TrackedPod {
    view: PodView,
    since: Timestamp,
    /// How its containers ended, until that is written.
    exit: Option<Exit>,
}

struct TrackedNode {
    view: NodeView,
    done: LastWrites,
    number: usize,
    pods: u32,
}

/// The observed state of a cluster, and the schedule of the next steps.
struct Engine {
    options: KubeletOptions,
    client: Client,
    version: String,
    nodes: HashMap<String, TrackedNode>,
    pods: HashMap<String, TrackedPod>,
    due: BTreeMap<(Timestamp, QueueKey), ()>,
    scheduled: HashMap<QueueKey, Timestamp>,
    busy: HashMap<QueueKey, bool>,
    writes: JoinSet<(QueueKey, Option<WriteOutcome>)>,
    containers: Containers,
}

/// What was written, so that it is not written again before the watch reports it.
enum WriteOutcome {
    Reported(Timestamp),
    Renewed(Timestamp),
    Nothing,
}

pub(super) async fn run(client: Client, options: KubeletOptions, stop: CancellationToken) {
    let mut engine = Engine {
        version: String::new(),
        nodes: HashMap::new(),
        pods: HashMap::new(),
        due: BTreeMap::new(),
        scheduled: HashMap::new(),
        busy: HashMap::new(),
        writes: JoinSet::new(),
        containers: Containers::new(options.runtime.clone(), options.server.clone()),
        options,
        client,
    };
    tokio::select! {
        () = stop.cancelled() => return,
        () = engine.create_nodes() => {}
    }
    engine.run(stop).await;
}

impl Engine {
    /// Creates the nodes of the options that do not exist.
    async fn create_nodes(&mut self) {
        loop {
            match self.client.apiserver_version().await {
                Ok(version) => {
                    self.version = version.git_version;
                    break;
                }
                Err(error) => log_and_wait(&error).await,
            }
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        for plan in &self.options.nodes {
            while let Err(error) = create_node(&nodes, plan).await {
                log_and_wait(&error).await;
            }
        }
    }

    async fn run(&mut self, stop: CancellationToken) {
        let pods = Api::<RawPod>::all_with(self.client.clone(), &ApiResource::erase::<Pod>(&()));
        let nodes = Api::<RawNode>::all_with(self.client.clone(), &ApiResource::erase::<Node>(&()));
        let simulated = watcher::Config::default().labels(annotations::SIMULATED_LABEL);
        let mut nodes = std::pin::pin!(watcher(nodes, simulated).default_backoff());
        let mut pods = std::pin::pin!(watcher(pods, watcher::Config::default()).default_backoff());
        loop {
            let now = self.options.clock.now();
            self.start_due_writes(now);
            let rest = self.due.first_key_value().map_or(CLOCK_POLL, |((at, _), ())| {
                Duration::try_from(at.duration_since(now))
                    .unwrap_or_default()
                    .clamp(Duration::from_millis(1), CLOCK_POLL)
            });
            let full = self.writes.len() >= WRITES_MAX;
            tokio::select! {
                () = stop.cancelled() => break,
                Some(event) = nodes.next() => self.on_node_event(event),
                Some(event) = pods.next() => self.on_pod_event(event),
                Some(finished) = self.writes.join_next(), if !self.writes.is_empty() => {
                    if let Ok((key, done)) = finished {
                        self.on_written(key, done);
                    }
                }
                (uid, exit) = self.containers.next_exit() => self.on_exit(&uid, exit),
                () = tokio::time::sleep(rest), if !full => {}
            }
        }
        self.containers.shutdown().await;
        while self.writes.join_next().await.is_some() {}
    }

    fn on_node_event(&mut self, event: Result<watcher::Event<RawNode>, watcher::Error>) {
        match event {
            Ok(watcher::Event::Apply(node) | watcher::Event::InitApply(node)) => {
                let Some(view) = NodeView::from_object(&node) else { return };
                let name = view.name.clone();
                let plan = self.options.nodes.iter().position(|plan| plan.name == name);
                let number = plan.unwrap_or(self.nodes.len());
                let pods = plan.map_or(110, |place| self.options.nodes[place].pods);
                let tracked = self.nodes.entry(name.clone()).or_insert_with(|| TrackedNode {
                    view: view.clone(),
                    done: LastWrites::default(),
                    number,
                    pods,
                });
                if tracked.view.uid != view.uid {
                    tracked.done = LastWrites::default();
                }
                let changed =
                    tracked.view.state != view.state || tracked.view.refuses_drain != view.refuses_drain;
                tracked.view = view;
                self.plan(QueueKey::Node(name.clone()));
                if changed {
                    let affected = self.pods.iter().filter(|(_, pod)| pod.view.node == name);
                    let affected: Vec<QueueKey> =
                        affected.map(|(uid, _)| QueueKey::Pod(uid.clone())).collect();
                    affected.into_iter().for_each(|key| self.plan(key));
                }
                self.direct_containers_of(&name);
            }
            Ok(watcher::Event::Delete(node)) => {
                if let Some(name) = node.metadata.name {
                    self.nodes.remove(&name);
                    self.direct_containers_of(&name);
                    self.plan(QueueKey::Node(name));
                }
            }
            Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "Watch of nodes failed; retrying");
            }
        }
    }

    fn on_pod_event(&mut self, event: Result<watcher::Event<RawPod>, watcher::Error>) {
        match event {
            Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                let Some(view) = PodView::from_object(&pod, |image| self.containers.runs(image)) else {
                    return;
                };
                let (uid, now) = (view.uid.clone(), self.options.clock.now());
                self.report_stop(&view, now);
                match self.pods.get_mut(&uid) {
                    Some(tracked) if tracked.view == view => return,
                    // A container that has ended since stays so until that is written.
                    Some(tracked) => {
                        let exit = tracked.exit.take().filter(|_| view.ready && view.phase == "Running");
                        *tracked = TrackedPod { view, since: now, exit };
                    }
                    None => drop(self.pods.insert(uid.clone(), TrackedPod { view, since: now, exit: None })),
                }
                self.direct_containers(&uid);
                self.plan(QueueKey::Pod(uid));
            }
            Ok(watcher::Event::Delete(pod)) => {
                if let Some(uid) = pod.metadata.uid {
                    self.pods.remove(&uid);
                    self.containers.kill(&uid);
                    self.plan(QueueKey::Pod(uid));
                }
            }
            Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "Watch of pods failed; retrying");
            }
        }
    }

    /// Reports that the containers of a pod are stopped, when its deletion is seen first.
    fn report_stop(&self, view: &PodView, now: Timestamp) {
        let was_deleted = self.pods.get(&view.uid).is_none_or(|tracked| tracked.view.deletion.is_some());
        let stops =
            self.nodes.get(&view.node).is_some_and(|node| pod::stops(view, &node.view)) && !was_deleted;
        if stops {
            self.options.server.record_events(&events::of_stop(view), now);
        }
    }

    /// Starts or ends the containers of a pod as its state demands.
    fn direct_containers(&mut self, uid: &str) {
        let Some(tracked) = self.pods.get(uid).filter(|it| !it.view.runnable.is_empty()) else { return };
        let node = self.nodes.get(&tracked.view.node).map(|it| &it.view);
        let directive = containers::decide(&tracked.view, node, tracked.exit.is_some());
        self.containers.carry_out(directive, uid, &tracked.view.runnable);
    }

    fn direct_containers_of(&mut self, node: &str) {
        let affected =
            self.pods.iter().filter(|(_, pod)| pod.view.node == node && !pod.view.runnable.is_empty());
        let affected: Vec<String> = affected.map(|(uid, _)| uid.clone()).collect();
        affected.iter().for_each(|uid| self.direct_containers(uid));
    }

    fn on_exit(&mut self, uid: &str, exit: Exit) {
        let Some(tracked) = self.pods.get_mut(uid) else { return };
        if let Exit::Failure(message) = &exit {
            let view = &tracked.view;
            tracing::info!("Pod {}/{} of a simulated cluster ended: {message}", view.namespace, view.name);
            for container in &view.runnable {
                self.options.server.append_log(uid, &container.name, &format!("error: {message}"));
            }
        }
        tracked.exit = Some(exit);
        self.plan(QueueKey::Pod(uid.to_owned()));
    }

    /// Schedules the next step of a node or pod, replacing an earlier schedule.
    fn plan(&mut self, key: QueueKey) {
        if let Some(at) = self.scheduled.remove(&key) {
            self.due.remove(&(at, key.clone()));
        }
        // While a write is under way, the next step is planned when the write is done.
        if let Some(again) = self.busy.get_mut(&key) {
            *again = true;
            return;
        }
        let now = self.options.clock.now();
        let next = match &key {
            QueueKey::Node(name) => self
                .nodes
                .get(name)
                .and_then(|tracked| node::next(&tracked.view, tracked.done, self.options.heartbeat, now))
                .map(|it| it.0),
            QueueKey::Pod(uid) => self.pod_step(uid).map(|it| it.0),
        };
        if let Some(at) = next {
            self.schedule(key, at);
        }
    }

    fn schedule(&mut self, key: QueueKey, at: Timestamp) {
        self.scheduled.insert(key.clone(), at);
        self.due.insert((at, key), ());
    }

    fn pod_step(&self, uid: &str) -> Option<(Timestamp, PodStep)> {
        let tracked = self.pods.get(uid)?;
        let node = self.nodes.get(&tracked.view.node)?;
        let delays = Delays { seed: self.options.seed, factor: self.options.delay_factor };
        let next = pod::next(&tracked.view, &node.view, tracked.since, delays);
        match (&tracked.exit, tracked.view.deletion) {
            // The pod is removed when its containers have ended, at the latest after its grace period.
            (_, Some((latest, _))) if self.containers.is_running(uid) => {
                next.map(|(at, step)| (at.max(latest), step))
            }
            (Some(exit), None) if tracked.view.phase == "Running" && tracked.view.ready => {
                let step = match exit {
                    _ if tracked.view.restarts_forever => PodStep::Crash,
                    Exit::Success => PodStep::Complete,
                    Exit::Failure(_) => PodStep::Fail,
                };
                Some((self.options.clock.now(), step))
            }
            _ => next,
        }
    }

    fn start_due_writes(&mut self, now: Timestamp) {
        while self.writes.len() < WRITES_MAX
            && let Some(entry) = self.due.first_entry()
            && entry.key().0 <= now
        {
            let ((_, key), ()) = entry.remove_entry();
            self.scheduled.remove(&key);
            match &key {
                QueueKey::Node(name) => self.start_node_write(name.clone(), now),
                QueueKey::Pod(uid) => self.start_pod_write(uid.clone(), now),
            }
        }
    }

    /// Renews the lease of a node together with those that are due soon, in one batch, so that the nodes of a cluster
    /// end up renewing together. Returns whether this node's lease was renewed.
    fn renew_together(&mut self, name: &str, now: Timestamp) -> bool {
        let heartbeat = self.options.heartbeat;
        let soon = now.saturating_add(heartbeat / RENEW_AHEAD_DIVISOR).unwrap_or(Timestamp::MAX);
        let is_due = |other: &str, tracked: &TrackedNode| {
            let next = node::next(&tracked.view, tracked.done, heartbeat, now);
            other == name || next.is_some_and(|(at, step)| step == NodeStep::Renew && at <= soon)
        };
        let due: Vec<String> = self
            .nodes
            .iter()
            .filter(|(other, tracked)| {
                is_due(other, tracked) && !self.busy.contains_key(&QueueKey::Node((*other).clone()))
            })
            .map(|(other, _)| other.clone())
            .collect();
        let leases: Vec<Value> = due
            .iter()
            .filter_map(|other| Some(node::lease(other, &self.nodes.get(other)?.view.uid, heartbeat, now)))
            .collect();
        let renewed = self.options.server.renew_leases(&leases, MANAGER, now);
        let mut is_renewed = false;
        for other in due.into_iter().zip(renewed).filter_map(|(other, renewed)| renewed.then_some(other)) {
            is_renewed |= other == name;
            if let Some(tracked) = self.nodes.get_mut(&other) {
                tracked.done.renewed = Some(now);
            }
            self.plan(QueueKey::Node(other));
        }
        is_renewed
    }

    fn start_node_write(&mut self, name: String, now: Timestamp) {
        let Some(tracked) = self.nodes.get(&name) else { return };
        let Some((_, step)) = node::next(&tracked.view, tracked.done, self.options.heartbeat, now) else {
            return;
        };
        if step == NodeStep::Renew && self.renew_together(&name, now) {
            return;
        }
        let Some(tracked) = self.nodes.get(&name) else { return };
        let (client, heartbeat) = (self.client.clone(), self.options.heartbeat);
        let uid = tracked.view.uid.clone();
        let status = match step {
            NodeStep::Report { ready } => {
                if tracked.view.ready != Some(ready) {
                    self.options.server.record_events(&[events::of_readiness(&name, ready)], now);
                }
                let address = tracked.view.address.as_deref();
                node::status(&name, tracked.number, address, tracked.pods, ready, &self.version, now)
            }
            NodeStep::Renew | NodeStep::Remove => Value::Null,
        };
        let key = QueueKey::Node(name.clone());
        self.busy.insert(key.clone(), false);
        self.writes.spawn(async move {
            let written = match step {
                NodeStep::Report { .. } => {
                    let nodes: Api<Node> = Api::all(client);
                    let patch = Patch::Strategic(&status);
                    let patched = nodes.patch_status(&name, &patch_params(), &patch).await;
                    patched.map(|_| WriteOutcome::Reported(now))
                }
                NodeStep::Renew => {
                    renew(client, &name, &uid, heartbeat, now).await.map(|()| WriteOutcome::Renewed(now))
                }
                NodeStep::Remove => {
                    let nodes: Api<Node> = Api::all(client);
                    nodes.delete(&name, &delete_params(&uid)).await.map(|_| WriteOutcome::Nothing)
                }
            };
            (key, write_outcome(written))
        });
    }

    fn start_pod_write(&mut self, uid: String, now: Timestamp) {
        let Some((_, step)) = self.pod_step(&uid) else { return };
        let Some(tracked) = self.pods.get_mut(&uid) else { return };
        if step == PodStep::Run {
            tracked.exit = None;
            self.containers.carry_out(Directive::Run, &uid, &tracked.view.runnable);
        }
        let Some(tracked) = self.pods.get(&uid) else { return };
        for (container, _) in &tracked.view.containers {
            for line in pod::log_lines(&tracked.view, step, now) {
                self.options.server.append_log(&uid, container, &line);
            }
        }
        self.options.server.record_events(&events::of_step(&tracked.view, step), now);
        let status = pod::status(&tracked.view, step, now);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &tracked.view.namespace);
        let (name, key) = (tracked.view.name.clone(), QueueKey::Pod(uid.clone()));
        self.busy.insert(key.clone(), false);
        self.writes.spawn(async move {
            let written = match status {
                Some(mut status) => {
                    // Applies to this pod only, not to a later one of the same name.
                    status["metadata"] = serde_json::json!({ "uid": uid });
                    pods.patch_status(&name, &patch_params(), &Patch::Strategic(&status)).await.map(drop)
                }
                None => pods.delete(&name, &delete_params(&uid).grace_period(0)).await.map(drop),
            };
            (key, write_outcome(written.map(|()| WriteOutcome::Nothing)))
        });
    }

    fn on_written(&mut self, key: QueueKey, done: Option<WriteOutcome>) {
        let changed_meanwhile = self.busy.remove(&key).unwrap_or(false);
        let failed = done.is_none();
        if let (QueueKey::Node(name), Some(done)) = (&key, &done)
            && let Some(tracked) = self.nodes.get_mut(name)
        {
            match done {
                WriteOutcome::Reported(at) => tracked.done.reported = Some(*at),
                WriteOutcome::Renewed(at) => tracked.done.renewed = Some(*at),
                WriteOutcome::Nothing => {}
            }
        }
        match (failed, &key) {
            (true, _) => {
                let later = self.options.clock.now().saturating_add(RETRY_DELAY).unwrap_or(Timestamp::MAX);
                self.schedule(key, later);
            }
            // The watch reports the new state of the pod, and then its next step is planned.
            (false, QueueKey::Pod(_)) if !changed_meanwhile => {}
            (false, _) => self.plan(key),
        }
    }
}

/// An object that is gone or was changed by another client is no failure: the watch reports it. `None` means retry.
fn write_outcome(written: kube::Result<WriteOutcome>) -> Option<WriteOutcome> {
    match written {
        Ok(done) => Some(done),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => {
            Some(WriteOutcome::Nothing)
        }
        Err(error) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "Write failed; retrying");
            None
        }
    }
}

async fn log_and_wait(error: &kube::Error) {
    tracing::debug!(error = error as &dyn std::error::Error, "Cluster is not reachable yet; retrying");
    tokio::time::sleep(RETRY_DELAY).await;
}
