//! Connections to clusters: a client made from a kubeconfig, and verbs that are safe to repeat, can be cancelled at any await and
//! leave a usable state.
//!
//! Every verb observes, decides by a pure function, acts and reports. None retries without a time limit, none reads the
//! environment or a file, and none holds a task while it waits for an unreachable cluster.
//!
//! | Caller | starts with |
//! |---|---|
//! | outside it, with a stored kubeconfig | [`Kubeconfig::parse`] when it is imported, then [`Links::link`] |
//! | inside it | [`Link::from_client`] with the client of its service account |
//!
//! | Writes | Reads and waits |
//! |---|---|
//! | [`apply::apply`], [`apply::apply_one`], [`patch::patch`] | [`Link::get`], [`Link::resolve`] |
//! | [`delete::delete`], [`delete::delete_matching`] | [`wait::wait`] |
//! | [`cordon::cordon`], [`cordon::uncordon`], [`drain::drain`] | [`cordon::cordoned_by`] |
//! | [`rollout::restart`] | [`rollout::rollout`], [`objects::resolve_kind`], [`objects::list`] |
//! | [`job::run_job`], [`job::clean_up`] | |
//! | [`csr::approve`] | [`facts`] |
//!
//! A failed verb returns a [`LinkError`], or an error of its own that contains one, with its class. What kubelink leaves on a
//! cluster for the next process is in `docs/decisions/0005-records-on-clusters.md`.

pub mod apply;
mod bounded;
pub mod certificate;
pub mod cordon;
pub mod csr;
pub mod delete;
pub mod drain;
pub mod error;
pub mod facts;
pub mod job;
pub mod kubeconfig;
pub mod link;
pub mod links;
pub mod names;
pub mod objects;
pub mod patch;
pub mod progress;
pub mod rollout;
pub mod target;
pub mod wait;
mod watched;

pub use error::{Failure, LinkError};
pub use kubeconfig::{AllowedRisks, Kubeconfig, KubeconfigError, KubeconfigRisk};
pub use link::{Link, Timeouts};
pub use links::{Links, LinksLimits};
pub use progress::{ProgressNote, ProgressSink};
pub use target::Target;
