//! The portal, with a real frontend and store behind it: by its router, and in a real browser.
#![expect(clippy::unwrap_used, reason = "all of this is a test")]

mod access;
mod actions;
mod browser;
mod fixture;
mod live;
mod objects;
mod oidc;
mod pages;
mod webdriver;
