//! Annotations that set the behaviour of a simulated node or pod, and the label that marks a node as simulated.

/// On a node: `Ready`, `NotReady` (the node reports NotReady once and then stops) or `Gone` (its object is removed).
pub const STATE: &str = "sim.shipshape.dev/state";
/// On a node: with `refuse`, pods on it never stop.
pub const DRAIN: &str = "sim.shipshape.dev/drain";
/// On a pod: `run`, `complete`, `fail` or `stuck` (it never starts). By default the pods of Jobs complete and others run.
pub const OUTCOME: &str = "sim.shipshape.dev/outcome";
/// On a pod: seconds of running until its outcome.
pub const OUTCOME_AFTER_SECONDS: &str = "sim.shipshape.dev/after-seconds";
/// On a pod: seconds until it has stopped, limited by its grace period.
pub const STOP_SECONDS: &str = "sim.shipshape.dev/stop-seconds";
/// On a pod: text that its containers log when they start.
pub const LOG: &str = "sim.shipshape.dev/log";
/// The label of simulated nodes.
pub const SIMULATED_LABEL: &str = "sim.shipshape.dev/simulated";
/// On a node: its address, as real kubelets note it for the cloud. Without it the node gets an address for documentation.
pub const NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";
