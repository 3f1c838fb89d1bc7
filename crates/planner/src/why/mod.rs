//! Why a manifest waits: every reason, who can act on each, and the earliest time at which the manifest can start.

mod decide;

#[cfg(test)]
mod tests;

pub use decide::{ManifestFacts, OtherWork, decide};
