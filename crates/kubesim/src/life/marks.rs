//! Annotations that tell a simulated node or pod what to do.

/// On a node: `NotReady` (it reports so and does nothing more), `Gone` (its object is removed) or `Ready`.
pub const STATE: &str = "sim.shipshape.dev/state";
/// On a node: `refuse` keeps pods on it from ever stopping.
pub const DRAIN: &str = "sim.shipshape.dev/drain";
/// On a pod: `run`, `complete`, `fail` or `stuck` (it never starts). Pods of Jobs complete, others run, when nothing is said.
pub const OUTCOME: &str = "sim.shipshape.dev/outcome";
/// On a pod: after how many seconds of running the outcome comes.
pub const AFTER: &str = "sim.shipshape.dev/after-seconds";
/// On a pod: how many seconds it takes to stop, its grace at most.
pub const STOP: &str = "sim.shipshape.dev/stop-seconds";
/// On a pod: what it says, a line for each line.
pub const LOG: &str = "sim.shipshape.dev/log";
/// The label of nodes that are simulated.
pub const SIMULATED: &str = "sim.shipshape.dev/simulated";
