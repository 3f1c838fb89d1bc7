//! The run of a drain: the state of each pod, and the loop that acts on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::error::Class;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::blockers::{Blocker, Held, blockers};
use super::decide::{PodAction, pod_action};
use super::{DrainGoal, DrainOptions};
use crate::error::{Failure, LinkError};
use crate::link::Link;
use crate::progress::ProgressSink;
use crate::watched::{RetryDelays, Watched};

/// Concurrent evictions. An API server serves many more; a node has at most a few hundred pods.
const EVICTIONS_MAX: usize = 20;
/// Longest delay that the API server may request.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// Outcome of a run without a failed request.
pub(super) enum End {
    Empty { left: Vec<String> },
    Refused { empty_dir: Vec<String>, unmanaged: Vec<String> },
    Stalled { blockers: Vec<Blocker> },
}

/// State of one pod's eviction, by its uid.
#[derive(Debug)]
enum EvictionState {
    /// Rejected or failed `pace` times; not retried before `at`.
    Delayed { pace: RetryDelays, at: Instant, refusal: EvictionFailure },
    /// The request is pending. The last response counts until then.
    Requested { pace: RetryDelays, last: Option<EvictionFailure> },
    /// Granted; the pod terminates within its grace period.
    Granted,
}

impl EvictionState {
    fn refusal(&self) -> Option<&EvictionFailure> {
        match self {
            EvictionState::Delayed { refusal, .. } => Some(refusal),
            EvictionState::Requested { last, .. } => last.as_ref(),
            EvictionState::Granted => None,
        }
    }
}

/// Why a pod was not evicted at the last request.
#[derive(Debug, Clone)]
struct EvictionFailure {
    because: String,
    by_budget: bool,
}

struct EvictionResponse {
    uid: String,
    name: String,
    result: Result<(), kube::Error>,
}

