//! Admission webhooks: servers outside of the cluster that may change or refuse a write.
//!
//! A verb runs under the lock of the state and never waits, but a webhook has to be waited for. So a verb that reaches
//! a point where webhooks are to be asked looks for their answer in the request's [`Gate`]. If there is none it stops;
//! the question is asked without the lock; and the verb starts again. An answer counts only for exactly the
//! question that was asked: if the object has changed meanwhile, the webhooks are asked again, as on the real server.
//!
//! Writes of the cluster's own controllers have no gate.

mod client;
mod configuration;
mod dispatch;
mod gate;
mod review;

pub(crate) use client::Connections;
pub(crate) use configuration::{TABLES, Webhooks};
pub(crate) use dispatch::ask;
pub(crate) use gate::{Gate, is_pending};
pub(crate) use review::{Operation, Phase, Question};
