//! The command line: subcommands and flags, and the conversion of flags to settings.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

#[cfg(feature = "services")]
use crate::audit::AuditCommand;
use crate::config::Flag;
#[cfg(feature = "sim")]
use crate::demo;
#[cfg(feature = "sim")]
use crate::sim::SimCommand;
#[cfg(feature = "services")]
use crate::store::StoreCommand;
#[cfg(feature = "sim")]
use crate::task_test::TestFlags;
#[cfg(feature = "sim")]
use cli::commands::CloudCommand;
#[cfg(feature = "services")]
use cli::commands::Connect;
use cli::commands::{
    self, BudgetCommand, ClusterCommand, ContextCommand, EventsCommand, HealthFlags, MachineCommand,
    MachineSetCommand, ManifestCommand, OperationCommand, PlanCommand, ScheduleCommand, VersionCommand,
    WhyCommand,
};

/// Keeps a fleet of Kubernetes clusters maintained.
#[derive(Debug, Parser)]
#[command(name = "shipshape", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run every service in this process
    #[cfg(feature = "services")]
    Up(UpFlags),
    /// Run only the Admin API and the ARM API, beside other processes on the same PostgreSQL
    #[cfg(feature = "services")]
    #[command(alias = "rp")]
    Frontend(FrontendFlags),
    /// Run only the operators' portal, as a client of an API in another process
    #[cfg(feature = "services")]
    Portal(PortalFlags),
    /// Run only the actuator, which runs manifests, beside other processes on the same PostgreSQL
    #[cfg(feature = "services")]
    #[command(alias = "mimo-actuator")]
    Actuator(ServiceFlags),
    /// Run only the scheduler, which creates manifests, beside other processes on the same PostgreSQL
    #[cfg(feature = "services")]
    #[command(alias = "mimo-scheduler")]
    Scheduler(ServiceFlags),
    /// Run only the backend, which creates, updates and deletes clusters, beside other processes on the same PostgreSQL
    #[cfg(feature = "services")]
    Backend(ServiceFlags),
    /// Run only the monitor, which says how every cluster is, beside other processes on the same PostgreSQL
    #[cfg(feature = "services")]
    Monitor(ServiceFlags),
    /// Run simulated clusters for kubectl and for experiments
    #[cfg(feature = "sim")]
    Sim(SimCommand),
    /// Run inside a managed cluster
    #[cfg(feature = "agent")]
    Agent(ServiceFlags),
    /// Controllers of the machine API, which run inside a cluster
    #[cfg(feature = "agent")]
    #[command(subcommand)]
    Machines(MachinesCommand),
    /// Report on a Node that its cloud is about to take its instance back; runs on each interruptible Node
    #[cfg(feature = "agent")]
    TerminationHandler(TerminationHandlerFlags),
    /// Maintenance tasks: list, store, test and run them
    #[command(subcommand, visible_alias = "tasks")]
    Task(TaskCommand),
    /// Runs of a task on a cluster: create, follow and cancel them
    #[command(subcommand, visible_alias = "manifests")]
    Manifest(ManifestCommand),
    /// Schedules that create manifests
    #[command(subcommand, visible_alias = "schedules")]
    Schedule(ScheduleCommand),
    /// Managed clusters: create, import, change and delete them
    #[command(subcommand, visible_alias = "clusters")]
    Cluster(ClusterCommand),
    /// Asynchronous operations on clusters
    #[command(subcommand, visible_alias = "operations")]
    Operation(OperationCommand),
    /// Resources and faults of the simulated cloud
    #[cfg(feature = "sim")]
    #[command(subcommand)]
    Cloud(CloudCommand),
    /// Machines of a cluster
    #[command(subcommand)]
    Machine(MachineCommand),
    /// MachineSets of a cluster
    #[command(subcommand, name = "machineset", visible_alias = "machinesets")]
    MachineSet(MachineSetCommand),
    /// How the clusters are, and why
    Health(HealthFlags),
    /// Limits on concurrent work
    #[command(subcommand, visible_alias = "budgets")]
    Budget(BudgetCommand),
    /// Predict what will run where and when
    Plan(PlanCommand),
    /// Explain why a manifest waits
    Why(WhyCommand),
    /// Follow changes as they happen
    Events(EventsCommand),
    /// The servers that commands can use
    #[command(subcommand, visible_alias = "contexts")]
    Context(ContextCommand),
    /// Maintain the store: check, migrate, back up, export, import, rotate its key
    #[cfg(feature = "services")]
    #[command(subcommand)]
    Store(StoreCommand),
    /// Read and verify the audit log
    #[cfg(feature = "services")]
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Check or show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show the version of this executable, or the versions of OpenShift that can be installed
    #[command(visible_alias = "versions", args_conflicts_with_subcommands = true)]
    Version {
        /// Output format
        #[arg(short, long, value_enum, default_value_t)]
        output: VersionOutput,
        #[command(subcommand)]
        command: Option<VersionCommand>,
    },
    /// Write a completion script for a shell, such as: source <(shipshape completion bash)
    Completion {
        /// The shell
        shell: Shell,
    },
}

