//! Guarantees of the store, tested on both engines: one suite, each test once on SQLite and once on PostgreSQL.
//! `SHIPSHAPE_SOAK=1` runs the long variants of the same code.

#![expect(
    clippy::unwrap_used,
    reason = "clippy takes only functions marked #[test] for tests, not what they stand on"
)]

#[macro_use]
mod environment;

// Fixtures.
mod fixture;
mod follower;
mod load;
mod queue_fixture;
mod raw;
mod worker_process;

// The queue.
mod basics;
mod budgets;
mod clocks;
mod cost;
mod crash;
mod exclusion;
mod expiry;
mod model;
mod order;
mod races;
mod side_queues;
mod signals;

// Documents, the feed, the log.
mod audit;
mod audit_attacks;
mod documents;
mod entries;
mod feed;
mod health;
mod manifests;
mod notifications;
mod previous_build;
mod retention;
mod secrets;
mod services;
mod transfer;
mod typed;
mod upgrade;

// Failures.
mod disk;
mod files;
mod outage;
