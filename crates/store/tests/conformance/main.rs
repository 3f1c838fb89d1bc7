//! The promises of the store, asked of both engines: one suite, each test once on SQLite and once on PostgreSQL.
//! `SHIPSHAPE_SOAK=1` runs the long variants of the same code.

#![expect(
    clippy::unwrap_used,
    reason = "clippy takes only functions marked #[test] for tests, not what they stand on"
)]

#[macro_use]
mod bed;

// What tests stand on.
mod crew;
mod fixture;
mod follower;
mod hands;
mod load;
mod raw;

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
mod build_before;
mod documents;
mod entries;
mod feed;
mod manifests;
mod retention;
mod secrets;
mod spine;
mod transfer;
mod typed;
mod upgrade;
mod wake;

// Bad days.
mod disk;
mod files;
mod outage;
