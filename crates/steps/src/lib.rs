//! Plans of named steps, and the engine that walks them: checkpointed, cancellable, resumable.
//!
//! The engine knows names, time limits, error classes and cancellation, and nothing about clouds or clusters. The work that
//! we know how to do on a cluster is beside it, one module for each subject.

pub mod engine;
