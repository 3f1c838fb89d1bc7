//! `shipshape machine` and `shipshape machineset`: the machines of one cluster.

use std::collections::BTreeMap;

use anyhow::Context as _;
use api::admin::ManifestRequest;
use api::crd::machine::{Condition, Machine, MachineSet, names};
use api::duration::TimeSpan;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;
use client::{Client, ObjectQuery};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::confirm::Confirm;
use super::create::{self, CreateOptions};
use super::print::{Output, Printable};
use super::table::{Column, View, Width, with_age};
use super::{Connect, Invocation, complete, find};
use crate::output;

const MACHINE: &str = "Machine.machine.openshift.io";
const MACHINE_SET: &str = "MachineSet.machine.openshift.io";

/// The cluster whose machines are meant.
#[derive(Debug, Clone, Args)]
pub struct MachinesOf {
    /// The cluster, by its name or resource id
    #[arg(long, value_name = "CLUSTER", add = ArgValueCandidates::new(complete::clusters))]
    cluster: String,
    /// The namespace of the machines
    #[arg(short, long, default_value = names::NAMESPACE)]
    namespace: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Flags of commands that change machines by a task.
#[derive(Debug, Clone, Args)]
pub struct ChangeFlags {
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
}

/// Commands of machines.
#[derive(Debug, Subcommand)]
pub enum MachineCommand {
    /// List the machines of a cluster
    #[command(visible_alias = "ls")]
    List(MachinesOf),
    /// Show one machine
    #[command(visible_alias = "get")]
    Show {
        /// The machine
        machine: String,
        #[command(flatten)]
        of: MachinesOf,
    },
    /// Replace a machine by a new one of its MachineSet; runs the task replace-machine
    Replace {
        /// The machine
        machine: String,
        #[command(flatten)]
        of: MachinesOf,
        #[command(flatten)]
        flags: ChangeFlags,
        #[command(flatten)]
        confirm: Confirm,
    },
}

/// Commands of MachineSets.
#[derive(Debug, Subcommand)]
pub enum MachineSetCommand {
    /// List the MachineSets of a cluster
    #[command(visible_alias = "ls")]
    List(MachinesOf),
    /// Show one MachineSet
    #[command(visible_alias = "get")]
    Show {
        /// The MachineSet
        machine_set: String,
        #[command(flatten)]
        of: MachinesOf,
    },
    /// Set the number of machines; runs the task scale-machineset
    Scale {
        /// The MachineSet
        machine_set: String,
        /// The number of machines
        #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
        replicas: u32,
        #[command(flatten)]
        of: MachinesOf,
        #[command(flatten)]
        flags: ChangeFlags,
    },
}

/// Runs a command of machines.
pub async fn run_machine(command: &MachineCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    match command {
        MachineCommand::List(of) => of.list::<Machine>(MACHINE, invocation).await,
        MachineCommand::Show { machine, of } => of.show::<Machine>(MACHINE, machine, invocation).await,
        MachineCommand::Replace { machine, of, flags, confirm } => {
            let machine = bare_name::<Machine>(machine);
            confirm.ask(&format!("Delete machine {machine} of cluster {} and replace it", of.cluster))?;
            let parameters = json!({ "machine": machine, "namespace": of.namespace });
            of.run_task("replace-machine", parameters, flags, invocation).await
        }
    }
}

/// Runs a command of MachineSets.
pub async fn run_machine_set(command: &MachineSetCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    match command {
        MachineSetCommand::List(of) => of.list::<MachineSet>(MACHINE_SET, invocation).await,
        MachineSetCommand::Show { machine_set, of } => {
            of.show::<MachineSet>(MACHINE_SET, machine_set, invocation).await
        }
        MachineSetCommand::Scale { machine_set, replicas, of, flags } => {
            let machine_set = bare_name::<MachineSet>(machine_set);
            let parameters =
                json!({ "machineSet": machine_set, "replicas": replicas, "namespace": of.namespace });
            of.run_task("scale-machineset", parameters, flags, invocation).await
        }
    }
}

impl MachinesOf {
    async fn read(&self, client: &Client, kind: &str, name: Option<&str>) -> anyhow::Result<Value> {
        let cluster = find::cluster(client, &self.cluster).await?;
        let query = ObjectQuery {
            kind: kind.to_owned(),
            namespace: Some(self.namespace.clone()),
            name: name.map(str::to_owned),
            unrestricted: self.namespace != names::NAMESPACE,
        };
        Ok(client.objects(&cluster.id, &query).await?)
    }

    async fn list<T: Printable + DeserializeOwned>(
        &self,
        kind: &str,
        invocation: &Invocation<'_>,
    ) -> anyhow::Result<()> {
        let mut found = self.read(&invocation.client(&self.connect)?, kind, None).await?;
        let items: Vec<T> =
            serde_json::from_value(found["items"].take()).context("the response of the server")?;
        self.output.print_list(invocation, &items)?;
        if found["metadata"]["continue"] == "cut" && self.output.is_human() {
            output::note(&format!("only the first {} are shown", items.len()));
        }
        Ok(())
    }

