//! The client side of the command line: commands that call a server, contexts that name servers, and output.
//!
//! It depends on `api` and `client` and on no service. Commands of the simulated cloud are behind the feature `sim`.

pub mod commands;
pub mod contexts;
mod environment;
pub mod output;
pub mod private_file;

pub use environment::Environment;
