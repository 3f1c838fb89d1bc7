//! `shipshape cloud machine`: what happens to virtual machines of the simulated cloud.

use anyhow::{Context as _, bail};
use api::duration::TimeSpan;
use clap::{Args, Subcommand};
use cloud::{Infrastructure as _, Resource, ResourceId, ResourceKind};
use cloudsim::settings::Setting;

use super::super::print::Output;
use super::super::target::SUBSCRIPTION;
use super::super::{Connect, Invocation};
use super::SimulatedCloud;
use crate::output;

/// Commands of virtual machines.
#[derive(Debug, Subcommand)]
pub enum CloudMachineCommand {
    /// List the virtual machines
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        within: Within,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Take a spot machine back, as a cloud does that needs its capacity: announce it, and evict it after the notice
    Interrupt {
        #[command(flatten)]
        machine: MachineFlags,
        /// Time between announcement and eviction; Azure gives at least half a minute
        #[arg(long, value_name = "DURATION", default_value = "30s")]
        notice: TimeSpan,
    },
    /// Let the system of a machine hang while it runs, so that its node is no longer ready
    Impair(MachineFlags),
    /// Let the system of an impaired machine answer again
    Recover(MachineFlags),
}

/// Where a machine is.
#[derive(Debug, Clone, Args)]
pub struct Within {
    /// The resource group [default: all]
    #[arg(short = 'g', long = "group", visible_alias = "resource-group", value_name = "NAME")]
    group: Option<String>,
    /// The subscription
    #[arg(long, value_name = "ID", default_value = SUBSCRIPTION)]
    subscription: String,
}

/// One machine.
#[derive(Debug, Clone, Args)]
pub struct MachineFlags {
    /// Its name, which is that of its Machine and of its node
    name: String,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    connect: Connect,
}

impl Within {
    async fn machines(&self, simulated: &SimulatedCloud) -> anyhow::Result<Vec<Resource>> {
        let azure = simulated.cloud.azure();
        let groups: Vec<ResourceId> = match &self.group {
            Some(name) => vec![ResourceId::group(&self.subscription, name).as_str().parse()?],
            None => azure.groups(&self.subscription).await?.into_iter().map(|it| it.id).collect(),
        };
        let mut machines = Vec::new();
        for group in groups {
            machines.extend(azure.list(&group).await?);
        }
        machines.retain(|it| it.properties.kind() == ResourceKind::Machine);
        Ok(machines)
    }
}

impl MachineFlags {
    /// The only machine of the name.
    async fn find(&self, simulated: &SimulatedCloud) -> anyhow::Result<ResourceId> {
        let mut found = self.within.machines(simulated).await?;
        found.retain(|it| it.id.name().eq_ignore_ascii_case(&self.name));
        if found.len() > 1 {
            let groups: Vec<&str> = found.iter().map(|it| it.id.resource_group()).collect();
            bail!(
                "there are virtual machines {:?} in the groups {}; choose one with --group",
                self.name,
                groups.join(", ")
            );
        }
        found.pop().map(|it| it.id).with_context(|| {
            format!(
                "virtual machine {:?} not found; run `shipshape cloud machine list` to list the machines",
                self.name
            )
        })
    }

    async fn impair(&self, invocation: &Invocation<'_>, impaired: bool) -> anyhow::Result<()> {
        let simulated = invocation.cloud(&self.connect)?;
        let machine = self.find(&simulated).await?;
        let name = machine.name().to_owned();
        simulated.cloud.arrange(Setting::Impair { machine, impaired }).await?;
        output::show(&format!("machine/{name} {}\n", if impaired { "impaired" } else { "recovered" }))
    }
}

/// Runs the command.
pub(super) async fn run(command: &CloudMachineCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    match command {
        CloudMachineCommand::List { within, output, connect } => {
            output.print_list(invocation, &within.machines(&invocation.cloud(connect)?).await?)
        }
        CloudMachineCommand::Interrupt { machine, notice } => {
            let simulated = invocation.cloud(&machine.connect)?;
            let id = machine.find(&simulated).await?;
            let notice_seconds = u32::try_from(notice.duration().as_secs())
                .with_context(|| format!("--notice {notice}: at most {} s are accepted", u32::MAX))?;
            simulated.cloud.arrange(Setting::Interrupt { machine: id.clone(), notice_seconds }).await?;
            output::show(&format!("machine/{} is evicted in {notice_seconds} s\n", id.name()))
        }
        CloudMachineCommand::Impair(machine) => machine.impair(invocation, true).await,
        CloudMachineCommand::Recover(machine) => machine.impair(invocation, false).await,
    }
}
