//! Containers that really run: a [`ContainerRuntime`] runs the images that it knows as tasks of this process. All other containers are
//! only reported as running.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio_util::sync::CancellationToken;

use super::InProcessServer;
use super::views::{NodeState, NodeView, PodView};

/// Limit on the wait for containers when the kubelets stop.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Runs containers of the images that it knows.
pub trait ContainerRuntime: Send + Sync + 'static {
    /// Whether it runs containers of this image.
    fn runs(&self, image: &str) -> bool;

    /// Runs a container until it ends or `stop` is cancelled, as a process after SIGTERM. The future is dropped when the pod's grace
    /// period ends or its node loses power.
    fn run(
        &self,
        container: Container,
        log: ContainerLog,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), String>>;
}

/// A container to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Container {
    /// The namespace of its pod.
    pub namespace: String,
    /// The name of its pod.
    pub pod: String,
    /// The uid of its pod.
    pub pod_uid: String,
    /// Its name in the pod.
    pub name: String,
    /// The image.
    pub image: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Variables. Values from fields of the pod are resolved; values from ConfigMaps and Secrets are left out.
    pub env: Vec<(String, String)>,
    /// The node that the pod is bound to.
    pub node: String,
    /// The ServiceAccount of the pod.
    pub service_account: String,
}

/// The log of one container.
#[derive(Clone)]
pub struct ContainerLog {
    server: Arc<dyn InProcessServer>,
    pod_uid: String,
    container: String,
}

impl ContainerLog {
    /// A log that keeps nothing.
    pub fn discarding() -> ContainerLog {
        ContainerLog { server: Arc::new(()), pod_uid: String::new(), container: String::new() }
    }

    /// Appends a line.
    pub fn append(&self, line: &str) {
        self.server.append_log(&self.pod_uid, &self.container, line);
    }
}

impl fmt::Debug for ContainerLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContainerLog").field("container", &self.container).finish_non_exhaustive()
    }
}

/// How the containers of a pod ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Exit {
    Success,
    Failure(String),
}

/// What is to happen to the containers of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Directive {
    /// They must run.
    Run,
    /// They are asked to end, and have until the end of the grace period.
    Stop,
    /// They end at once.
    Kill,
    /// They stay as they are.
    Keep,
}

/// Decides about the containers of a pod that a runtime runs.
pub(super) fn decide(pod: &PodView, node: Option<&NodeView>, exited: bool) -> Directive {
    match node {
        Some(node) if node.state == NodeState::Ready => {}
        _ => return Directive::Kill,
    }
    if pod.deletion.is_some() {
        return Directive::Stop;
    }
    match pod.phase.as_str() {
        "Running" if pod.ready && !exited => Directive::Run,
        "Succeeded" | "Failed" => Directive::Kill,
        _ => Directive::Keep,
    }
}

struct RunningPod {
    stop: CancellationToken,
    tasks: Vec<AbortHandle>,
    left: usize,
    exit: Exit,
}

/// The containers of one cluster that run in this process, by the uid of their pod.
pub(super) struct Containers {
    runtime: Option<Arc<dyn ContainerRuntime>>,
    server: Arc<dyn InProcessServer>,
    running: HashMap<String, RunningPod>,
    tasks: JoinSet<Result<(), String>>,
    pods: HashMap<Id, String>,
}

impl Containers {
    pub(super) fn new(
        runtime: Option<Arc<dyn ContainerRuntime>>,
        server: Arc<dyn InProcessServer>,
    ) -> Containers {
        Containers { runtime, server, running: HashMap::new(), tasks: JoinSet::new(), pods: HashMap::new() }
    }

    /// Whether the runtime runs containers of this image.
    pub(super) fn runs(&self, image: &str) -> bool {
        self.runtime.as_ref().is_some_and(|it| it.runs(image))
    }

    pub(super) fn is_running(&self, pod_uid: &str) -> bool {
        self.running.contains_key(pod_uid)
    }

    /// Carries out a decision. Repeating it changes nothing.
    pub(super) fn carry_out(&mut self, directive: Directive, pod_uid: &str, containers: &[Container]) {
        match directive {
            Directive::Run => self.start(pod_uid, containers),
            Directive::Stop => {
                if let Some(pod) = self.running.get(pod_uid) {
                    pod.stop.cancel();
                }
            }
            Directive::Kill => self.kill(pod_uid),
            Directive::Keep => {}
        }
    }

    fn start(&mut self, pod_uid: &str, containers: &[Container]) {
        let Some(runtime) = &self.runtime else { return };
        if containers.is_empty() || self.running.contains_key(pod_uid) {
            return;
        }
        let stop = CancellationToken::new();
        let mut tasks = Vec::with_capacity(containers.len());
        for container in containers {
            let log = ContainerLog {
                server: self.server.clone(),
                pod_uid: pod_uid.to_owned(),
                container: container.name.clone(),
            };
            let task = self.tasks.spawn(runtime.run(container.clone(), log, stop.clone()));
            self.pods.insert(task.id(), pod_uid.to_owned());
            tasks.push(task);
        }
        let running = RunningPod { stop, left: tasks.len(), tasks, exit: Exit::Success };
        self.running.insert(pod_uid.to_owned(), running);
    }

    /// Ends the containers of a pod without waiting, as a power failure does.
    pub(super) fn kill(&mut self, pod_uid: &str) {
        if let Some(pod) = self.running.remove(pod_uid) {
            for task in pod.tasks {
                self.pods.remove(&task.id());
                task.abort();
            }
        }
    }

