//! Types that cross a process: documents, states, ids, API forms, the clock, error classes.
//!
//! This crate does no I/O and depends on no other crate of the workspace.

pub mod actor;
pub mod admin;
pub mod audit;
pub mod calendar;
pub mod cidr;
pub mod clock;
pub mod crd;
pub mod doc;
pub mod domain;
pub mod duration;
pub mod error;
pub mod health;
pub mod install;
pub mod queue;
pub mod resource_id;
pub mod rest;
pub mod secret;
pub mod selector;
pub mod work;
