//! The backend on the simulated cloud: clusters from creation to deletion, subscriptions, every fault at every step, a kill
//! at every call, and real processes that are killed.

#![expect(
    clippy::unwrap_used,
    reason = "clippy takes only functions marked #[test] for tests, not their helpers"
)]

mod call_faults;
mod chaos;
mod cloud_failures;
mod customer;
mod environment;
mod idle;
mod issuers;
mod lifecycle;
mod preemption;
mod removals;
mod secrecy;
mod service;
mod step_faults;
mod subscriptions;
mod unusable_clusters;
