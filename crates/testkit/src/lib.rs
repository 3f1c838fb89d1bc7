//! The foundation of tests: real servers, small disks and child processes that can be killed.
//!
//! Everything started here ends with the test process, even if that is killed with `kill -9`: see [`scratch`]. A test
//! that needs something which this machine lacks reports it with [`prerequisites::skip`], so that no test is left out
//! silently.
//!
//! This crate depends on no other crate of the workspace, and only tests and benchmarks may use it.

pub mod azure_sdk;
pub mod chromium;
pub mod kube;
pub mod moto;
pub mod postgres;
pub mod prerequisites;
pub mod process;
pub mod promtool;
pub mod schemathesis;
pub mod scratch;
pub mod tmpfs;

mod environment;
mod port;
mod random;
mod tools;
mod wait;

pub use wait::wait_until;
