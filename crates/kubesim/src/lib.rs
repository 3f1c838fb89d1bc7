//! A small Kubernetes API server in memory, many clusters in one process. It serves what our own code, our README and
//! everyday kubectl ask of it; anything else is refused with a clear Status, never answered wrongly.

pub mod apply;
pub mod patch;
pub mod schema;
