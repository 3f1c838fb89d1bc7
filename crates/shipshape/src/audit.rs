//! `shipshape audit`: reads and verifies the audit log.

use anyhow::bail;
use clap::Subcommand;
use serde_json::json;
use store::{AuditQuery, ChainHead};

use crate::config::Config;
use crate::open_store;
use crate::store::Form;
use cli::output;

/// Commands of the audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Show entries, newest first
    List {
        /// Only of this actor
        #[arg(long)]
        actor: Option<String>,
        /// Only of targets that start with this
        #[arg(long)]
        target: Option<String>,
        /// Only of actions that start with this
        #[arg(long)]
        action: Option<String>,
        /// Largest number of entries
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
        /// Output format
        #[arg(short, long, value_enum, default_value_t)]
        output: Form,
    },
    /// Detect any modified, missing or reordered record
    Verify {
        /// A head that an earlier verification printed; it must still be part of the log
        #[arg(long, value_name = "NUMBER:SEAL")]
        expect: Option<String>,
    },
}

/// Runs the command.
pub(crate) async fn run(command: &AuditCommand, config: &Config) -> anyhow::Result<()> {
    match command {
        AuditCommand::List { actor, target, action, limit, output } => {
            let query = AuditQuery {
                actor: actor.clone(),
                target: target.clone(),
                action: action.clone(),
                before: None,
                limit: 0,
            };
            list(query, usize::try_from(*limit)?, *output, config).await
        }
        AuditCommand::Verify { expect } => verify(expect.as_deref(), config).await,
    }
}

async fn list(mut query: AuditQuery, limit: usize, form: Form, config: &Config) -> anyhow::Result<()> {
    let reader = open_store::open_reader(&config.store).await?;
    let mut records = Vec::new();
    while records.len() < limit {
        query.limit = (limit - records.len()).min(store::PAGE_MAX);
        let page = reader.audit_list(query.clone()).await?;
        query.before = page.last().map(|row| row.place);
        let is_last = page.len() < query.limit;
        records.extend(page.into_iter().map(|row| row.record));
        if is_last {
            break;
        }
    }
    reader.close().await;
    let text = match form {
        Form::Json => format!("{:#}\n", json!({ "value": records })),
        Form::Text if records.is_empty() => "No entries\n".to_owned(),
        Form::Text => {
            let mut lines = vec![["TIME", "ACTOR", "ACTION", "TARGET", "REASON"].map(str::to_owned)];
            lines.extend(records.iter().map(|record| {
                let entry = &record.entry;
                let time = record.time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                [time, entry.actor.clone(), entry.action.clone(), entry.target.clone(), entry.reason.clone()]
            }));
            output::columns(&lines)
        }
    };
    output::show(&text)
}

async fn verify(expect: Option<&str>, config: &Config) -> anyhow::Result<()> {
    let expected = expect.map(str::parse::<ChainHead>).transpose()?;
    let reader = open_store::open_reader(&config.store).await?;
    let verified = reader.verify_audit(expected).await;
    reader.close().await;
    let verified = verified?;
    for fault in &verified.faults {
        output::error(&format!("audit verify: {fault}"));
    }
    if !verified.faults.is_empty() {
        bail!("audit verify: the log is not intact ({} faults)", verified.faults.len());
    }
    output::show(&format!(
        "{} sealed records verified, {} not sealed yet\nhead {}\n",
        verified.records, verified.unsealed, verified.head
    ))
}
