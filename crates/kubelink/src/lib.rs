//! The one way our services talk to a cluster: a client from a kubeconfig, and verbs that are safe to repeat, can be
//! cancelled at any await and leave a usable state.
//!
//! Every verb observes, decides by a pure function, acts and reports. None retries without a bound of time, none reads the
//! environment or a file, and none holds a task while it waits for an unreachable cluster.
//!
//! | Who talks to a cluster | begins with |
//! |---|---|
//! | outside it, with a stored kubeconfig | [`Kubeconfig::parse`] when it is imported, then [`Links::link`] |
//! | inside it | [`Link::over`] with the client of its service account |
//!
//! | To make true | To look and to wait |
//! |---|---|
//! | [`apply::apply`], [`apply::apply_one`], [`patch::patch`] | [`Link::get`], [`Link::resolve`] |
//! | [`delete::delete`], [`delete::delete_matching`] | [`wait::wait`] |
//! | [`cordon::cordon`], [`cordon::uncordon`], [`drain::drain`] | [`cordon::cordoned_by`] |
//! | [`rollout::restart`] | [`rollout::rollout`], [`look::kind`], [`look::objects`] |
//! | [`job::run_job`], [`job::clean_up`] | |
//! | [`csr::approve`] | [`facts`] |
//!
//! What fails says so as a [`LinkError`], or as an error of the verb that holds one, and knows its class. What kubelink
//! leaves on a cluster for whoever takes over is in `docs/decisions/0005-records-on-clusters.md`.

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
pub mod look;
pub mod names;
pub mod patch;
pub mod progress;
pub mod rollout;
pub mod target;
pub mod wait;
mod watched;

pub use error::{Failure, LinkError};
pub use kubeconfig::{Allow, Kubeconfig, KubeconfigError, Risk};
pub use link::{Link, Timeouts};
pub use links::{Links, LinksLimits};
pub use progress::{Note, Progress};
pub use target::Target;
