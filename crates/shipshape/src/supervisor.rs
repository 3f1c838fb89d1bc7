//! Owns the tasks of a process: names them, notices when one ends, and stops them in order.
//!
//! A task that ends before a shutdown, with success, error or panic, ends the whole process: half a
//! process is worse than none, since a service manager does not notice it. A shutdown stops listeners and workers
//! first, so that no new work arrives and leases are released, then the infrastructure that both
//! use. One deadline applies to all; tasks that still run then are aborted and named.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{self, SignalKind};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The stage of a shutdown in which a task is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Listeners: first, so that no new requests arrive.
    Listeners,
    /// Workers of leases and queues: together with the listeners, so that running work has the whole deadline to finish
    /// or to be released. A pending request may take a third of it and needs no worker.
    Workers,
    /// Tasks that the others depend on, such as store housekeeping and the health endpoint: last.
    Infrastructure,
}

impl Stage {
    const IN_ORDER: [Stage; 3] = [Stage::Listeners, Stage::Workers, Stage::Infrastructure];
}

/// A signal that stops a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Sent by a terminal for Ctrl-C.
    Interrupt,
    /// Sent by service managers and the kubelet.
    Terminate,
}

impl Signal {
    /// Exit code of a process that was stopped by this signal, as shells report it.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Signal::Interrupt => 130,
            Signal::Terminate => 143,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Signal::Interrupt => "SIGINT",
            Signal::Terminate => "SIGTERM",
        })
    }
}

/// Why a process did not shut down cleanly.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// A task returned before a shutdown.
    #[error("task {name} stopped unexpectedly")]
    StoppedUnexpectedly {
        /// The task.
        name: &'static str,
    },
    /// A task failed.
    #[error("task {name} failed")]
    Failed {
        /// The task.
        name: &'static str,
        /// The error.
        #[source]
        cause: anyhow::Error,
    },
    /// A task panicked.
    #[error("task {name} panicked: {message}")]
    Panicked {
        /// The task.
        name: &'static str,
        /// The message of the panic.
        message: String,
    },
    /// Tasks did not end within the deadline and were aborted.
    #[error("the shutdown took longer than {deadline:?}; aborted tasks: {}", names.join(", "))]
    Overdue {
        /// The deadline.
        deadline: Duration,
        /// The aborted tasks.
        names: Vec<&'static str>,
    },
    /// A second signal arrived before the shutdown was complete.
    #[error("a second {signal} aborted the shutdown; aborted tasks: {}", names.join(", "))]
    Interrupted {
        /// The second signal.
        signal: Signal,
        /// The aborted tasks.
        names: Vec<&'static str>,
    },
}

/// Owns the tasks of a process.
#[derive(Debug)]
pub(crate) struct Supervisor {
    deadline: Duration,
    signals: Signals,
    /// Whether a signal has started the shutdown; the next one aborts it.
    is_signalled: bool,
    tasks: JoinSet<anyhow::Result<()>>,
    named: HashMap<Id, (Stage, &'static str)>,
    stopping: CancellationToken,
    stages: [CancellationToken; 3],
}

impl Supervisor {
    /// A supervisor without tasks, which catches SIGTERM and SIGINT. A shutdown may take
    /// `deadline` in total.
    pub(crate) fn new(deadline: Duration) -> anyhow::Result<Supervisor> {
        let listen = |kind| unix::signal(kind).context("cannot listen for signals");
        let signals = Signals::Process {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        };
        Ok(Supervisor::with_signals(deadline, signals))
    }

    fn with_signals(deadline: Duration, signals: Signals) -> Supervisor {
        Supervisor {
            deadline,
            signals,
            is_signalled: false,
            tasks: JoinSet::new(),
            named: HashMap::new(),
            stopping: CancellationToken::new(),
            stages: Default::default(),
        }
    }

    /// Cancelled when a shutdown starts, before any task is stopped.
    pub(crate) fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Starts a task. It runs until its token is cancelled and then ends soon.
    pub(crate) fn spawn<F>(
        &mut self,
        stage: Stage,
        name: &'static str,
        task: impl FnOnce(CancellationToken) -> F,
    ) where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let task = task(self.token(stage).child_token());
        let id = self.tasks.spawn(task).id();
        self.named.insert(id, (stage, name));
    }

