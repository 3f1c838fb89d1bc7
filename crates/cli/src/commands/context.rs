//! `shipshape context`: which server commands speak with.

use anyhow::Context as _;
use clap::Subcommand;
use clap_complete::engine::ArgValueCandidates;
use serde::Serialize;

use super::form::{Output, Shown};
use super::table::{Column, View, Width};
use super::{Connect, Desk, complete};
use crate::contexts::{self, ContextFile, Contexts};
use crate::output;

/// What can be done with contexts.
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// List the known contexts
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Make a context the current one
    Use {
        /// The context
        #[arg(add = ArgValueCandidates::new(complete::contexts))]
        name: String,
    },
    /// Show the context that commands use now, without its secrets
    Show {
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
}

/// Carries out what was asked.
pub fn run(command: &ContextCommand, desk: &Desk<'_>) -> anyhow::Result<()> {
    match command {
        ContextCommand::List { output } => {
            let contexts = Contexts::load(desk.environment)?;
            let current = contexts.current();
            let rows: Vec<Listed> = contexts
                .iter()
                .map(|(name, known)| {
                    let file = ContextFile::read(&known.file).ok();
                    Listed {
                        current: current == Some(name),
                        name: name.to_owned(),
                        server: file.as_ref().map(|file| file.server.clone()).unwrap_or_default(),
                        credential: match &file {
                            Some(file) => file.credential_kind().to_owned(),
                            None if known.is_gone() => "gone".to_owned(),
                            None => "unreadable".to_owned(),
                        },
                        file: known.file.display().to_string(),
                    }
                })
                .collect();
            output.list(desk, &rows)
        }
        ContextCommand::Use { name } => {
            let name = name.strip_prefix("context/").unwrap_or(name);
            Contexts::choose(name, desk.environment)?;
            output::show(&format!("context/{name} is the current one\n"))
        }
        ContextCommand::Show { output, connect } => {
            let chosen = contexts::choose(&desk.wish(connect), desk.environment)?;
            let contexts = Contexts::load(desk.environment)?;
            let credential = match &chosen.context.credential {
                client::Credential::None => "none",
                client::Credential::Certificate { .. } => "certificate",
                client::Credential::Token(_) => "token",
            };
            // That it can be used is part of what is shown.
            client::Client::new(&chosen.context).with_context(|| format!("context {}", chosen.name))?;
            let listed = Listed {
                current: contexts.current() == Some(chosen.name.as_str()),
                server: chosen.context.server.clone(),
                credential: credential.to_owned(),
                file: contexts.get(&chosen.name).map(|file| file.display().to_string()).unwrap_or_default(),
                name: chosen.name,
            };
            output.one(desk, &listed)
        }
    }
}

/// A context, without its secrets.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    current: bool,
    server: String,
    credential: String,
    file: String,
}

impl Shown for Listed {
    const KIND: &'static str = "context";
    const COLUMNS: &'static [Column] = &[
        Column("CURRENT", Width::Always),
        Column("NAME", Width::Always),
        Column("SERVER", Width::Always),
        Column("CREDENTIAL", Width::Always),
        Column("FILE", Width::Wide),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, _view: &View) -> Vec<String> {
        let mark = if self.current { "*" } else { "" };
        vec![
            mark.to_owned(),
            self.name.clone(),
            self.server.clone(),
            self.credential.clone(),
            self.file.clone(),
        ]
    }

    fn facts(&self, _view: &View) -> Vec<(&'static str, String)> {
        vec![
            ("Name", self.name.clone()),
            ("Current", if self.current { "yes" } else { "no" }.to_owned()),
            ("Server", self.server.clone()),
            ("Credential", self.credential.clone()),
            ("File", self.file.clone()),
        ]
    }
}
