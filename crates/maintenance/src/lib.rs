//! The services of maintenance: the scheduler makes manifests, the actuator works them.

pub mod actuator;
pub mod scheduler;
pub mod tasks;
pub mod trial;