/// Commands of tasks: those that call a server, and the test on a simulated cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    #[command(flatten)]
    Client(commands::TaskCommand),
    /// Test a task on a simulated cluster of three nodes, node-1 to node-3
    #[cfg(feature = "sim")]
    Test(TestFlags),
}

/// Commands of the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration and report every mistake
    Check {
        /// Check also that the cloud offers what the first cluster needs: credentials, rights, providers, quotas, DNS, vault, registry
        #[cfg(feature = "services")]
        #[arg(long)]
        cloud: bool,
    },
    /// Show every setting in effect, with passwords masked
    Show {
        /// Output format
        #[arg(short, long, value_enum, default_value_t)]
        output: ConfigOutput,
        /// Show the origin of each value
        #[arg(long)]
        origin: bool,
    },
}

/// Formats of `shipshape version`.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum VersionOutput {
    /// For people
    #[default]
    Text,
    /// One JSON object
    Json,
}

/// Formats of `shipshape config show`.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum ConfigOutput {
    /// A configuration file
    #[default]
    Toml,
    /// One JSON object
    Json,
}

/// Flags of every subcommand. They override the environment, which overrides the file.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct SettingFlags {
    /// The configuration file [default: ~/.config/shipshape/config.toml if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Directory for the files that this process creates
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data_dir: Option<String>,
    /// The store: sqlite:PATH or postgres://USER@HOST/DATABASE
    #[cfg(feature = "services")]
    #[arg(long, global = true, value_name = "URL")]
    store: Option<String>,
    /// Log filter: a level, or directives such as info,store=debug
    #[arg(long, global = true, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Log format: text or json
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Any setting, such as retention.feed=3d; may be repeated
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Flags of every service.
#[derive(Debug, Args)]
pub(crate) struct ServiceFlags {
    /// Address and port of the health and metrics endpoint
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Settings")]
    health: Option<String>,
}

/// `shipshape machines`.
#[cfg(feature = "agent")]
#[derive(Debug, Subcommand)]
pub(crate) enum MachinesCommand {
    /// Run the controllers of Machines, MachineSets, health checks, links of Nodes and certificate requests
    Controllers(MachineControllerFlags),
    /// Roll out the controllers, keep them, and report their state in the ClusterOperator machine-api
    Operator(MachineOperatorFlags),
}

/// How an API server reaches webhooks.
#[cfg(feature = "agent")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WebhookAccess {
    /// They are not served
    Off,
    /// By the service machine-api-operator-webhook
    Service,
    /// By a URL on this machine, for an API server on this machine
    Loopback,
}

