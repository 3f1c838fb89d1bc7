//! Webhooks that default and validate Machines and MachineSets when they are created or changed.
//!
//! The decisions are functions of the objects and of [`PlatformFacts`]: [`defaults`] and [`validate`]. Texts of errors and warnings are
//! those of OpenShift's machine-api-operator where it has the same rule.
//!
//! [`run`] serves them to the API server over TLS, registers them, and renews their certificates so that no request fails
//! meanwhile. The registration has failurePolicy `Ignore`: without a running process objects are admitted unchecked.

mod certificates;
pub(crate) mod cluster_facts;
mod decide;
mod facts;
mod field;
mod handler;
mod lifecycle_hooks;
mod provider_spec;
mod providers;
mod quantity;
pub(crate) mod registration;
mod review;
mod selector;
mod server;
#[cfg(test)]
mod tests;
mod verdict;

pub use certificates::CertificatePolicy;
pub use decide::{WebhookKind, defaults, validate};
pub use facts::{Architecture, Platform, PlatformFacts};
pub use field::{FieldError, FieldErrorKind};
pub use registration::WebhookEndpoint;
pub use server::{CertificateSource, WebhookConfig, Webhooks, WebhooksError, run};
pub use verdict::{SecretReference, Verdict};
