//! One visit of a cluster: whether its API server answers, then the collectors.

mod fetch;
#[cfg(test)]
mod hostile_tests;
mod objects;
mod probe;

pub(crate) use fetch::{FetchError, Fetcher, Listed};
pub(crate) use objects::{Condition, Labels, Metadata, Versioned};
pub(crate) use probe::{Probe, probe};
