//! The commands that call a server: one file per group, and the modules that they share.

#![expect(missing_docs, reason = "flattened fields of commands have no help text of their own")]

mod age;
mod budget;
#[cfg(feature = "sim")]
mod cloud;
mod cluster;
pub mod complete;
mod confirm;
mod context;
mod create;
mod events;
mod find;
mod health;
mod input;
mod labels;
mod machine;
mod manifest;
mod operation;
mod outage;
mod plan;
mod print;
mod progress;
mod schedule;
mod table;
mod target;
mod task;
mod time_arg;
mod version;
mod wait;
mod watch;
mod why;

use std::path::PathBuf;

use api::clock::{Clock as _, SystemClock};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use client::{Client, Topic};
use jiff::Timestamp;

use crate::Environment;
use crate::contexts::{self, ServerSelection};
use print::{Output, Printable};

pub use budget::{BudgetCommand, run as budget};
#[cfg(feature = "sim")]
pub use cloud::{CloudCommand, SimulatedCloud, run as cloud};
#[cfg(feature = "sim")]
pub use cluster::create_simulated;
pub use cluster::{ClusterCommand, run as cluster};
pub use context::{ContextCommand, run as context};
pub use create::parameters;
pub use events::{EventsCommand, run as events};
pub use health::{HealthFlags, run as health};
pub use input::{Document, Documents};
pub use labels::KeyValue;
pub use machine::{
    MachineCommand, MachineSetCommand, run_machine as machine, run_machine_set as machine_set,
};
pub use manifest::{ManifestCommand, run as manifest};
pub use operation::{Interrupted, OperationCommand, run as operation};
pub use plan::{PlanCommand, run as plan};
pub use schedule::{ScheduleCommand, run as schedule};
pub use target::{ClusterTarget, TargetFlags};
pub use task::{TaskCommand, run as task};
pub use version::{VersionCommand, run as version};
pub use why::{WhyCommand, run as why};

/// Flags that select the server.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server")]
pub struct Connect {
    /// The context to use, by its name or the path of its file [default: the current one]
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(complete::contexts))]
    context: Option<String>,
    /// URL of the server, instead of the context's
    #[arg(long, value_name = "URL")]
    server: Option<String>,
}

/// Flags of `list` commands that can watch for changes.
#[derive(Debug, Clone, Args)]
pub struct WatchFlags {
    /// Watch for changes
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

impl WatchFlags {
    /// Prints the result of `list`, and with `--watch` its changes.
    async fn print<T, F>(
        &self,
        invocation: &Invocation<'_>,
        client: &Client,
        topic: Topic,
        list: impl Fn() -> F,
    ) -> anyhow::Result<()>
    where
        T: Printable,
        F: Future<Output = anyhow::Result<Vec<T>>>,
    {
        match self.watch {
            true => watch::watch(invocation, client, topic, self.output, list).await,
            false => self.output.print_list(invocation, &list().await?),
        }
    }
}

/// Flags of `apply` commands.
#[derive(Debug, Clone, Args)]
pub struct ApplyFlags {
    #[command(flatten)]
    documents: Documents,
    /// Reason for the audit log
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

impl ApplyFlags {
    /// Reads the documents and adds the reason to each.
    fn read(&self) -> anyhow::Result<Vec<Document>> {
        let mut documents = self.documents.read()?;
        if let Some(reason) = &self.reason {
            for members in documents.iter_mut().filter_map(|document| document.value.as_object_mut()) {
                members.insert("reason".to_owned(), reason.as_str().into());
            }
        }
        Ok(documents)
    }
}

/// One invocation of the command line: its environment and its global flags.
#[derive(Debug)]
pub struct Invocation<'a> {
    environment: &'a Environment,
    data_dir: Option<PathBuf>,
}

impl<'a> Invocation<'a> {
    /// The invocation of this process; `data_dir` is the value of `--data-dir`.
    pub fn new(environment: &'a Environment, data_dir: Option<PathBuf>) -> Invocation<'a> {
        Invocation { environment, data_dir }
    }

    /// A client of the selected server.
    pub fn client(&self, connect: &Connect) -> anyhow::Result<Client> {
        contexts::connect(&self.selection(connect), self.environment)
    }

    /// The simulated cloud of the selected server.
    #[cfg(feature = "sim")]
    fn cloud(&self, connect: &Connect) -> anyhow::Result<cloud::SimulatedCloud> {
        let selected = contexts::select(&self.selection(connect), self.environment)?;
        cloud::SimulatedCloud::from_context(&selected)
    }

    fn selection(&self, connect: &Connect) -> ServerSelection {
        ServerSelection {
            context: connect.context.clone(),
            server: connect.server.clone(),
            data_dir: self.data_dir.clone(),
        }
    }

    /// Current time.
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }
}
