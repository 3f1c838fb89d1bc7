//! `shipshape cloud`: resources of the simulated cloud.

mod az;
mod fault;
mod machine;
mod prepare;
mod print;
mod simulated;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use cloud::{Infrastructure as _, Properties, Resource, ResourceId, ResourceKind};
use cloud_azure::AzureClient;
use cloudsim::Endpoints;
use cloudsim::settings::{PrincipalInfo, Rights, Setting};

use super::confirm::Confirm;
use super::print::Output;
use super::target::{GROUP, LOCATION, SUBSCRIPTION, TargetFlags};
use super::{Connect, Invocation};
use crate::output;
pub(crate) use fault::FaultCommand;
pub(crate) use machine::CloudMachineCommand;
pub(crate) use prepare::{Prepared, ensure_registered, prepare, prepare_in_azure};
use print::CreatedPrincipal;
pub use simulated::SimulatedCloud;

/// Commands of the simulated cloud.
#[derive(Debug, Subcommand)]
pub enum CloudCommand {
    /// Create the resources that a cluster requires: group, network, subnets, principal
    Prepare {
        /// The cluster's name
        name: String,
        #[command(flatten)]
        place: TargetFlags,
        /// Print the commands of Azure's `az` that do the same, and change nothing
        #[arg(long)]
        az: bool,
        /// Create them in Azure, with the settings [cloud.azure] of --config
        #[arg(long, requires_all = ["client_id", "client_secret_file"], conflicts_with = "az")]
        azure: bool,
        /// With --azure: the client id of the cluster's principal, which `--az` tells how to create
        #[arg(long, value_name = "ID", requires = "azure")]
        client_id: Option<String>,
        /// With --azure: the file with the principal's secret
        #[arg(long, value_name = "FILE", requires = "azure")]
        client_secret_file: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Show what an SDK needs to use the simulated cloud: addresses, tenant, principal, certificate authority
    Endpoints {
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Print the role that the service's principal needs in Azure, with the actions that its calls use and no others
    Role {
        /// The name of the role
        #[arg(long, value_name = "NAME", default_value = "Shipshape")]
        name: String,
        /// A scope at which it can be assigned, such as /subscriptions/ID; may be repeated
        #[arg(long = "scope", value_name = "SCOPE", required = true)]
        scopes: Vec<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Resource groups
    #[command(subcommand, visible_alias = "groups")]
    Group(GroupCommand),
    /// Virtual networks
    #[command(subcommand, visible_alias = "networks")]
    Network(NetworkCommand),
    /// Subnets of a network
    #[command(subcommand, visible_alias = "subnets")]
    Subnet(SubnetCommand),
    /// Service principals of clusters
    #[command(subcommand, visible_alias = "principals")]
    Principal(PrincipalCommand),
    /// List the resources of a group
    Resources(ListFlags),
    /// Show any resource by its id
    Show {
        /// The resource id
        id: ResourceId,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// List the certificates of the vault
    Certificates {
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// List the tokens of the registry
    Tokens {
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Virtual machines of the simulated cloud: list, interrupt and impair them
    #[command(subcommand, visible_alias = "machines")]
    Machine(CloudMachineCommand),
    /// Faults of the simulated cloud
    #[command(subcommand, visible_alias = "faults")]
    Fault(FaultCommand),
}

impl CloudCommand {
    /// Whether the command is for Azure by the settings instead of the simulated cloud.
    pub fn needs_azure(&self) -> bool {
        matches!(self, CloudCommand::Prepare { azure: true, .. })
    }
}

/// Flags of a resource group.
#[derive(Debug, Clone, Args)]
pub(crate) struct InGroup {
    /// The resource group
    #[arg(short = 'g', long = "group", visible_alias = "resource-group", value_name = "NAME", default_value = GROUP)]
    group: String,
    /// The subscription
    #[arg(long, value_name = "ID", default_value = SUBSCRIPTION)]
    subscription: String,
}

impl InGroup {
    fn id(&self) -> anyhow::Result<ResourceId> {
        Ok(ResourceId::group(&self.subscription, &self.group).as_str().parse()?)
    }
}

/// Flags of a list.
#[derive(Debug, Clone, Args)]
pub struct ListFlags {
    #[command(flatten)]
    within: InGroup,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Flags of a resource in a group.
#[derive(Debug, Clone, Args)]
pub struct ResourceFlags {
    /// Its name
    name: String,
    #[command(flatten)]
    within: InGroup,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Flags of the deletion of a resource in a group.
#[derive(Debug, Clone, Args)]
pub struct DeleteFlags {
    /// Its name
    name: String,
    #[command(flatten)]
    within: InGroup,
    #[command(flatten)]
    confirm: Confirm,
    #[command(flatten)]
    connect: Connect,
}

/// Commands of groups.
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Create a group
    Create {
        /// Its name
        name: String,
        /// The subscription
        #[arg(long, value_name = "ID", default_value = SUBSCRIPTION)]
        subscription: String,
        /// The location
        #[arg(long, value_name = "NAME", default_value = LOCATION)]
        location: String,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// List the groups of a subscription
    #[command(visible_alias = "ls")]
    List {
        /// The subscription
        #[arg(long, value_name = "ID", default_value = SUBSCRIPTION)]
        subscription: String,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Show a group
    #[command(visible_alias = "get")]
    Show {
        /// Its name
        name: String,
        /// The subscription
        #[arg(long, value_name = "ID", default_value = SUBSCRIPTION)]
        subscription: String,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Delete a group with its resources
    Delete {
        /// Its name
        name: String,
        /// The subscription
        #[arg(long, value_name = "ID", default_value = SUBSCRIPTION)]
        subscription: String,
        #[command(flatten)]
        confirm: Confirm,
        #[command(flatten)]
        connect: Connect,
    },
}

/// Commands of networks.
#[derive(Debug, Subcommand)]
pub enum NetworkCommand {
    /// Create a network
    Create {
        #[command(flatten)]
        resource: ResourceFlags,
        /// Its addresses; may be repeated
        #[arg(long = "address-space", value_name = "CIDR", default_value = "10.0.0.0/22")]
        address_space: Vec<String>,
        /// The location
        #[arg(long, value_name = "NAME", default_value = LOCATION)]
        location: String,
    },
    /// List the networks of a group
    #[command(visible_alias = "ls")]
    List(ListFlags),
    /// Show a network
    #[command(visible_alias = "get")]
    Show(ResourceFlags),
    /// Delete a network
    Delete(DeleteFlags),
}

/// Commands of subnets.
#[derive(Debug, Subcommand)]
pub enum SubnetCommand {
    /// Create a subnet
    Create {
        #[command(flatten)]
        resource: ResourceFlags,
        /// The network of the subnet
        #[arg(long, value_name = "NAME")]
        network: String,
        /// Its addresses
        #[arg(long, value_name = "CIDR")]
        prefix: String,
        /// The location
        #[arg(long, value_name = "NAME", default_value = LOCATION)]
        location: String,
    },
    /// List the subnets of a group
    #[command(visible_alias = "ls")]
    List(ListFlags),
    /// Show a subnet
    #[command(visible_alias = "get")]
    Show {
        #[command(flatten)]
        resource: ResourceFlags,
        /// The network of the subnet
        #[arg(long, value_name = "NAME")]
        network: String,
    },
    /// Delete a subnet
    Delete {
        #[command(flatten)]
        resource: DeleteFlags,
        /// The network of the subnet
        #[arg(long, value_name = "NAME")]
        network: String,
    },
}

/// Rights of a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RightsArg {
    /// Everything, everywhere
    Everywhere,
    /// As granted by its roles
    ByRoles,
}

/// Commands of principals.
#[derive(Debug, Subcommand)]
pub enum PrincipalCommand {
    /// Create a principal and store its secret in a file
    Create {
        /// Its name
        name: String,
        /// Its rights
        #[arg(long, value_enum, default_value = "everywhere")]
        rights: RightsArg,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// List the principals
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Show a principal
    #[command(visible_alias = "get")]
    Show {
        /// Its name or client id
        principal: String,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Replace the secret of a principal and store it in its file
    Secret {
        /// Its name or client id
        principal: String,
        #[command(flatten)]
        connect: Connect,
    },
    /// Delete a principal
    Delete {
        /// Its name or client id
        principal: String,
        #[command(flatten)]
        confirm: Confirm,
        #[command(flatten)]
        connect: Connect,
    },
}

/// Runs the command.
///
/// `azure` is the client that the settings describe, for commands that [need it](CloudCommand::needs_azure).
pub async fn run(
    command: &CloudCommand,
    invocation: &Invocation<'_>,
    azure: Option<AzureClient>,
) -> anyhow::Result<()> {
    match command {
        CloudCommand::Prepare { name, place, az: true, .. } => {
            output::show(&az::prepare(&place.target(name)?))
        }
        CloudCommand::Prepare {
            name,
            place,
            azure: true,
            client_id: Some(client_id),
            client_secret_file: Some(file),
            output,
            ..
        } => {
            let azure = azure.context("cloud.provider is not azure; name the settings by --config")?;
            let prepared = prepare_in_azure(&azure, &place.target(name)?, client_id, file).await?;
            output.print_value(invocation, &prepared, |_| summary(&prepared))
        }
        CloudCommand::Prepare { name, place, output, connect, .. } => {
            let place = place.target(name)?;
            let prepared = prepare(&invocation.cloud(connect)?, &place).await?;
            ensure_registered(&invocation.client(connect)?, &place).await?;
            output.print_value(invocation, &prepared, |_| summary(&prepared))
        }
        CloudCommand::Endpoints { output, connect } => {
            let endpoints = invocation.cloud(connect)?.cloud.endpoints().clone();
            output.print_value(invocation, &endpoints, |_| endpoints_text(&endpoints))
        }
        CloudCommand::Role { name, scopes, output } => {
            let role = cloud_azure::role_definition(name, scopes);
            output.print_value(invocation, &role, |_| format!("{role:#}\n"))
        }
        CloudCommand::Group(command) => group(command, invocation).await,
        CloudCommand::Network(command) => network(command, invocation).await,
        CloudCommand::Subnet(command) => subnet(command, invocation).await,
        CloudCommand::Principal(command) => principal(command, invocation).await,
        CloudCommand::Resources(flags) => list(flags, invocation, |_| true).await,
        CloudCommand::Show { id, output, connect } => {
            output.print(invocation, &get_resource(&invocation.cloud(connect)?, id).await?)
        }
        CloudCommand::Certificates { output, connect } => {
            output.print_list(invocation, &invocation.cloud(connect)?.cloud.azure().certificates().await?)
        }
        CloudCommand::Tokens { output, connect } => {
            output.print_list(invocation, &invocation.cloud(connect)?.cloud.azure().tokens().await?)
        }
        CloudCommand::Machine(command) => machine::run(command, invocation).await,
        CloudCommand::Fault(command) => fault::run(command, invocation).await,
    }
}

/// One line for each member, vaults by their names.
fn endpoints_text(endpoints: &Endpoints) -> String {
    let Endpoints { authority, tenant_id, resource_manager, vaults, registry, blob, .. } = endpoints;
    let mut lines = vec![
        ("Authority:".to_owned(), authority.clone()),
        ("Tenant ID:".to_owned(), tenant_id.clone()),
        ("Resource manager:".to_owned(), resource_manager.clone()),
    ];
    lines.extend(vaults.iter().map(|(name, address)| (format!("Vault {name}:"), address.clone())));
    lines.extend([
        ("Registry:".to_owned(), registry.clone()),
        ("Blobs:".to_owned(), blob.clone()),
        ("Token issuers:".to_owned(), endpoints.issuer_url.clone()),
        ("Metadata:".to_owned(), endpoints.metadata.clone()),
        ("Identity service:".to_owned(), endpoints.identity_service.clone()),
        ("Subscription ID:".to_owned(), endpoints.subscription_id.clone()),
        ("Client ID:".to_owned(), endpoints.client_id.clone()),
        ("Secret file:".to_owned(), endpoints.client_secret_file.display().to_string()),
        ("CA file:".to_owned(), endpoints.ca_file.display().to_string()),
    ]);
    lines.into_iter().fold(String::new(), |text, (name, value)| text + &format!("{name:<19}{value}\n"))
}

fn summary(prepared: &Prepared) -> String {
    format!(
        "Group:          {}\nNetwork:        {}\nMaster subnet:  {}\nWorker subnet:  {}\nClient ID:      {}\nSecret file:    {}\n",
        prepared.group,
        prepared.network,
        prepared.master_subnet,
        prepared.worker_subnet,
        prepared.client_id,
        prepared.client_secret_file.display()
    )
}

async fn group(command: &GroupCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    let id = |subscription: &str, name: &str| -> anyhow::Result<ResourceId> {
        Ok(ResourceId::group(subscription, name).as_str().parse()?)
    };
    match command {
        GroupCommand::Create { name, subscription, location, output, connect } => {
            let properties = Properties::ResourceGroup { managed_by: None };
            let created =
                invocation.cloud(connect)?.ensure(&id(subscription, name)?, location, properties).await?;
            output.print_change(invocation, &created, "created")
        }
        GroupCommand::List { subscription, output, connect } => output
            .print_list(invocation, &invocation.cloud(connect)?.cloud.azure().groups(subscription).await?),
        GroupCommand::Show { name, subscription, output, connect } => output
            .print(invocation, &get_resource(&invocation.cloud(connect)?, &id(subscription, name)?).await?),
        GroupCommand::Delete { name, subscription, confirm, connect } => {
            remove(
                &invocation.cloud(connect)?,
                &id(subscription, name)?,
                *confirm,
                "group and all its resources",
            )
            .await
        }
    }
}

async fn network(command: &NetworkCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    let id = |within: &InGroup, name: &str| -> anyhow::Result<ResourceId> {
        Ok(prepare::network_id(&within.id()?, name).as_str().parse()?)
    };
    match command {
        NetworkCommand::Create { resource, address_space, location } => {
            let properties = Properties::VirtualNetwork { address_space: address_space.clone() };
            let created = invocation
                .cloud(&resource.connect)?
                .ensure(&id(&resource.within, &resource.name)?, location, properties)
                .await?;
            resource.output.print_change(invocation, &created, "created")
        }
        NetworkCommand::List(flags) => {
            list(flags, invocation, |kind| kind == ResourceKind::VirtualNetwork).await
        }
        NetworkCommand::Show(resource) => resource.output.print(
            invocation,
            &get_resource(&invocation.cloud(&resource.connect)?, &id(&resource.within, &resource.name)?)
                .await?,
        ),
        NetworkCommand::Delete(resource) => {
            remove(
                &invocation.cloud(&resource.connect)?,
                &id(&resource.within, &resource.name)?,
                resource.confirm,
                "network",
            )
            .await
        }
    }
}

async fn subnet(command: &SubnetCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    let id = |within: &InGroup, network: &str, name: &str| -> anyhow::Result<ResourceId> {
        Ok(prepare::network_id(&within.id()?, network).child("subnets", name).as_str().parse()?)
    };
    match command {
        SubnetCommand::Create { resource, network, prefix, location } => {
            let properties = Properties::Subnet {
                address_prefix: prefix.clone(),
                security_group: None,
                route_table: None,
                nat_gateway: None,
                service_endpoints: Vec::new(),
                private_link_policies: false,
            };
            let id = id(&resource.within, network, &resource.name)?;
            let created = invocation.cloud(&resource.connect)?.ensure(&id, location, properties).await?;
            resource.output.print_change(invocation, &created, "created")
        }
        SubnetCommand::List(flags) => list(flags, invocation, |kind| kind == ResourceKind::Subnet).await,
        SubnetCommand::Show { resource, network } => {
            let id = id(&resource.within, network, &resource.name)?;
            resource
                .output
                .print(invocation, &get_resource(&invocation.cloud(&resource.connect)?, &id).await?)
        }
        SubnetCommand::Delete { resource, network } => {
            let id = id(&resource.within, network, &resource.name)?;
            remove(&invocation.cloud(&resource.connect)?, &id, resource.confirm, "subnet").await
        }
    }
}

async fn principal(command: &PrincipalCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    match command {
        PrincipalCommand::Create { name, rights, output, connect } => {
            let simulated = invocation.cloud(connect)?;
            let rights = match rights {
                RightsArg::Everywhere => Rights::Everywhere,
                RightsArg::ByRoles => Rights::ByRoles,
            };
            let created = simulated.cloud.create_principal(name, rights).await?;
            let file = prepare::store_secret(&simulated, &created.principal.client_id, &created.secret)?;
            output::note(&format!("secret stored in {}", file.display()));
            let created = CreatedPrincipal { principal: created.principal, client_secret_file: file };
            output.print_change(invocation, &created, "created")
        }
        PrincipalCommand::List { output, connect } => {
            output.print_list(invocation, &invocation.cloud(connect)?.cloud.principals().await?)
        }
        PrincipalCommand::Show { principal, output, connect } => {
            output.print(invocation, &find_principal(&invocation.cloud(connect)?, principal).await?)
        }
        PrincipalCommand::Secret { principal, connect } => {
            let simulated = invocation.cloud(connect)?;
            let found = find_principal(&simulated, principal).await?;
            let created = simulated.cloud.change_secret(&found.client_id).await?;
            let file = prepare::store_secret(&simulated, &found.client_id, &created.secret)?;
            output::show(&format!("principal/{} secret replaced; stored in {}\n", found.name, file.display()))
        }
        PrincipalCommand::Delete { principal, confirm, connect } => {
            let simulated = invocation.cloud(connect)?;
            let PrincipalInfo { name, client_id, .. } = find_principal(&simulated, principal).await?;
            confirm.ask(&format!("Delete principal {name}"))?;
            simulated.cloud.arrange(Setting::DeletePrincipal { client_id: client_id.clone() }).await?;
            prepare::remove_secret(&simulated, &client_id);
            output::show(&format!("principal/{name} deleted\n"))
        }
    }
}

async fn find_principal(simulated: &SimulatedCloud, text: &str) -> anyhow::Result<PrincipalInfo> {
    let principals = simulated.cloud.principals().await?;
    let found = principals.into_iter().find(|it| it.name == text || it.client_id.eq_ignore_ascii_case(text));
    found.with_context(|| {
        format!("principal {text:?} not found; run `shipshape cloud principal list` to list the principals")
    })
}

async fn list(
    flags: &ListFlags,
    invocation: &Invocation<'_>,
    is_selected: impl Fn(ResourceKind) -> bool,
) -> anyhow::Result<()> {
    let resources = invocation.cloud(&flags.connect)?.cloud.azure().list(&flags.within.id()?).await?;
    let resources: Vec<Resource> =
        resources.into_iter().filter(|it| is_selected(it.properties.kind())).collect();
    flags.output.print_list(invocation, &resources)
}

async fn get_resource(simulated: &SimulatedCloud, id: &ResourceId) -> anyhow::Result<Resource> {
    simulated.cloud.azure().get(id).await?.with_context(|| {
        format!(
            "{id} not found; run `shipshape cloud resources --group {}` to list the resources of its group",
            id.resource_group()
        )
    })
}

async fn remove(
    simulated: &SimulatedCloud,
    id: &ResourceId,
    confirm: Confirm,
    what: &str,
) -> anyhow::Result<()> {
    if simulated.cloud.azure().get(id).await?.is_none() {
        bail!("{id} not found");
    }
    confirm.ask(&format!("Delete the {what} {}", id.name()))?;
    simulated.cloud.azure().delete(id).await?;
    output::show(&format!("{} is being deleted\n", id.name()))
}