    async fn show<T: Printable + DeserializeOwned>(
        &self,
        kind: &str,
        name: &str,
        invocation: &Invocation<'_>,
    ) -> anyhow::Result<()> {
        let found = self.read(&invocation.client(&self.connect)?, kind, Some(bare_name::<T>(name))).await?;
        let item: T = serde_json::from_value(found).context("the response of the server")?;
        self.output.print(invocation, &item)
    }

    async fn run_task(
        &self,
        task: &str,
        parameters: Value,
        flags: &ChangeFlags,
        invocation: &Invocation<'_>,
    ) -> anyhow::Result<()> {
        let client = invocation.client(&self.connect)?;
        let cluster = find::cluster(&client, &self.cluster).await?;
        let task = find::task(&client, task).await?;
        let parameters: Map<String, Value> = serde_json::from_value(parameters)?;
        let request = ManifestRequest {
            maintenance_task_id: task.id.map(|id| id.to_string()).context("the server's task has no id")?,
            priority: None,
            run_after: None,
            run_before: None,
            parameters,
            status_text: None,
            reason: flags.reason.clone(),
        };
        let ChangeFlags { dry_run, wait, timeout, .. } = *flags;
        let options = CreateOptions { dry_run, wait, timeout, output: self.output };
        create::create_on(&client, &[cluster], &request, &options, invocation).await
    }
}

/// A name, which may be given as `-o name` prints it: `machine/NAME`.
fn bare_name<T: Printable>(name: &str) -> &str {
    name.strip_prefix(T::KIND).and_then(|it| it.strip_prefix('/')).unwrap_or(name)
}

/// A label or an annotation; empty if there is none.
fn entry(entries: Option<&BTreeMap<String, String>>, name: &str) -> String {
    entries.and_then(|it| it.get(name)).cloned().unwrap_or_default()
}

/// One line for each condition, with its reason and message.
fn conditions(conditions: &[Condition]) -> String {
    let line = |it: &Condition| {
        let rest = [it.reason.as_deref(), it.message.as_deref()];
        let rest: Vec<&str> = rest.into_iter().flatten().filter(|it| !it.is_empty()).collect();
        match rest.is_empty() {
            true => format!("{}={}", it.type_, it.status),
            false => format!("{}={} ({})", it.type_, it.status, rest.join(": ")),
        }
    };
    conditions.iter().map(line).collect::<Vec<_>>().join("\n")
}

impl Printable for Machine {
    const KIND: &'static str = "machine";
    const COLUMNS: &'static [Column] = &[
        Column("NAME", Width::Always),
        Column("PHASE", Width::Always),
        Column("TYPE", Width::Always),
        Column("REGION", Width::Always),
        Column("ZONE", Width::Always),
        Column("AGE", Width::Always),
        Column("NODE", Width::Wide),
        Column("PROVIDERID", Width::Wide),
        Column("STATE", Width::Wide),
    ];

    fn name(&self) -> String {
        self.metadata.name.clone().unwrap_or_default()
    }

    fn cells(&self, view: &View) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        vec![
            self.name(),
            status.phase.map(|it| it.to_string()).unwrap_or_default(),
            entry(self.metadata.labels.as_ref(), names::INSTANCE_TYPE_LABEL),
            entry(self.metadata.labels.as_ref(), names::REGION_LABEL),
            entry(self.metadata.labels.as_ref(), names::ZONE_LABEL),
            view.optional_time(self.metadata.creation_timestamp.as_ref().map(|it| it.0)),
            status.node_ref.and_then(|it| it.name).unwrap_or_default(),
            self.spec.provider_id.clone().unwrap_or_default(),
            entry(self.metadata.annotations.as_ref(), names::INSTANCE_STATE),
        ]
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        let status = self.status.clone().unwrap_or_default();
        let owner = self.metadata.owner_references.iter().flatten().find(|it| it.controller == Some(true));
        let addresses: Vec<String> =
            status.addresses.iter().map(|it| format!("{} {}", it.type_, it.address)).collect();
        let error = [status.error_reason, status.error_message].into_iter().flatten().collect::<Vec<_>>();
        vec![
            ("Name", self.name()),
            ("Phase", status.phase.map(|it| it.to_string()).unwrap_or_default()),
            ("Error", error.join(": ")),
            ("MachineSet", owner.map(|it| it.name.clone()).unwrap_or_default()),
            ("Node", status.node_ref.and_then(|it| it.name).unwrap_or_default()),
            ("Type", entry(self.metadata.labels.as_ref(), names::INSTANCE_TYPE_LABEL)),
            ("Region", entry(self.metadata.labels.as_ref(), names::REGION_LABEL)),
            ("Zone", entry(self.metadata.labels.as_ref(), names::ZONE_LABEL)),
            ("State", entry(self.metadata.annotations.as_ref(), names::INSTANCE_STATE)),
            ("Provider ID", self.spec.provider_id.clone().unwrap_or_default()),
            ("Addresses", addresses.join("\n")),
            ("Conditions", conditions(&status.conditions)),
            (
                "Created",
                self.metadata
                    .creation_timestamp
                    .as_ref()
                    .map(|it| with_age(it.0, view.now))
                    .unwrap_or_default(),
            ),
        ]
    }
}

