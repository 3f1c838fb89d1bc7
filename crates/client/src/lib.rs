//! The typed client of the Admin API and of the resource manager's contract: what the command line and the portal speak through.
//!
//! A [`Client`] speaks with a server over HTTPS, as a [`Context`] says, or with a router in its own process. There is one
//! method for each route, in the words of [`api::admin`] and [`api::rest`]. Lists are streams that fetch their pages as they are read;
//! events are a stream that takes itself up again where it broke. Every exchange has a time limit.

mod arm;
mod budgets;
mod clusters;
mod context;
mod error;
mod events;
mod exchange;
mod fleet;
mod manifests;
mod pages;
mod path;
mod plan;
mod schedules;
mod tasks;
#[cfg(test)]
mod tests;
mod transport;

pub use arm::{Accepted, Begun, Credentials, Look};
pub use context::{Context, ContextError, Credential, Pem, is_plain_http, is_protected};
pub use error::{ClientError, Refusal};
pub use events::{Change, Event, Topic};
pub use exchange::{Answer, Client};
pub use fleet::{AuditQuery, ObjectQuery};
pub use manifests::BatchCancelled;
pub use pages::Pages;
pub use plan::PlanQuery;
pub use schedules::PendingWork;
