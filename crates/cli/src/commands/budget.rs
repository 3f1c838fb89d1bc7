//! `shipshape budget`: limits on concurrent work.

use std::str::FromStr;

use anyhow::Context as _;
use api::admin::{BudgetForm, BudgetRequest};
use clap::Subcommand;
use client::Client;
use uuid::Uuid;

use super::print::{Output, Printable};
use super::table::{Column, View, Width};
use super::{Connect, Invocation, find};

/// Commands of budgets.
#[derive(Debug, Subcommand)]
pub enum BudgetCommand {
    /// List the limits and their use
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Set a limit; 0 stops new starts, none removes it
    Set {
        /// fleet, region/LOCATION, subscription/ID or task/NAME
        key: String,
        /// Largest number of concurrent runs, or none
        limit: Limit,
        /// Reason for the audit log
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Remove a limit
    Clear {
        /// fleet, region/LOCATION, subscription/ID or task/NAME
        key: String,
        /// Reason for the audit log
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
}

/// A limit on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(Option<u32>);

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        match text {
            "none" => Ok(Limit(None)),
            text => text
                .parse()
                .map(|limit| Limit(Some(limit)))
                .map_err(|_| "expected a whole number (0 stops new starts), or none for no limit".to_owned()),
        }
    }
}

/// Runs the command.
pub async fn run(command: &BudgetCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    match command {
        BudgetCommand::List { output, connect } => {
            output.print_list(invocation, &invocation.client(connect)?.budgets().all().await?)
        }
        BudgetCommand::Set { key, limit, reason, output, connect } => {
            let client = invocation.client(connect)?;
            set(&client, key, *limit, reason.clone(), *output, invocation).await
        }
        BudgetCommand::Clear { key, reason, output, connect } => {
            let client = invocation.client(connect)?;
            set(&client, key, Limit(None), reason.clone(), *output, invocation).await
        }
    }
}

async fn set(
    client: &Client,
    key: &str,
    limit: Limit,
    reason: Option<String>,
    form: Output,
    invocation: &Invocation<'_>,
) -> anyhow::Result<()> {
    let key = key.strip_prefix("budget/").unwrap_or(key);
    let key = match key.strip_prefix("task/") {
        Some(task) if Uuid::parse_str(task).is_err() => {
            let id = find::task(client, task).await?.id.context("the server's task has no id")?;
            format!("task/{id}")
        }
        _ => key.to_owned(),
    };
    let stored = client.set_budget(&key, &BudgetRequest { limit: limit.0, reason }).await?;
    let did = match limit.0 {
        None => "has no limit".to_owned(),
        Some(0) => "is 0: no new work starts".to_owned(),
        Some(limit) => format!("is {limit}"),
    };
    form.print_change(invocation, &stored.value, &did)
}

impl Printable for BudgetForm {
    const KIND: &'static str = "budget";
    const COLUMNS: &'static [Column] = &[
        Column("KEY", Width::Always),
        Column("LIMIT", Width::Always),
        Column("USED", Width::Always),
        Column("PARKED", Width::Always),
    ];

    fn name(&self) -> String {
        self.key.clone()
    }

    fn cells(&self, _view: &View) -> Vec<String> {
        let limit = self.limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
        vec![self.key.clone(), limit, self.used.to_string(), self.parked.to_string()]
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        ["Key", "Limit", "Used", "Parked"].into_iter().zip(self.cells(view)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_or_none() {
        assert_eq!("3".parse(), Ok(Limit(Some(3))));
        assert_eq!("none".parse(), Ok(Limit(None)));
        assert!("-1".parse::<Limit>().is_err() && "many".parse::<Limit>().is_err());
    }
}
