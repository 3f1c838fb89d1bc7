//! The client side of the command line: commands that speak with a server, contexts that name the servers, and the output of with_age.
//!
//! It knows `api` and `client` and no service. Commands of the simulated cloud are behind the feature `sim`.

pub mod commands;
pub mod contexts;
mod environment;
pub mod output;
pub mod private_file;

pub use environment::Environment;
