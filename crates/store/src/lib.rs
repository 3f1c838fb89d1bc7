//! Documents in SQLite or PostgreSQL: compare-and-swap, sealed secrets, one queue with a lane for each cluster,
//! budgets, a change feed, an audit log. Everything that must survive a crash goes through here.
//!
//! [`Store`] writes, [`Reader`] only reads. Services use the typed layer (`store.clusters()`, `store.manifests()`…)
//! and never write SQL. Both engines give the same guarantees and pass the same conformance tests.

mod audit;
mod check;
mod document;
mod end;
mod engine;
mod entries;
mod error;
mod feed;
pub mod housekeeping;
mod instant;
mod keyring;
mod merge;
mod migrate;
mod open;
mod postgres;
mod records;
mod rotate;
mod sqlite;
mod store;
mod transaction;
mod transfer;
mod typed;
mod wake;
mod work;

pub use audit::{ChainHead, Verified};
pub use check::Finding;
pub use document::{BODY_BYTES_MAX, Etag, KEY_BYTES_MAX, Listing, PAGE_MAX, Stored};
pub use end::End;
pub use engine::{AuditListing, AuditPlace, AuditRow};
pub use entries::{ENTRIES_MAX, ENTRY_BYTES_MAX};
pub use error::StoreError;
pub use feed::{Change, FEED_PAGE_MAX, FeedBatch, FeedError, FeedFollower, FeedPage, Position, Subject};
pub use keyring::{KeyFileError, Keyring, Sealed};
pub use open::{Disturbance, Location, Migrate, Moment, OpenError, Options, Schema, Writing};
pub use records::{HealthSample, Retention};
pub use rotate::Rotation;
pub use store::{AuditWriter, HealthWriter, Reader, Store};
pub use transaction::{Committed, Transaction};
pub use transfer::Counts;
pub use typed::{
    BillingRecords, Brief, By, Cancelled, ClusterEnd, Clusters, Collection, Documents, Ensured, KUBECONFIG,
    ManifestView, Manifests, OperationView, Operations, Page, PageToken, Secrets, Selection, Subscriptions,
    Versioned, Wish,
};
pub use wake::{Topic, Wakeups};
pub use work::{
    Budget, CLAIM_MAX, Claimed, Completion, ENQUEUE_MAX, Fate, Hold, LEASE, LaneView, NewWork, QueueView,
    RENEWAL, Renewed, SAFETY_POLL, SELF_STOP, Signals, TAKE_OVER_MAX, Turn, Walk, WorkView, Yielding,
    holds_lane,
};