impl Printable for MachineSet {
    const KIND: &'static str = "machineset";
    const COLUMNS: &'static [Column] = &[
        Column("NAME", Width::Always),
        Column("DESIRED", Width::Always),
        Column("CURRENT", Width::Always),
        Column("READY", Width::Always),
        Column("AVAILABLE", Width::Always),
        Column("AGE", Width::Always),
    ];

    fn name(&self) -> String {
        self.metadata.name.clone().unwrap_or_default()
    }

    fn cells(&self, view: &View) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        let number = |it: Option<i32>| it.map(|it| it.to_string()).unwrap_or_default();
        vec![
            self.name(),
            number(self.spec.replicas),
            number(status.replicas),
            number(status.ready_replicas),
            number(status.available_replicas),
            view.optional_time(self.metadata.creation_timestamp.as_ref().map(|it| it.0)),
        ]
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        let status = self.status.clone().unwrap_or_default();
        let number = |it: Option<i32>| it.unwrap_or(0).to_string();
        let error = [status.error_reason, status.error_message].into_iter().flatten().collect::<Vec<_>>();
        let limits = [names::AUTOSCALER_MIN_SIZE, names::AUTOSCALER_MAX_SIZE]
            .map(|it| entry(self.metadata.annotations.as_ref(), it));
        let autoscaler = match &limits {
            [least, most] if least.is_empty() && most.is_empty() => String::new(),
            [least, most] => format!("{least} to {most}"),
        };
        vec![
            ("Name", self.name()),
            ("Desired", number(self.spec.replicas)),
            ("Current", number(status.replicas)),
            ("Ready", number(status.ready_replicas)),
            ("Available", number(status.available_replicas)),
            ("Error", error.join(": ")),
            ("Autoscaler", autoscaler),
            ("Conditions", conditions(&status.conditions)),
            (
                "Created",
                self.metadata
                    .creation_timestamp
                    .as_ref()
                    .map(|it| with_age(it.0, view.now))
                    .unwrap_or_default(),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        View { now: "2026-01-01T00:05:00Z".parse().unwrap(), wide: false }
    }

    #[test]
    fn a_machine_has_the_columns_of_kubectl_and_shows_what_blocks_it() {
        let machine: Machine = serde_json::from_value(json!({
            "metadata": {
                "name": "one-worker-1", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": { names::INSTANCE_TYPE_LABEL: "Standard_D4s_v5", names::REGION_LABEL: "westeurope", names::ZONE_LABEL: "1" },
                "annotations": { names::INSTANCE_STATE: "Running" },
                "ownerReferences": [{ "apiVersion": "v1", "kind": "MachineSet", "name": "one-worker", "uid": "u", "controller": true }]
            },
            "spec": { "providerID": "azure:///x" },
            "status": {
                "phase": "Deleting", "nodeRef": { "name": "one-worker-1" }, "addresses": [{ "type": "InternalIP", "address": "10.0.0.4" }],
                "conditions": [{
                    "type": "Drained", "status": "False", "severity": "Warning", "reason": "DrainError", "message": "pod shop/web-1 is blocked",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"
                }]
            }
        }))
        .unwrap();
        let cells = machine.cells(&view());
        assert_eq!(cells[..6], ["one-worker-1", "Deleting", "Standard_D4s_v5", "westeurope", "1", "5m"]);
        assert_eq!(cells[6..], ["one-worker-1", "azure:///x", "Running"]);
        let text = super::super::table::details(&machine.details(&view()));
        for line in [
            "MachineSet:   one-worker\n",
            "Addresses:    InternalIP 10.0.0.4\n",
            "Conditions:   Drained=False (DrainError: pod shop/web-1 is blocked)\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn a_machine_set_shows_its_numbers() {
        let set: MachineSet = serde_json::from_value(json!({
            "metadata": { "name": "workers", "annotations": { names::AUTOSCALER_MIN_SIZE: "1", names::AUTOSCALER_MAX_SIZE: "4" } },
            "spec": { "replicas": 3 }, "status": { "replicas": 3, "readyReplicas": 2 }
        }))
        .unwrap();
        assert_eq!(set.cells(&view())[..5], ["workers", "3", "3", "2", ""]);
        let text = super::super::table::details(&set.details(&view()));
        assert!(text.contains("Autoscaler:  1 to 4\n"), "{text}");
    }
}
