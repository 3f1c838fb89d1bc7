//! Custom resources, and the definitions with which they are installed.
//!
//! A resource is a struct of Rust; its schema follows from the struct and the documentation of its fields, which `kubectl explain`
//! shows. `deploy/crds` has the definitions as YAML; a test keeps them fresh. Types are lenient where an API server may hold what
//! this release does not know: an unknown value of an enum is kept, so that one object cannot stop the watch of a kind.

mod definition;
pub mod machine;
mod resource;
mod schema;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// All definitions of custom resources that Shipshape installs, in the order in which they are installed.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    machine::definitions()
}

#[cfg(test)]
mod tests;