/// Flags of `shipshape machines controllers`.
#[cfg(feature = "agent")]
#[derive(Debug, Args)]
pub(crate) struct MachineControllerFlags {
    #[command(flatten)]
    pub(crate) service: ServiceFlags,
    #[command(flatten)]
    pub(crate) protected_metrics: ProtectedMetricsFlags,
    /// Kubeconfig of the cluster; the service account of the pod if it is not given
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<std::path::PathBuf>,
    /// Namespace of Machines, MachineSets and leases
    #[arg(long, default_value = api::crd::machine::names::NAMESPACE)]
    pub(crate) namespace: String,
    /// Platform of the cluster, Azure or AWS [default: the one of its Infrastructure, else Azure]
    #[arg(long, value_name = "NAME", conflicts_with = "cloud_endpoints")]
    pub(crate) platform: Option<String>,
    /// Azure cloud in which the instances are; the public one if it is not given
    #[arg(long, value_name = "NAME", default_value = "", conflicts_with = "cloud_endpoints")]
    pub(crate) azure_cloud: String,
    /// File endpoints.json of a simulated cloud in which the instances are
    #[arg(long, value_name = "FILE")]
    pub(crate) cloud_endpoints: Option<std::path::PathBuf>,
    /// How the API server reaches the webhooks [default: service in a cluster, off with a kubeconfig]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) webhooks: Option<WebhookAccess>,
    /// Leave authority over Machines and MachineSets to what their status says (MachineAPIMigration)
    #[arg(long)]
    pub(crate) migration: bool,
    /// Deny certificate requests of nodes that can never be approved, instead of leaving them pending
    #[arg(long)]
    pub(crate) deny_unexplained_requests: bool,
}

/// Flags of metrics behind authentication.
#[cfg(feature = "agent")]
#[derive(Debug, Args)]
pub(crate) struct ProtectedMetricsFlags {
    /// Address and port of metrics over TLS, for accounts that may get namespace/metrics [default: the health endpoint, for all]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics: Option<std::net::SocketAddr>,
    /// Directory with the certificate of the metrics in tls.crt and tls.key, which may come later
    #[arg(long, value_name = "DIRECTORY", requires = "metrics")]
    pub(crate) metrics_certificate: Option<std::path::PathBuf>,
}

/// Flags of `shipshape machines operator`.
#[cfg(feature = "agent")]
#[derive(Debug, Args)]
pub(crate) struct MachineOperatorFlags {
    #[command(flatten)]
    pub(crate) service: ServiceFlags,
    #[command(flatten)]
    pub(crate) protected_metrics: ProtectedMetricsFlags,
    /// Kubeconfig of the cluster; the service account of the pod if it is not given
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<std::path::PathBuf>,
    /// Namespace of everything that is rolled out
    #[arg(long, default_value = api::crd::machine::names::NAMESPACE)]
    pub(crate) namespace: String,
    /// Platform of the cluster, such as Azure, if it has no Infrastructure that names one
    #[arg(long, value_name = "NAME")]
    pub(crate) platform: Option<String>,
    /// Version to report [default: the value of RELEASE_VERSION; else this executable's]
    #[arg(long, value_name = "VERSION")]
    pub(crate) release_version: Option<String>,
}

/// Flags of `shipshape termination-handler`.
#[cfg(feature = "agent")]
#[derive(Debug, Args)]
pub(crate) struct TerminationHandlerFlags {
    #[command(flatten)]
    pub(crate) service: ServiceFlags,
    /// Kubeconfig of the cluster; the service account of the pod if it is not given
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<std::path::PathBuf>,
    /// Namespace of Machines. Nothing in it is read or written; every command in a cluster accepts it
    #[arg(long, default_value = api::crd::machine::names::NAMESPACE, hide = true)]
    pub(crate) namespace: String,
    /// The Node on which this runs [default: the value of NODE_NAME]
    #[arg(long, value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// The cloud: aws, azure or gcp [default: by the Node's providerID]
    #[arg(long, value_name = "CLOUD")]
    pub(crate) cloud_provider: Option<machines::termination::CloudProvider>,
    /// Address of the instance metadata, such as that of an emulator
    #[arg(long, value_name = "URL", default_value_t)]
    pub(crate) metadata_address: machines::termination::MetadataAddress,
    /// Seconds between two looks at the metadata
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub(crate) poll_interval_seconds: u16,
}

/// Flags of `shipshape frontend`.
#[cfg(feature = "services")]
#[derive(Debug, Args)]
pub(crate) struct FrontendFlags {
    /// Address and port of the API
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Settings")]
    api: Option<String>,
    #[command(flatten)]
    service: ServiceFlags,
}

/// Flags of `shipshape portal`.
#[cfg(feature = "services")]
#[derive(Debug, Args)]
pub(crate) struct PortalFlags {
    /// Address and port of the portal
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Settings")]
    portal: Option<String>,
    #[command(flatten)]
    service: ServiceFlags,
    #[command(flatten)]
    pub(crate) connect: Connect,
}

