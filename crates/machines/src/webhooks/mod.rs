//! Webhooks that default and validate Machines and MachineSets when they are created or changed.
//!
//! The decisions are functions of the objects and of [`PlatformFacts`]: [`defaults`] and [`validate`]. Texts of errors and warnings are
//! those of OpenShift's machine-api-operator where it has the same rule.

mod decide;
mod facts;
mod field;
mod lifecycle_hooks;
mod provider_spec;
mod providers;
mod quantity;
mod selector;
#[cfg(test)]
mod tests;
mod verdict;

pub use decide::{WebhookKind, defaults, validate};
pub use facts::{Architecture, Platform, PlatformFacts};
pub use field::{FieldError, FieldErrorKind};
pub use verdict::{SecretReference, Verdict};
