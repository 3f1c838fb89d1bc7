//! `shipshape context`: the servers that commands can use.

use anyhow::Context as _;
use clap::Subcommand;
use clap_complete::engine::ArgValueCandidates;
use serde::Serialize;

use super::print::{Output, Printable};
use super::table::{Column, View, Width};
use super::{Connect, Invocation, complete};
use crate::contexts::{self, ContextFile, Contexts};
use crate::output;

/// Commands of contexts.
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// List the contexts
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Set the current context
    Use {
        /// The context
        #[arg(add = ArgValueCandidates::new(complete::contexts))]
        name: String,
    },
    /// Show the selected context without its secrets
    Show {
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
}

/// Runs the command.
pub fn run(command: &ContextCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    match command {
        ContextCommand::List { output } => {
            let contexts = Contexts::load(invocation.environment)?;
            let current = contexts.current();
            let rows: Vec<ContextRow> = contexts
                .iter()
                .map(|(name, entry)| {
                    let file = ContextFile::read(&entry.file).ok();
                    ContextRow {
                        current: current == Some(name),
                        name: name.to_owned(),
                        server: file.as_ref().map(|file| file.server.clone()).unwrap_or_default(),
                        credential: match &file {
                            Some(file) => file.credential_kind().to_owned(),
                            None if entry.is_missing() => "missing".to_owned(),
                            None => "unreadable".to_owned(),
                        },
                        file: entry.file.display().to_string(),
                    }
                })
                .collect();
            output.print_list(invocation, &rows)
        }
        ContextCommand::Use { name } => {
            let name = name.strip_prefix("context/").unwrap_or(name);
            Contexts::set_current(name, invocation.environment)?;
            output::show(&format!("context/{name} set as the current context\n"))
        }
        ContextCommand::Show { output, connect } => {
            let selected = contexts::select(&invocation.selection(connect), invocation.environment)?;
            let contexts = Contexts::load(invocation.environment)?;
            let credential = match &selected.context.credential {
                client::Credential::None => "none",
                client::Credential::Certificate { .. } => "certificate",
                client::Credential::Token(_) => "token",
            };
            // Validates the credential before it is shown.
            client::Client::new(&selected.context).with_context(|| format!("context {}", selected.name))?;
            let listed = ContextRow {
                current: contexts.current() == Some(selected.name.as_str()),
                server: selected.context.server.clone(),
                credential: credential.to_owned(),
                file: contexts.get(&selected.name).map(|file| file.display().to_string()).unwrap_or_default(),
                name: selected.name,
            };
            output.print(invocation, &listed)
        }
    }
}

/// A context, without its secrets.
#[derive(Debug, Serialize)]
struct ContextRow {
    name: String,
    current: bool,
    server: String,
    credential: String,
    file: String,
}

impl Printable for ContextRow {
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

    fn details(&self, _view: &View) -> Vec<(&'static str, String)> {
        vec![
            ("Name", self.name.clone()),
            ("Current", if self.current { "yes" } else { "no" }.to_owned()),
            ("Server", self.server.clone()),
            ("Credential", self.credential.clone()),
            ("File", self.file.clone()),
        ]
    }
}
