//! The HTTP API. It validates requests, writes documents and responds; backend and maintenance do the long work.
//!
//! Every request passes the pipeline (`pipeline`), which normalizes the path, assigns ids and authenticates the sender before anything
//! else. `wire` reads requests and writes responses. `admin` has the routes of the Admin API and `arm` those of the resource manager,
//! one file for each subject; neither depends on the other. `router` and `openapi` combine them.
//!
//! It never runs a task, connects to a cluster only when an operator requests its objects (`admin::objects`), and holds no state that
//! a restart would lose.

mod admin;
mod arm;
mod auth;
mod cluster_form;
mod config;
mod install_catalog;
mod metrics;
mod names;
mod openapi;
mod params;
mod pipeline;
mod qos;
mod router;
mod seed;
mod server;
mod wire;

pub use auth::{Identity, Role};
pub use config::{ArmCallers, ClientRule, Config, Oidc};
pub use metrics::Metrics;
pub use openapi::openapi;
pub use seed::seed_defaults;
pub use server::{CloudRoles, Deps, LocalService, Server, ServerError};
