//! Typed client of the Admin and ARM APIs, used by the command line and the portal.
//!
//! A [`Client`] sends requests over HTTPS to the server of a [`Context`], or to a router in its own process. There is one
//! method for each route, with the types of [`api::admin`] and [`api::rest`]. Lists are streams that fetch their pages on demand;
//! the event stream reconnects and resumes after the last event. Every request has a timeout.

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

pub use arm::{AcceptedChange, Credentials, OperationHandle, OperationPoll};
pub use context::{Context, ContextError, Credential, Pem, is_plain_http, is_secure_or_local};
pub use error::{ClientError, ErrorResponse};
pub use events::{Change, Event, Topic};
pub use exchange::{Client, TypedResponse};
pub use fleet::{AuditQuery, ObjectQuery};
pub use manifests::BatchCancelResult;
pub use pages::Pages;
pub use plan::PlanQuery;
pub use schedules::PendingWork;
