//! Controllers and webhooks inside a cluster that own its machines, compatible with OpenShift's machine API.

pub mod webhooks;
