//! `shipshape task`: maintenance tasks.

use anyhow::{Context as _, bail};
use api::admin::{TaskForm, TaskSource};
use clap::Subcommand;
use clap_complete::engine::ArgValueCandidates;
use client::{Client, Topic};
use serde_json::Value;
use uuid::Uuid;

use super::confirm::Confirm;
use super::create::{self, CreateFlags};
use super::find;
use super::input::Document;
use super::print::{Output, Printable};
use super::table::{Column, View, Width};
use super::{ApplyFlags, Connect, Invocation, WatchFlags, complete};
use crate::output;

/// Commands of tasks.
#[derive(Debug, Subcommand)]
pub enum TaskCommand {
    /// List the tasks
    #[command(visible_alias = "ls")]
    List(WatchFlags),
    /// Show one task
    #[command(visible_alias = "get")]
    Show {
        /// The task, by its name or id
        #[arg(add = ArgValueCandidates::new(complete::tasks))]
        task: String,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Store tasks from YAML or JSON
    Apply(ApplyFlags),
    /// Delete a stored task
    Delete {
        /// The task, by its name or id
        #[arg(add = ArgValueCandidates::new(complete::tasks))]
        task: String,
        /// Reason for the audit log
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        confirm: Confirm,
        #[command(flatten)]
        connect: Connect,
    },
    /// Run a task on a cluster now
    Run {
        /// The task, by its name or id
        #[arg(add = ArgValueCandidates::new(complete::tasks))]
        task: String,
        #[command(flatten)]
        flags: CreateFlags,
    },
}

/// Runs the command.
pub async fn run(command: &TaskCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    match command {
        TaskCommand::List(flags) => {
            let client = invocation.client(&flags.connect)?;
            let list = || async { Ok(client.tasks().all().await?) };
            flags.print(invocation, &client, Topic::Tasks, list).await
        }
        TaskCommand::Show { task, output, connect } => {
            output.print(invocation, &find::task(&invocation.client(connect)?, task).await?)
        }
        TaskCommand::Apply(flags) => {
            let documents = flags.read()?;
            let client = invocation.client(&flags.connect)?;
            for document in documents {
                apply(&client, document, flags.output, invocation).await?;
            }
            Ok(())
        }
        TaskCommand::Delete { task, reason, confirm, connect } => {
            let client = invocation.client(connect)?;
            let task = find::task(&client, task).await?;
            confirm.ask(&format!("Delete task {}", task.name))?;
            let id = task.id.context("the server's task has no id")?;
            client.delete_task(id, reason.as_deref()).await?;
            output::show(&format!("task/{} deleted\n", task.name))
        }
        TaskCommand::Run { task, flags } => create::create(task, flags, invocation).await,
    }
}

async fn apply(
    client: &Client,
    document: Document,
    form: Output,
    invocation: &Invocation<'_>,
) -> anyhow::Result<()> {
    let Document { place, value } = document;
    let id = resolve_id(client, &place, &value).await?;
    // The document is sent unchanged: only the server validates it.
    let stored = client.put_task(id, &value, None).await.with_context(|| place)?;
    let version = stored.value.version.unwrap_or_default();
    let did = match stored.is_created() {
        true => "created".to_owned(),
        false => format!("configured (version {version})"),
    };
    form.print_change(invocation, &stored.value, &did)
}

/// The id in the document, else that of the task with its name, else a new one.
async fn resolve_id(client: &Client, place: &str, task: &Value) -> anyhow::Result<Uuid> {
    if let Some(id) = task.get("id") {
        return match id.as_str().and_then(|id| Uuid::parse_str(id).ok()) {
            Some(id) => Ok(id),
            None => bail!("{place}: id: expected a UUID or no id"),
        };
    }
    let Some(name) = task.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()) else {
        bail!("{place}: name: expected the task's name, such as restart-web");
    };
    match client.task(name).await {
        Ok(answer) => answer.value.id.context("the server's task has no id"),
        Err(error) if error.is_not_found() => Ok(Uuid::now_v7()),
        Err(error) => Err(error.into()),
    }
}