    /// Waits until all containers of a pod have ended; pending while none runs. When one container ends, the others are asked to end
    /// too: the pod restarts as a whole.
    pub(super) async fn next_exit(&mut self) -> (String, Exit) {
        loop {
            let Some(joined) = self.tasks.join_next_with_id().await else {
                return std::future::pending().await;
            };
            let (id, result) = match joined {
                Ok((id, result)) => (id, result),
                Err(error) => (error.id(), Err(format!("the container ended abnormally: {error}"))),
            };
            let Some(uid) = self.pods.remove(&id) else { continue };
            let Some(pod) = self.running.get_mut(&uid) else { continue };
            pod.left -= 1;
            if let Err(message) = result {
                tracing::debug!(pod.uid = %uid, "A container ended: {message}");
                pod.exit = Exit::Failure(message);
            }
            pod.stop.cancel();
            if pod.left == 0
                && let Some(pod) = self.running.remove(&uid)
            {
                return (uid, pod.exit);
            }
        }
    }

    /// Asks all containers to end, and ends those that have not after a short time.
    pub(super) async fn shutdown(&mut self) {
        for pod in self.running.values() {
            pod.stop.cancel();
        }
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_MAX, all).await.is_err() {
            self.tasks.shutdown().await;
        }
        self.running.clear();
        self.pods.clear();
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn pod(phase: &str, ready: bool) -> PodView {
        PodView { ready, phase: phase.to_owned(), ..PodView::example() }
    }

    fn node(state: NodeState) -> NodeView {
        NodeView {
            name: "n".to_owned(),
            uid: "u".to_owned(),
            state,
            refuses_drain: false,
            address: None,
            ready: Some(true),
        }
    }

    #[test]
    fn containers_run_while_their_pod_is_ready_on_a_ready_node() {
        let ready = node(NodeState::Ready);
        let check = |pod: &PodView, node: Option<&NodeView>, exited, expected| {
            assert_eq!(decide(pod, node, exited), expected, "{pod:?} {node:?} {exited}");
        };
        check(&pod("Running", true), Some(&ready), false, Directive::Run);
        check(&pod("Running", true), Some(&ready), true, Directive::Keep);
        check(&pod("Running", false), Some(&ready), false, Directive::Keep);
        check(&pod("Pending", false), Some(&ready), false, Directive::Keep);
        check(&pod("Succeeded", false), Some(&ready), false, Directive::Kill);
        check(&pod("Running", true), Some(&node(NodeState::NotReady)), false, Directive::Kill);
        check(&pod("Running", true), None, false, Directive::Kill);
        let deleted = PodView { deletion: Some((Timestamp::UNIX_EPOCH, 30)), ..pod("Running", true) };
        check(&deleted, Some(&ready), false, Directive::Stop);
    }

    /// Runs until it is stopped; the command `fail` fails at once, `hang` ignores its stop.
    struct Scripted;

    impl ContainerRuntime for Scripted {
        fn runs(&self, image: &str) -> bool {
            image == "ours"
        }

        fn run(
            &self,
            container: Container,
            log: ContainerLog,
            stop: CancellationToken,
        ) -> BoxFuture<'static, Result<(), String>> {
            Box::pin(async move {
                log.append("started");
                match container.command.first().map(String::as_str) {
                    Some("fail") => Err("no such role".to_owned()),
                    Some("hang") => std::future::pending().await,
                    Some("panic") => panic!("as requested"),
                    _ => {
                        stop.cancelled().await;
                        Ok(())
                    }
                }
            })
        }
    }

    fn container(name: &str, command: &str) -> Container {
        Container { name: name.to_owned(), command: vec![command.to_owned()], ..Container::default() }
    }

    fn containers() -> Containers {
        Containers::new(Some(Arc::new(Scripted)), Arc::new(()))
    }

    #[tokio::test]
    async fn a_container_that_fails_ends_its_pod_with_the_cause() {
        let mut running = containers();
        running.carry_out(Directive::Run, "u", &[container("a", "run"), container("b", "fail")]);
        assert!(running.is_running("u"));
        let exit = running.next_exit().await;
        assert_eq!(exit, ("u".to_owned(), Exit::Failure("no such role".to_owned())));
        assert!(!running.is_running("u"));
    }

    #[tokio::test]
    async fn a_container_that_panics_has_failed() {
        let mut running = containers();
        running.carry_out(Directive::Run, "u", &[container("a", "panic")]);
        let (_, exit) = running.next_exit().await;
        assert!(matches!(&exit, Exit::Failure(text) if text.contains("abnormally")), "{exit:?}");
    }

    #[tokio::test]
    async fn containers_end_when_their_pod_is_stopped_and_start_once() {
        let mut running = containers();
        for _ in 0..2 {
            running.carry_out(Directive::Run, "u", &[container("a", "run")]);
        }
        assert_eq!(running.tasks.len(), 1);
        running.carry_out(Directive::Stop, "u", &[]);
        assert_eq!(running.next_exit().await, ("u".to_owned(), Exit::Success));
    }

    #[tokio::test(start_paused = true)]
    async fn containers_that_do_not_end_are_killed() {
        let mut running = containers();
        running.carry_out(Directive::Run, "u", &[container("a", "hang")]);
        running.carry_out(Directive::Run, "v", &[container("a", "hang")]);
        running.carry_out(Directive::Kill, "u", &[]);
        assert!(!running.is_running("u") && running.is_running("v"));
        running.shutdown().await;
        assert!(running.tasks.is_empty() && !running.is_running("v"));
    }

    #[test]
    fn without_a_runtime_no_image_is_run() {
        let mut none = Containers::new(None, Arc::new(()));
        assert!(!none.runs("ours"));
        none.carry_out(Directive::Run, "u", &[container("a", "run")]);
        assert!(!none.is_running("u"));
        assert!(containers().runs("ours") && !containers().runs("other"));
    }
}
