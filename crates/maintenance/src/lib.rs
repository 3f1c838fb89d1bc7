//! Maintenance services: the scheduler creates manifests, the actuator runs them.

pub mod actuator;
pub mod fixture;
pub mod scheduler;
pub mod tasks;
