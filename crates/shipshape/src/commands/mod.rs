//! The commands that speak with a server: one file for each group, and beside them what they share.

mod age;
mod budget;
mod cloud;
mod cluster;
pub(crate) mod complete;
mod confirm;
mod context;
mod create;
mod events;
mod find;
mod form;
mod input;
mod labels;
mod manifest;
mod operation;
mod place;
mod plan;
mod progress;
mod schedule;
mod table;
mod task;
mod version;
mod wait;
mod watch;
mod when;
mod why;

use std::path::PathBuf;

use api::clock::{Clock as _, SystemClock};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use client::Client;
use jiff::Timestamp;

use crate::config::Environment;
use crate::contexts::{self, Wish};

pub(crate) use budget::{BudgetCommand, run as budget};
pub(crate) use cloud::{Bench, CloudCommand, run as cloud};
pub(crate) use cluster::{ClusterCommand, ask_for, run as cluster};
pub(crate) use context::{ContextCommand, run as context};
pub(crate) use events::{EventsCommand, run as events};
pub(crate) use manifest::{ManifestCommand, run as manifest};
pub(crate) use operation::{Interrupted, OperationCommand, run as operation};
pub(crate) use place::Place;
pub(crate) use plan::{PlanCommand, run as plan};
pub(crate) use schedule::{ScheduleCommand, run as schedule};
pub(crate) use task::{TaskCommand, run as task};
pub(crate) use version::{VersionCommand, run as version};
pub(crate) use why::{WhyCommand, run as why};

/// Which server is meant.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Connect {
    /// The context to use, by its name or the path of its file [default: the current one]
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(complete::contexts))]
    context: Option<String>,
    /// Another address than the context's
    #[arg(long, value_name = "URL")]
    server: Option<String>,
}

/// What commands work with.
#[derive(Debug)]
pub(crate) struct Desk<'a> {
    environment: &'a Environment,
    data_dir: Option<PathBuf>,
}

impl<'a> Desk<'a> {
    /// The desk of a process; `data_dir` is what the command line names.
    pub(crate) fn new(environment: &'a Environment, data_dir: Option<PathBuf>) -> Desk<'a> {
        Desk { environment, data_dir }
    }

    /// A client of the server that is meant.
    pub(crate) fn client(&self, connect: &Connect) -> anyhow::Result<Client> {
        contexts::connect(&self.wish(connect), self.environment)
    }

    /// The simulated cloud of the server that is meant.
    fn cloud(&self, connect: &Connect) -> anyhow::Result<cloud::Bench> {
        let chosen = contexts::choose(&self.wish(connect), self.environment)?;
        cloud::Bench::of(&chosen)
    }

    fn wish(&self, connect: &Connect) -> Wish {
        Wish {
            context: connect.context.clone(),
            server: connect.server.clone(),
            data_dir: self.data_dir.clone(),
        }
    }

    /// The present instant.
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }
}
