//! The HTTP API. It validates, writes and answers; long work is left to others.
//!
//! A request passes the gate (`gate`): its path is cleaned and put in lower case, it gets an id, its sender is identified;
//! only then anything else is looked at. `wire` reads what is asked and writes what is answered. `admin` holds the
//! routes of the Admin API and `arm` those of the resource manager, one file for each subject.
//!
//! It never runs a task, only ever looks into a cluster when an operator asks (`admin::objects`), and keeps nothing that a
//! restart would miss.

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
