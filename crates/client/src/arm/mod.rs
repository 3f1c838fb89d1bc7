//! The resource manager's contract, as customers speak it: clusters that are made, changed and removed, the operations that do so,
//! the versions that can be installed, and subscriptions.
//!
//! What takes long is answered at once, with an operation to follow ([`Begun`]). Whoever follows it may stop at any moment: the
//! operation goes on without anybody looking, and can be followed again by its id.

mod clusters;
mod operations;
mod subscriptions;
mod versions;

pub use clusters::{Accepted, Credentials};
pub use operations::{Begun, Look};