pub(super) struct Run<'a> {
    link: &'a Link,
    node: &'a str,
    options: &'a DrainOptions,
    progress: &'a ProgressSink,
    watched: Watched<Pod>,
    stages: BTreeMap<String, EvictionState>,
    evicted: BTreeSet<String>,
    /// Evictions whose response was lost, by uid: the server may have granted them.
    unanswered: BTreeMap<String, String>,
    asked: FuturesUnordered<BoxFuture<'static, EvictionResponse>>,
    /// Namespaces whose budgets were read because a pod there was blocked.
    budgets: BTreeMap<String, Vec<PodDisruptionBudget>>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        link: &'a Link,
        node: &'a str,
        options: &'a DrainOptions,
        progress: &'a ProgressSink,
    ) -> Run<'a> {
        let pods: Api<Pod> = Api::all(link.client());
        let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        let watched = Watched::new(link, "drain", format!("node {node}"), pods, config);
        Run {
            link,
            node,
            options,
            progress,
            watched,
            stages: BTreeMap::new(),
            evicted: BTreeSet::new(),
            unanswered: BTreeMap::new(),
            asked: FuturesUnordered::new(),
            budgets: BTreeMap::new(),
        }
    }

    /// The pods whose eviction was granted; also those whose response was lost, if they are terminating or gone.
    pub(super) fn evicted(&self) -> Vec<String> {
        let staying: BTreeSet<String> = self
            .watched
            .objects()
            .values()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .map(uid)
            .collect();
        let unanswered = self.unanswered.iter().filter(|(uid, _)| !staying.contains(*uid));
        let all: BTreeSet<&String> = self.evicted.iter().chain(unanswered.map(|(_, name)| name)).collect();
        all.into_iter().cloned().collect()
    }

    /// Lists the pods, and ends the run if some of them must not be evicted.
    pub(super) async fn observe(
        &mut self,
        deadline: Instant,
    ) -> Result<Option<(Vec<String>, Vec<String>)>, LinkError> {
        self.say("listing its pods");
        while !self.watched.is_listed() {
            tokio::select! {
                changed = self.watched.changed(self.progress) => changed?,
                () = sleep_until(deadline) => {
                    let (after, waiting_for) = (self.options.time_limit, "the list of its pods".to_owned());
                    return Err(self.error(Failure::TimeLimit { after, waiting_for }));
                }
            }
        }
        Ok(self.rejected())
    }

    /// The pods that must not be evicted: those with an emptyDir, those without a controller.
    fn rejected(&self) -> Option<(Vec<String>, Vec<String>)> {
        let (empty_dir, unmanaged) = (
            self.pods_with_action(PodAction::RefuseEmptyDir),
            self.pods_with_action(PodAction::RefuseUnmanaged),
        );
        let any = !empty_dir.is_empty() || !unmanaged.is_empty();
        any.then_some((empty_dir, unmanaged))
    }

    fn pods_with_action(&self, wanted: PodAction) -> Vec<String> {
        let found = self.watched.objects().iter().filter(|(_, pod)| pod_action(pod, self.options) == wanted);
        found.map(|(name, _)| name.clone()).collect()
    }

    /// Evicts pods until none remain, the deadline has passed, or a pod appears that must not be evicted.
    pub(super) async fn evict_all(&mut self, deadline: Instant) -> Result<End, LinkError> {
        loop {
            // Pods that appeared meanwhile are checked like the first ones.
            if let Some((empty_dir, unmanaged)) = self.rejected() {
                return Ok(End::Refused { empty_dir, unmanaged });
            }
            let remaining = self.remaining();
            // A pod can be gone before the response to its eviction arrives; the result counts all responses.
            if remaining.is_empty() && (self.asked.is_empty() || Instant::now() >= deadline) {
                let mut left = self.pods_with_action(PodAction::LeaveToDaemonSet);
                left.extend(self.pods_with_action(PodAction::LeaveMirror));
                return Ok(End::Empty { left });
            }
            self.forget_the_gone();
            let now = Instant::now();
            let next_try = [self.ask(now), self.next_skip(now)].into_iter().flatten().min();
            self.report(&remaining);
            tokio::select! {
                changed = self.watched.changed(self.progress) => changed?,
                Some(answer) = self.asked.next() => self.take(answer).await?,
                () = sleep_until(next_try.unwrap_or(deadline)), if next_try.is_some() => {}
                () = sleep_until(deadline), if !remaining.is_empty() => return Ok(self.stalled().await),
                () = sleep_until(deadline), if remaining.is_empty() => {}
            }
        }
    }

    /// The remaining pods, by name.
    fn remaining(&self) -> Vec<String> {
        let granted = |pod: &Pod| matches!(self.stages.get(&uid(pod)), Some(EvictionState::Granted));
        let waits = |pod: &Pod| match pod_action(pod, self.options) {
            PodAction::Evict => !(self.options.until == DrainGoal::Granted && granted(pod)),
            PodAction::Await => {
                self.options.until == DrainGoal::Gone && self.skipped_in(pod) != Some(Duration::ZERO)
            }
            PodAction::LeaveToDaemonSet
            | PodAction::LeaveMirror
            | PodAction::RefuseEmptyDir
            | PodAction::RefuseUnmanaged => false,
        };
        self.watched.objects().iter().filter(|(_, pod)| waits(pod)).map(|(name, _)| name.clone()).collect()
    }

    /// Time until a terminating pod is no longer waited for; `None` if it always is.
    fn skipped_in(&self, pod: &Pod) -> Option<Duration> {
        let after = SignedDuration::try_from(self.options.skip_terminating_after?).ok()?;
        let from = pod.metadata.deletion_timestamp.as_ref()?.0.checked_add(after).ok()?;
        let left = self.link.clock().now().duration_until(from);
        Some(if left.is_positive() { left.unsigned_abs() } else { Duration::ZERO })
    }

    /// When the next of the remaining pods is no longer waited for.
    fn next_skip(&self, now: Instant) -> Option<Instant> {
        let waits = self.watched.objects().values();
        let waits = waits.filter(|pod| pod_action(pod, self.options) == PodAction::Await);
        let left = waits.filter_map(|pod| self.skipped_in(pod)).filter(|left| !left.is_zero()).min()?;
        Some(now + left)
    }

    fn forget_the_gone(&mut self) {
        let present: BTreeSet<String> = self.watched.objects().values().map(uid).collect();
        // A pending eviction is kept until its response arrives.
        self.stages
            .retain(|uid, stage| present.contains(uid) || matches!(stage, EvictionState::Requested { .. }));
    }

    /// Sends the evictions that are due, and returns when the next one will be.
    fn ask(&mut self, now: Instant) -> Option<Instant> {
        let mut next_try: Option<Instant> = None;
        let mut due: Vec<(String, EvictionState, BoxFuture<'static, EvictionResponse>)> = Vec::new();
        for pod in
            self.watched.objects().values().filter(|pod| pod_action(pod, self.options) == PodAction::Evict)
        {
            let (pace, last) = match self.stages.get(&uid(pod)) {
                Some(EvictionState::Requested { .. } | EvictionState::Granted) => continue,
                Some(EvictionState::Delayed { at, .. }) if *at > now => {
                    next_try = Some(next_try.map_or(*at, |next| next.min(*at)));
                    continue;
                }
                Some(EvictionState::Delayed { pace, refusal, .. }) => (pace.clone(), Some(refusal.clone())),
                None => (RetryDelays::default(), None),
            };
            // The rest is sent when a response arrives.
            if self.asked.len() + due.len() >= EVICTIONS_MAX {
                break;
            }
            due.push((uid(pod), EvictionState::Requested { pace, last }, self.eviction(pod)));
        }
        for (uid, stage, eviction) in due {
            self.stages.insert(uid, stage);
            self.asked.push(eviction);
        }
        next_try
    }

    fn eviction(&self, pod: &Pod) -> BoxFuture<'static, EvictionResponse> {
        let api: Api<Pod> = Api::namespaced(self.link.client(), &pod.namespace().unwrap_or_default());
        // The uid prevents the eviction of a new pod of the same name. Built by hand: kube's own `evict` names the field
        // `delete_options`, which an API server ignores.
        let eviction = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name_any(), "namespace": pod.namespace()},
            "deleteOptions": {
                "preconditions": {"uid": uid(pod)},
                "gracePeriodSeconds": self.options.grace.map(|grace| grace.as_secs()),
            },
        });
        let (uid, name, pod_name) = (uid(pod), crate::link::display_name(pod), pod.name_any());
        Box::pin(async move {
            let answer =
                api.create_subresource("eviction", &pod_name, &PostParams::default(), &eviction).await;
            EvictionResponse { uid, name, result: answer.map(|_: Value| ()) }
        })
    }

    async fn take(&mut self, answer: EvictionResponse) -> Result<(), LinkError> {
        let EvictionResponse { uid, name, result } = answer;
        let about = format!("pod {name}");
        let Some(EvictionState::Requested { mut pace, .. }) = self.stages.remove(&uid) else { return Ok(()) };
        let cause = match &result {
            Err(kube::Error::Api(status)) => {
                status.details.iter().flat_map(|details| &details.causes).next().cloned()
            }
            _ => None,
        };
        match result.map_err(Failure::from_kube) {
            Ok(()) => {
                self.progress.say(about, "eviction granted, terminating");
                self.evicted.insert(name);
                self.stages.insert(uid, EvictionState::Granted);
            }
            Err(failure) => {
                // A namespace that is being deleted forbids evictions, and deletes its pods itself.
                let ends_anyway = matches!(&failure, Failure::Forbidden { message } if message.contains("being terminated"));
                // It is gone, which the watch reports too, or it changed meanwhile: retry.
                let gone = matches!(failure, Failure::NotFound { .. });
                if failure.class() == Class::Terminal && !ends_anyway && !gone {
                    return Err(self.link.error("evict", about, failure));
                }
                if may_have_been_done(&failure) {
                    self.unanswered.insert(uid.clone(), name.clone());
                }
                let by_budget = cause.as_ref().is_some_and(|cause| cause.reason == "DisruptionBudget");
                let error = self.link.error("evict", &about, failure);
                let asked_pause = error.retry_after().unwrap_or_default().min(RETRY_AFTER_MAX);
                let label = cause.map(|cause| cause.message).filter(|message| !message.is_empty());
                let because = label.unwrap_or_else(|| error.failure.to_string());
                if by_budget || because.contains("PodDisruptionBudget") {
                    self.learn_budgets(name.split('/').next().unwrap_or_default()).await;
                }
                self.progress.say(about, format!("cannot be evicted yet: {because}"));
                let at = Instant::now() + pace.pause().max(asked_pause);
                self.stages.insert(
                    uid,
                    EvictionState::Delayed { pace, at, refusal: EvictionFailure { because, by_budget } },
                );
            }
        }
        Ok(())
    }

    /// Reads the budgets of a namespace once, when the first pod there is blocked. They are for the report only: if they cannot be
    /// read, the API server's message is used.
    async fn learn_budgets(&mut self, namespace: &str) {
        if self.budgets.contains_key(namespace) {
            return;
        }
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.link.client(), namespace);
        let found = api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
        self.budgets.insert(namespace.to_owned(), found);
    }

    async fn stalled(&mut self) -> End {
        // Their numbers may have changed since they were first read.
        for namespace in self.budgets.keys().cloned().collect::<Vec<_>>() {
            self.budgets.remove(&namespace);
            self.learn_budgets(&namespace).await;
        }
        End::Stalled { blockers: self.blockers() }
    }

    fn blockers(&self) -> Vec<Blocker> {
        let remaining = self.remaining();
        let held: Vec<Held<'_>> = remaining
            .iter()
            .filter_map(|name| {
                let pod = self.watched.objects().get(name)?;
                let stage = self.stages.get(&uid(pod));
                let because = match stage {
                    _ if !crate::target::held_by(&pod.metadata).is_empty() => {
                        "its finalizers are not removed"
                    }
                    _ if pod.metadata.deletion_timestamp.is_some() => "its grace period has not ended",
                    Some(
                        EvictionState::Delayed { refusal, .. }
                        | EvictionState::Requested { last: Some(refusal), .. },
                    ) => refusal.because.as_str(),
                    Some(EvictionState::Granted) => "its grace period has not ended",
                    Some(EvictionState::Requested { last: None, .. }) => "its eviction is pending",
                    None => "its eviction is not requested yet",
                };
                let by_budget =
                    stage.and_then(EvictionState::refusal).is_some_and(|refusal| refusal.by_budget);
                Some(Held { name, pod, because, by_budget })
            })
            .collect();
        let budgets: Vec<PodDisruptionBudget> = self.budgets.values().flatten().cloned().collect();
        blockers(&held, &budgets)
    }

    fn report(&self, remaining: &[String]) {
        let blockers = self.blockers();
        let held = blockers.iter().filter(|blocker| !blocker.budgets.is_empty());
        let held: Vec<String> = held.map(ToString::to_string).collect();
        let pods =
            if remaining.len() == 1 { "1 pod".to_owned() } else { format!("{} pods", remaining.len()) };
        let sentence = match held.as_slice() {
            [] => format!("waits for {pods} to terminate"),
            held => format!("waits for {pods} to terminate; {}", held.join("; ")),
        };
        self.progress.blocked(format!("node {}", self.node), sentence, blockers);
    }

    fn say(&self, sentence: impl Into<String>) {
        self.progress.say(format!("node {}", self.node), sentence);
    }

    fn error(&self, failure: Failure) -> LinkError {
        self.link.error("drain", format!("node {}", self.node), failure)
    }
}

/// Whether the server may have granted a request whose response was lost.
fn may_have_been_done(failure: &Failure) -> bool {
    matches!(failure, Failure::Connection(_) | Failure::Timeout(_) | Failure::Server { .. })
}

fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}
