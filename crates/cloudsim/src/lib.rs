//! A simulated cloud: a small HTTP service that keeps what it holds in a SQLite file of its own, and an installer that brings up
//! simulated clusters in it. Its client is [`SimClient`], which implements the trait [`cloud::Cloud`].
//!
//! ```no_run
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! let service = cloudsim::Service::open(cloudsim::Options::default()).await?;   // bound, not yet serving
//! let cloud = service.client()?;                                               // implements `cloud::Cloud`
//! let faults = service.faults();                                               // what is to go wrong
//! service.serve(tokio_util::sync::CancellationToken::new()).await?;            // until it is asked to stop
//! # Ok(()) }
//! ```
//!
//! # What there is without preparation
//!
//! A subscription that nobody ever mentioned is generous: every provider is registered, every size can be had, a hundred
//! clusters fit into its quotas, and this service may do everything in it. A cluster needs two things that its customer brings:
//! - *a network with two subnets*: `put` a resource group, then a `VirtualNetwork` and two `Subnet`s in it;
//! - *a principal*: [`SimClient::create_principal`] answers a client id and a secret. Made with `Rights::Everywhere` it
//!   may do everything; with `Rights::ByRoles` what `assign_role` gives it. (With workload identity: `put` an `Identity` for
//!   each; identities may do everything unless their tag `rights` is `byRoles`.)
//!
//! What is not as generous is arranged with [`SimClient::arrange`] (quotas, restrictions, providers, features, locks, claims)
//! and [`SimClient::deny`].
//!
//! # How it behaves
//!
//! - Changes are accepted at once and take their time: the state of a resource at any moment follows from when its change was
//!   accepted, the seed and the pace. Nothing waits for anything, and a service that was killed goes on where it was. A pace of
//!   1 is about that of a real cloud (a minute for a machine, half an hour for an installation), 0 is at once.
//! - A resource in a missing group, or with a reference to something missing, is `NotFound`; what is used by something else is
//!   `InUse` until that has gone, and so is what is being deleted. A group goes with all that it holds, unless something outside uses it:
//!   a security group that is still on a subnet, a load balancer that an endpoint leads to.
//! - A put with a token that was used for another request is a `Conflict`; and so is one whose resource has been removed
//!   since, because the client that repeats it has missed the deletion.
//! - Machines that are stopped or removed take their nodes with them ([`install`](self#installations)).
//!
//! # Installations
//!
//! [`SimInstaller`] expects the group, the subnets and the internal load balancer to be there. It makes the machines
//! `INFRA-bootstrap`, `INFRA-master-N` and `INFRA-POOL-LOCATIONZONE-XXXXX`, each with a disk `MACHINE_OSDisk`, in the managed
//! group, puts masters and bootstrap behind the load balancer, and starts a [`kubesim`] cluster whose nodes are named
//! as the machines are. Stages follow in the order of [`api::install::InstallStage`]; `api_url` and the credentials are there from
//! `ApiServer` on. The bootstrap machine stays: the client that ordered removes it with its disk. A failed installation stays as it
//! is until it is removed.
//!
//! A machine that somebody else creates in the managed group, and whose user data refers to
//! `https://api-int.DOMAIN:22623/config/POOL`, boots into the cluster: it requests a client certificate as the node bootstrapper;
//! when somebody approves it, the node appears with the machine's provider id and address, and requests a serving certificate. Its node is not
//! ready while the machine is stopped, impaired or gone, and stays until somebody deletes it.
//!
//! After that, the cluster is kept plausible: a changed serving certificate (`APIServer/cluster`, `IngressController/default`
//! and the secrets they name) makes the operator concerned progress and settle, a `desiredUpdate` of `ClusterVersion/version`
//! is carried out after a while.
//!
//! # Files
//!
//! In [`Options::directory`]: `cloud.db`, `lock`, `token`, `url` (of the service that runs there last) and a directory for each cluster
//! below `clusters/`. Without a directory everything is in memory.

mod arm;
mod blob;
mod call_context;
mod cidr;
mod client;
mod cloud_metadata;
mod database;
mod endpoints;
mod entra;
mod failure;
mod fault_injection;
mod faults;
mod http;
mod identities;
mod install;
mod keyvault;
mod listeners;
mod metadata;
pub mod protocol;
mod providers;
mod secrets;
mod seed;
mod service;
pub mod settings;
mod simulator;
mod sizes;

pub use client::{SimClient, SimClientError, SimInstaller};
pub use endpoints::Endpoints;
pub use faults::{CloudFault, FaultRule, FaultTiming, Faults, UnknownVerb};
pub use providers::ResourceProviders;
pub use service::{ImageRegistry, OpenError, Options, Payload, Runtimes, ServeError, Service};
