//! Tests of the webhooks as a whole; the rules of each platform are tested beside them.

mod cluster;
mod health_check;
mod machine;
mod machine_set;
mod properties;
pub(crate) mod rules;
