//! Creation of manifests, for `manifest create` and `task run`.

use anyhow::{Context as _, bail};
use api::admin::{AdminCluster, ManifestForm, ManifestRequest, TaskForm};
use api::duration::TimeSpan;
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use client::Client;
use serde_json::{Map, Value};

use super::labels::{KeyValue, LabelSelector};
use super::print::Output;
use super::time_arg::TimeArg;
use super::{Connect, Invocation, complete, find, wait};

/// Flags of a new manifest.
#[derive(Debug, Clone, Args)]
pub struct CreateFlags {
    /// The cluster, by its name or resource id; may be repeated
    #[arg(long, value_name = "CLUSTER", required_unless_present = "selector", add = ArgValueCandidates::new(complete::clusters))]
    cluster: Vec<String>,
    /// Every cluster with these labels, such as env=prod
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<LabelSelector>,
    /// A parameter of the task; may be repeated
    #[arg(short, long = "param", value_name = "KEY=VALUE")]
    parameters: Vec<KeyValue>,
    /// Not before: 2h from now, Unix seconds, or a time such as 2026-11-30T04:00:00Z [default: now]
    #[arg(long, value_name = "WHEN")]
    run_after: Option<TimeArg>,
    /// Not started at or after [default: 7 days later]
    #[arg(long, value_name = "WHEN")]
    run_before: Option<TimeArg>,
    /// Among manifests due at the same second, lower runs first
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    priority: Option<i32>,
    /// Reason for the history
    #[arg(long)]
    reason: Option<String>,
    /// Validate the request and show the result without creating anything
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Show progress and wait until it finishes; fails unless it is Completed
    #[arg(short, long)]
    wait: bool,
    /// Longest wait
    #[arg(long, value_name = "DURATION", requires = "wait")]
    timeout: Option<TimeSpan>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Creates a manifest of `task` on each selected cluster and waits for them with `--wait`.
pub(super) async fn create(
    task: &str,
    flags: &CreateFlags,
    invocation: &Invocation<'_>,
) -> anyhow::Result<()> {
    let client = invocation.client(&flags.connect)?;
    let task = find::task(&client, task).await?;
    let clusters = clusters(&client, flags).await?;
    let now = invocation.now();
    let request = ManifestRequest {
        maintenance_task_id: task.id.map(|id| id.to_string()).context("the server's task has no id")?,
        priority: flags.priority,
        run_after: flags.run_after.map(|when| when.unix(now)),
        run_before: flags.run_before.map(|when| when.unix(now)),
        parameters: parameters(&task, &flags.parameters),
        status_text: None,
        reason: flags.reason.clone(),
    };
    let CreateFlags { dry_run, wait, timeout, output, .. } = *flags;
    create_on(&client, &clusters, &request, &CreateOptions { dry_run, wait, timeout, output }, invocation)
        .await
}

/// How a manifest is created and followed.
pub(super) struct CreateOptions {
    pub(super) dry_run: bool,
    pub(super) wait: bool,
    pub(super) timeout: Option<TimeSpan>,
    pub(super) output: Output,
}

/// Creates a manifest on each of the clusters and waits for them if the options say so.
pub(super) async fn create_on(
    client: &Client,
    clusters: &[AdminCluster],
    request: &ManifestRequest,
    options: &CreateOptions,
    invocation: &Invocation<'_>,
) -> anyhow::Result<()> {
    let mut created: Vec<ManifestForm> = Vec::new();
    for cluster in clusters {
        let response = client.create_manifest(&cluster.id, request, options.dry_run).await;
        let mut form = response.with_context(|| format!("cluster {}", cluster.name))?.value;
        form.cluster_resource_id = Some(cluster.id.clone());
        let did = match options.dry_run {
            true => format!("would be created for cluster {} (dry run)", cluster.name),
            false => format!("created for cluster {}", cluster.name),
        };
        // Structured output with --wait contains the finished manifest only.
        if !options.wait || options.output.is_human() {
            options.output.print_change(invocation, &form, &did)?;
        }
        created.push(form);
    }
    if !options.wait {
        return Ok(());
    }
    wait::for_all(client, invocation, &created, options.timeout, options.output).await
}

async fn clusters(client: &Client, flags: &CreateFlags) -> anyhow::Result<Vec<AdminCluster>> {
    let mut clusters = Vec::new();
    for name in &flags.cluster {
        clusters.push(find::cluster(client, name).await?);
    }
    if let Some(selector) = &flags.selector {
        let all = client.clusters().all().await?;
        clusters.extend(all.into_iter().filter(|it| selector.matches(&it.properties.labels)));
    }
    clusters.sort_by(|a, b| a.id.cmp(&b.id));
    clusters.dedup_by(|a, b| a.id == b.id);
    if clusters.is_empty() {
        bail!("no cluster has these labels; run `shipshape cluster list -o wide` to list the labels");
    }
    Ok(clusters)
}

/// Converts typed parameters to the types that the schema of the task declares.
pub fn parameters(task: &TaskForm, arguments: &[KeyValue]) -> Map<String, Value> {
    let value = |pair: &KeyValue| {
        let schema = task.parameters.as_ref().and_then(|schema| schema.get("properties")?.get(&pair.key));
        let is_text = schema.is_some_and(|schema| {
            let kinds = &schema["type"];
            kinds == "string" || kinds.as_array().is_some_and(|kinds| kinds.contains(&Value::from("string")))
        });
        let text = || Value::String(pair.value.clone());
        if is_text { text() } else { serde_json::from_str(&pair.value).unwrap_or_else(|_| text()) }
    };
    arguments.iter().map(|pair| (pair.key.clone(), value(pair))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_has_the_type_of_the_schema() {
        let task: TaskForm = serde_json::from_value(serde_json::json!({
            "name": "t", "title": "t", "steps": [],
            "parameters": { "properties": {
                "version": { "type": "string" }, "count": { "type": "integer" }, "either": { "type": ["string", "null"] },
            } },
        }))
        .unwrap();
        let arguments: Vec<KeyValue> = ["version=1.20", "count=3", "either=5", "list=[1,2]", "other=text"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        assert_eq!(
            Value::Object(parameters(&task, &arguments)),
            serde_json::json!({ "version": "1.20", "count": 3, "either": "5", "list": [1, 2], "other": "text" })
        );
    }
}
