//! The ARM API: creation, update and deletion of clusters, their operations, installable versions, and subscriptions.
//!
//! The server accepts a long-running change at once, with an operation to poll ([`OperationHandle`]). The operation continues
//! on the server whether or not a client polls it, and can be polled again by its id.

mod clusters;
mod operations;
mod subscriptions;
mod versions;

pub use clusters::{AcceptedChange, Credentials};
pub use operations::{OperationHandle, OperationPoll};
