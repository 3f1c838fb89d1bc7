//! What tests stand on: real servers, small disks and child processes that can be killed.
//!
//! Everything started here ends with the test process, even when that is killed with `kill -9`: see
//! [`scratch`]. A test that needs a part which this machine lacks says so with [`prerequisites::skip`], so that
//! nothing is left out silently.
//!
//! This crate knows no other crate of the workspace, and nothing but tests and benchmarks may use it.

pub mod azure_sdk;
pub mod chromium;
pub mod kube;
pub mod postgres;
pub mod prerequisites;
pub mod process;
pub mod promtool;
pub mod schemathesis;
pub mod scratch;
pub mod tmpfs;

mod port;
mod random;
mod setting;
mod wait;

pub use wait::wait_until;