/// Flags of `shipshape up`.
#[cfg(feature = "services")]
#[derive(Debug, Args)]
pub(crate) struct UpFlags {
    #[command(flatten)]
    frontend: FrontendFlags,
    /// Address and port of the portal
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Settings")]
    portal: Option<String>,
    /// Serve API and portal over plain HTTP without authentication, on loopback addresses only
    #[arg(long, help_heading = "Settings")]
    insecure: bool,
    /// Run a demonstration with N simulated clusters [default: 12 clusters]
    #[cfg(feature = "sim")]
    #[arg(
        long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = demo::CLUSTERS,
        value_parser = clap::value_parser!(u16).range(1..=demo::CLUSTERS_MAX)
    )]
    demo: Option<u16>,
}

#[cfg(feature = "services")]
impl UpFlags {
    /// Number of clusters of the demonstration, if there is one.
    pub(crate) fn demo(&self) -> Option<u16> {
        #[cfg(feature = "sim")]
        return self.demo;
        #[cfg(not(feature = "sim"))]
        None
    }
}

/// A flag that is a setting: the flag, the key and the value, if it was given.
type SettingFlag<'a> = (&'static str, &'static str, Option<&'a str>);

impl ServiceFlags {
    fn settings(&self) -> Vec<SettingFlag<'_>> {
        vec![("--health", "health.listen", self.health.as_deref())]
    }
}

#[cfg(feature = "services")]
impl FrontendFlags {
    fn settings(&self) -> Vec<SettingFlag<'_>> {
        [self.service.settings(), vec![("--api", "frontend.listen", self.api.as_deref())]].concat()
    }
}

#[cfg(feature = "services")]
impl PortalFlags {
    fn settings(&self) -> Vec<SettingFlag<'_>> {
        [self.service.settings(), vec![("--portal", "portal.listen", self.portal.as_deref())]].concat()
    }
}

#[cfg(feature = "services")]
impl UpFlags {
    fn settings(&self) -> Vec<SettingFlag<'_>> {
        let own = vec![
            ("--portal", "portal.listen", self.portal.as_deref()),
            ("--insecure", "frontend.insecure", self.insecure.then_some("true")),
        ];
        [self.frontend.settings(), own].concat()
    }
}

impl SettingFlags {
    fn settings(&self) -> Vec<SettingFlag<'_>> {
        vec![
            ("--data-dir", "data_dir", self.data_dir.as_deref()),
            #[cfg(feature = "services")]
            ("--store", "store.url", self.store.as_deref()),
            ("--log-level", "log.level", self.log_level.as_deref()),
            ("--log-format", "log.format", self.log_format.as_deref()),
        ]
    }
}

impl Command {
    fn settings(&self) -> Vec<SettingFlag<'_>> {
        match self {
            #[cfg(feature = "services")]
            Command::Up(flags) => flags.settings(),
            #[cfg(feature = "services")]
            Command::Frontend(flags) => flags.settings(),
            #[cfg(feature = "services")]
            Command::Portal(flags) => flags.settings(),
            #[cfg(feature = "services")]
            Command::Actuator(flags)
            | Command::Scheduler(flags)
            | Command::Backend(flags)
            | Command::Monitor(flags) => flags.settings(),
            #[cfg(feature = "agent")]
            Command::Agent(flags) => flags.settings(),
            #[cfg(feature = "agent")]
            Command::Machines(MachinesCommand::Controllers(flags)) => flags.service.settings(),
            #[cfg(feature = "agent")]
            Command::Machines(MachinesCommand::Operator(flags)) => flags.service.settings(),
            #[cfg(feature = "agent")]
            Command::TerminationHandler(flags) => flags.service.settings(),
            _ => Vec::new(),
        }
    }
}

impl Cli {
    /// The flags that are settings. They are checked together with those from other sources.
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let named = [self.settings.settings(), self.command.settings()].concat();
        let named = named.into_iter().filter_map(|(flag, key, value)| {
            value.map(|value| Flag::Named { flag, key, value: value.to_owned() })
        });
        self.settings.set.iter().cloned().map(Flag::Set).chain(named).collect()
    }
}