impl Printable for TaskForm {
    const KIND: &'static str = "task";
    const COLUMNS: &'static [Column] = &[
        Column("NAME", Width::Always),
        Column("TITLE", Width::Always),
        Column("SOURCE", Width::Always),
        Column("VERSION", Width::Always),
        Column("DISRUPTIVE", Width::Always),
        Column("STEPS", Width::Always),
        Column("TIME LIMIT", Width::Wide),
        Column("ID", Width::Wide),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, _view: &View) -> Vec<String> {
        vec![
            self.name.clone(),
            self.title.clone(),
            source(self).to_owned(),
            self.version.map(|version| version.to_string()).unwrap_or_default(),
            if self.disruptive { "yes" } else { "no" }.to_owned(),
            self.steps.len().to_string(),
            self.time_limit.as_ref().map(ToString::to_string).unwrap_or_default(),
            self.id.map(|id| id.to_string()).unwrap_or_default(),
        ]
    }

    fn details(&self, _view: &View) -> Vec<(&'static str, String)> {
        let steps = self.steps.iter().enumerate().map(|(number, step)| {
            let name = if step.name.is_empty() { &step.uses } else { &step.name };
            let undo = if step.undo.is_some() { ", with undo" } else { "" };
            format!("{}. {name} ({}{undo})", number + 1, step.uses)
        });
        vec![
            ("Name", self.name.clone()),
            ("Title", self.title.clone()),
            ("Description", self.description.clone()),
            ("ID", self.id.map(|id| id.to_string()).unwrap_or_default()),
            ("Source", source(self).to_owned()),
            ("Version", self.version.map(|version| version.to_string()).unwrap_or_default()),
            ("Disruptive", if self.disruptive { "yes" } else { "no" }.to_owned()),
            ("Time limit", self.time_limit.as_ref().map(ToString::to_string).unwrap_or_default()),
            ("Expected", self.expected_duration.as_ref().map(ToString::to_string).unwrap_or_default()),
            ("Requires", requires(self)),
            ("Parameters", parameters(self)),
            ("Steps", steps.collect::<Vec<_>>().join("\n")),
        ]
    }
}

fn source(task: &TaskForm) -> &'static str {
    match task.source {
        Some(TaskSource::Builtin) => "builtin",
        Some(TaskSource::Data) => "data",
        None => "",
    }
}

fn requires(task: &TaskForm) -> String {
    let Some(requires) = &task.requires else { return String::new() };
    let mut lines = Vec::new();
    if !requires.provisioning_states.is_empty() {
        lines.push(format!("provisioning state {}", requires.provisioning_states.join(" or ")));
    }
    lines.extend(requires.minimum_version.iter().map(|version| format!("version {version} or newer")));
    lines.extend(requires.maximum_version.iter().map(|version| format!("version {version} or older")));
    lines.extend(requires.health.iter().map(|health| format!("health {health}")));
    lines.join("\n")
}

/// Each parameter with its type, whether it is required, and its description.
fn parameters(task: &TaskForm) -> String {
    let Some(schema) = &task.parameters else { return String::new() };
    let required = |name: &str| {
        schema["required"].as_array().is_some_and(|required| required.iter().any(|it| it == name))
    };
    let properties = schema["properties"].as_object().into_iter().flatten();
    let lines = properties.map(|(name, property)| {
        let kind = property["type"].as_str().unwrap_or("any");
        let required = if required(name) { ", required" } else { "" };
        let about = property["description"].as_str().map(|text| format!(": {text}")).unwrap_or_default();
        format!("{name} ({kind}{required}){about}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_described_with_its_parameters_and_steps() {
        let task: TaskForm = serde_json::from_value(serde_json::json!({
            "name": "restart-web", "title": "Restart the web", "source": "data", "version": 2,
            "parameters": { "required": ["name"], "properties": { "name": { "type": "string", "description": "which" } } },
            "requires": { "minimumVersion": "1.30" },
            "steps": [{ "name": "restart", "uses": "kubernetes/restart", "undo": { "uses": "pause" } }, { "uses": "pause" }],
        }))
        .unwrap();
        let view = View { now: jiff::Timestamp::UNIX_EPOCH, wide: false };
        let text = super::super::table::details(&task.details(&view));
        assert!(text.contains("Parameters:  name (string, required): which\n"), "{text}");
        assert!(
            text.contains("1. restart (kubernetes/restart, with undo)\n             2. pause (pause)\n"),
            "{text}"
        );
        assert!(text.contains("Requires:    version 1.30 or newer\n"), "{text}");
    }
}
