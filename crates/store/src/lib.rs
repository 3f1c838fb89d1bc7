//! Documents in SQLite or PostgreSQL: compare-and-swap, sealed secrets, one queue with a lane for each cluster,
//! budgets, a change feed, an audit log. All durable state of the services is in it.
//!
//! [`Store`] writes, [`Reader`] only reads. Services use the typed layer (`store.clusters()`, `store.manifests()`…)
//! and never write SQL. Both engines give the same guarantees and pass the same conformance tests.

mod audit;
mod check;
mod completion;
mod document;
mod engine;
mod entries;
mod error;
mod feed;
pub mod housekeeping;
mod instant;
mod keyring;
mod merge;
mod migrate;
mod notify;
mod open;
mod postgres;
mod records;
mod registry;
mod rotate;
mod sqlite;
mod store;
mod transaction;
mod transfer;
mod typed;
mod work;

pub use audit::{AuditVerification, ChainHead};
pub use check::Finding;
pub use completion::PreparedCompletion;
pub use document::{BODY_BYTES_MAX, DocumentQuery, Etag, KEY_BYTES_MAX, PAGE_MAX, StoredDocument};
pub use engine::{AuditPosition, AuditQuery, AuditRow};
pub use entries::{ENTRIES_MAX, ENTRY_BYTES_MAX};
pub use error::{RequiredState, StoreError};
pub use feed::{Change, FEED_PAGE_MAX, FeedBatch, FeedError, FeedFollower, FeedPage, Position, Subject};
pub use keyring::{KeyFileError, Keyring, SealedSecret};
pub use notify::{Notifications, Topic};
pub use open::{FaultInjector, FaultPoint, Location, Migrate, OpenError, Options, Schema, WriteMode};
pub use records::{HealthEvent, HealthSample, Retention};
pub use registry::{BUCKETS, PoolView, WorkerRegistry};
pub use rotate::KeyRotation;
pub use store::{AuditWriter, HealthWriter, Reader, Store};
pub use transaction::{CommitResult, Transaction};
pub use transfer::TransferCounts;
pub use typed::{
    AuditContext, BillingRecords, CancelOutcome, ClusterOutcome, Clusters, Collection, DesiredState,
    Documents, EnsureOutcome, KUBECONFIG, ListOptions, ManifestView, Manifests, OperationView, Operations,
    Page, PageToken, PendingManifests, Secrets, Subscriptions, VersionedDocument, WorkSummary,
};
pub use work::{
    Budget, CLAIM_MAX, ClaimedWork, CompleteAndClaimResult, Completion, CompletionOutcome, ENQUEUE_MAX,
    LEASE, LaneView, NewWork, QueueView, RENEWAL, Release, RenewedLease, SAFETY_POLL, SELF_STOP, Signals,
    SweepProgress, TAKE_OVER_MAX, WorkLease, WorkView, holds_lane,
};