    /// Runs until a signal or the end of a task, then stops all tasks in order.
    /// Fails unless a signal started the shutdown and every task ended without error within the deadline.
    pub(crate) async fn run(mut self) -> Result<(), Fault> {
        let mut fault = tokio::select! {
            signal = self.signals.next() => {
                tracing::info!("{signal} received, shutting down within {:?}", self.deadline);
                self.is_signalled = true;
                None
            }
            Some((_, name, result)) = next_finished(&mut self.tasks, &mut self.named) => Some(unexpected_stop(name, result)),
        };
        if let Some(fault) = &fault {
            tracing::error!(error = %Chain(fault), "Shutting down: {fault}");
        }
        self.stopping.cancel();
        let aborted = self.stop_in_order(&mut fault).await;
        self.tasks.abort_all();
        // The first error is the cause; later ones were logged.
        match fault.or(aborted) {
            None => Ok(()),
            Some(fault) => Err(fault),
        }
    }

    /// Stops each stage and waits for it. Returns why it stopped waiting, if not all tasks ended.
    async fn stop_in_order(&mut self, first: &mut Option<Fault>) -> Option<Fault> {
        let limit = Instant::now() + self.deadline;
        self.token(Stage::Listeners).cancel();
        self.token(Stage::Workers).cancel();
        for stage in Stage::IN_ORDER {
            self.token(stage).cancel();
            while self.named.values().any(|(stage_of_task, _)| *stage_of_task == stage) {
                let (stage_of_task, name, result) = tokio::select! {
                    Some(finished) = next_finished(&mut self.tasks, &mut self.named) => finished,
                    signal = self.signals.next() => {
                        if !std::mem::replace(&mut self.is_signalled, true) {
                            continue; // a fault started this shutdown, so the first signal adds nothing
                        }
                        return Some(Fault::Interrupted { signal, names: self.names() });
                    }
                    () = tokio::time::sleep_until(limit) => {
                        return Some(Fault::Overdue { deadline: self.deadline, names: self.names() });
                    }
                };
                let fault = match result {
                    Ok(Ok(())) if self.token(stage_of_task).is_cancelled() => continue, // stopped as requested
                    result => unexpected_stop(name, result),
                };
                tracing::error!(error = %Chain(&fault), "During the shutdown {fault}");
                first.get_or_insert(fault);
            }
        }
        None
    }

    fn token(&self, stage: Stage) -> &CancellationToken {
        let [listeners, workers, infrastructure] = &self.stages;
        match stage {
            Stage::Listeners => listeners,
            Stage::Workers => workers,
            Stage::Infrastructure => infrastructure,
        }
    }

    /// The tasks still running, in a stable order.
    fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.named.values().map(|(_, name)| *name).collect();
        names.sort_unstable();
        names
    }
}

type TaskResult = Result<anyhow::Result<()>, JoinError>;

/// The next task that ends; `None` if there is none.
async fn next_finished(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    named: &mut HashMap<Id, (Stage, &'static str)>,
) -> Option<(Stage, &'static str, TaskResult)> {
    let (id, result) = match tasks.join_next_with_id().await? {
        Ok((id, result)) => (id, Ok(result)),
        Err(error) => (error.id(), Err(error)),
    };
    named.remove(&id).map(|(stage, name)| (stage, name, result))
}

fn unexpected_stop(name: &'static str, result: TaskResult) -> Fault {
    match result {
        Ok(Ok(())) => Fault::StoppedUnexpectedly { name },
        Ok(Err(cause)) => Fault::Failed { name, cause },
        Err(error) => match error.try_into_panic() {
            Ok(panic) => Fault::Panicked { name, message: panic_message(panic.as_ref()) },
            Err(_) => Fault::StoppedUnexpectedly { name }, // aborted by someone else
        },
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}

/// An error with its causes, on one line.
struct Chain<'a>(&'a dyn std::error::Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            write!(f, ": {cause}")?;
            next = cause.source();
        }
        Ok(())
    }
}

/// Source of signals.
#[derive(Debug)]
enum Signals {
    /// The operating system.
    Process { interrupt: unix::Signal, terminate: unix::Signal },
    /// A test.
    #[cfg(test)]
    Sent(tokio::sync::mpsc::UnboundedReceiver<Signal>),
}

impl Signals {
    async fn next(&mut self) -> Signal {
        match self {
            Signals::Process { interrupt, terminate } => tokio::select! {
                Some(()) = interrupt.recv() => Signal::Interrupt,
                Some(()) = terminate.recv() => Signal::Terminate,
                else => std::future::pending().await,
            },
            #[cfg(test)]
            Signals::Sent(receiver) => match receiver.recv().await {
                Some(signal) => signal,
                None => std::future::pending().await,
            },
        }
    }
}

#[cfg(test)]
mod tests;
