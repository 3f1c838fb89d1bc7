//! The backend as a whole, on the simulated cloud: clusters from order to removal, subscriptions, every mishap at every step, and
//! real processes that are killed.

#![expect(
    clippy::unwrap_used,
    reason = "clippy takes only functions marked #[test] for tests, not what they stand on"
)]

mod astray;
mod chaos;
mod customer;
mod life;
mod mishaps;
mod preemption;
mod removals;
mod service;
mod site;
mod subscriptions;
