//! The one way to run a controller inside a cluster.
//!
//! | To | use |
//! |---|---|
//! | connect, inside a cluster or from outside | [`connect`] |
//! | watch a kind once for all who need it | [`Informers`], [`Informer`], [`Index`], [`Selection`] |
//! | reconcile its objects | [`Controller`], [`Action`], [`Backoff`], [`RetryRate`], [`Pause`] |
//! | run only while a custom resource is served | [`Informers::run_while_served`]; with those that are, [`Informers::run_with_served`] |
//! | be the only one who acts | [`LeaderElection`] |
//! | write | [`FieldManager`], [`Precondition`], [`conditions`] |
//! | tell people what happened | [`EventRecorder`] |
//! | be observed | [`Observability`] with [`Health`] and [`Metrics`] |
//! | test that it survives its end at every write | [`testing`] |
//!
//! A reconcile looks at caches, decides by a pure function, acts and reports. Caches know what this process wrote at once
//! ([`Informer::remember`]), so that it never acts twice for the same cause. It can be dropped at any await; nothing of what it has to
//! do is only in memory. `docs/how-to/add-a-controller.md` has an example.

use std::sync::{Mutex, MutexGuard, PoisonError};

mod change;
pub mod conditions;
mod connection;
mod error;
mod events;
mod health;
mod informer;
mod informers;
mod key;
mod leader;
mod limits;
mod metrics;
mod pause;
mod queue;
mod run;
mod served;
pub mod testing;
mod write;

pub use change::{Change, Object};
pub use connection::{ConnectError, Connection, connect};
pub use error::RequestError;
pub use events::{EventRecorder, EventType, RecordedEvent};
pub use health::{Health, Heartbeat, Unhealthy};
pub use informer::{Index, Informer, ObserverPanicked, Selection, Subscription};
pub use informers::{Informers, InformersError, Observability};
pub use key::ObjectKey;
pub use leader::{LeaderElection, LeaseDurations};
pub use metrics::Metrics;
pub use pause::Pause;
pub use queue::{Action, Backoff, RetryRate};
pub use run::Controller;
pub use write::{FieldManager, Precondition};

/// Locks a mutex whose content is consistent at every panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
