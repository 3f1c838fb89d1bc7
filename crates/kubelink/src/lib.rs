//! The one way our services talk to a cluster: a client from a kubeconfig, and verbs that are safe to repeat, can be
//! cancelled at any await and leave a usable state.
//!
//! Every verb observes, decides by a pure function, acts and reports. None retries without a bound of time, none reads the
//! environment or a file, and none holds a task while it waits for an unreachable cluster.

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
