//! `shipshape events`: the stream of changes.

use clap::{Args, ValueEnum};
use client::{Change, Event, Topic};
use futures_util::StreamExt as _;
use serde_json::json;

use super::find::last_segment;
use super::table::{absolute, wire_name};
use super::{Connect, Invocation};
use crate::output;

/// Flags of `shipshape events`.
#[derive(Debug, Args)]
pub struct EventsCommand {
    /// Only these topics, separated by commas [default: all]
    #[arg(long, value_name = "TOPIC", value_delimiter = ',', value_enum)]
    topics: Vec<TopicName>,
    /// Start after the event with this id [default: now]
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// Stop after N events
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// How to write them
    #[arg(short, long, value_enum, default_value_t)]
    output: EventForm,
    #[command(flatten)]
    connect: Connect,
}

/// Topics on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TopicName {
    Manifests,
    Schedules,
    Tasks,
    Clusters,
    Operations,
}

impl From<TopicName> for Topic {
    fn from(name: TopicName) -> Topic {
        match name {
            TopicName::Manifests => Topic::Manifests,
            TopicName::Schedules => Topic::Schedules,
            TopicName::Tasks => Topic::Tasks,
            TopicName::Clusters => Topic::Clusters,
            TopicName::Operations => Topic::Operations,
        }
    }
}

/// Formats of an event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum EventForm {
    /// One line for people
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// Shows events until the process is stopped.
pub async fn run(command: &EventsCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    let topics: Vec<Topic> = command.topics.iter().map(|name| Topic::from(*name)).collect();
    let mut events = invocation.client(&command.connect)?.events(&topics, command.after.clone());
    let mut shown = 0;
    while command.limit.is_none_or(|limit| shown < limit)
        && let Some(event) = events.next().await
    {
        let event = event?;
        if let Change::Interrupted { cause } = &event.change {
            output::note(&format!("the event stream was interrupted and reconnects: {cause}"));
            continue;
        }
        output::show(&match command.output {
            EventForm::Text => format!("{}  {}\n", absolute(invocation.now()), line(&event)),
            EventForm::Json => {
                format!("{}\n", json!({ "id": event.id, "event": topic(&event.change), "data": event.data }))
            }
        })?;
        shown += 1;
    }
    Ok(())
}

fn topic(change: &Change) -> &str {
    match change {
        Change::Manifest(_) => "manifest",
        Change::Schedule(_) => "schedule",
        Change::Task(_) => "task",
        Change::Cluster(_) => "cluster",
        Change::Other(topic) | Change::Deleted { topic, .. } => topic,
        Change::Relist | Change::Interrupted { .. } => "relist",
    }
}

fn line(event: &Event) -> String {
    match &event.change {
        Change::Manifest(form) => {
            let cluster = last_segment(form.cluster_resource_id.as_deref().unwrap_or_default());
            let step = form.step.as_ref().map(|step| format!(" {}", step.name)).unwrap_or_default();
            let text =
                if form.status_text.is_empty() { String::new() } else { format!(": {}", form.status_text) };
            format!(
                "manifest/{} {} on {cluster} {}{step}{text}",
                form.id,
                form.task_name,
                form.state.as_str()
            )
        }
        Change::Schedule(form) => format!("schedule/{} {}", form.id, form.state),
        Change::Task(form) => format!("task/{} version {}", form.name, form.version.unwrap_or_default()),
        Change::Cluster(form) => {
            format!("cluster/{} {}", form.name, wire_name(form.properties.provisioning_state))
        }
        Change::Other(topic) => format!("{topic} {}", event.data),
        // A deleted cluster is identified by its path.
        Change::Deleted { topic, id } => format!("{topic}/{} deleted", last_segment(id)),
        Change::Relist => "events were missed; earlier output may be outdated".to_owned(),
        Change::Interrupted { cause } => cause.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_cluster_is_shown_by_its_name() {
        let gone = |topic: &str, id: &str| {
            let change = Change::Deleted { topic: topic.to_owned(), id: id.to_owned() };
            line(&Event { id: String::new(), change, data: serde_json::Value::Null })
        };
        assert_eq!(
            gone("cluster", "/subscriptions/s/resourcegroups/g/x/y/harbour"),
            "cluster/harbour deleted"
        );
        assert_eq!(gone("schedule", "weekly"), "schedule/weekly deleted");
    }
}
