//! Tells the executable what it was built from. Nothing here may fail a build.
//!
//! The commit comes from `BUILD_COMMIT`, which the release build sets. Asking git instead would rebuild
//! and relink the executable after every commit, even when no source has changed.

use std::process::Command;

#[expect(clippy::disallowed_methods, reason = "a build script gets everything from cargo by variables")]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=BUILD_COMMIT");
    let commit = std::env::var("BUILD_COMMIT").unwrap_or_default();
    println!("cargo::rustc-env=BUILT_COMMIT={}", commit.trim());

    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let asked = Command::new(rustc).arg("--version").output().ok().filter(|output| output.status.success());
    let rustc = asked.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    println!("cargo::rustc-env=BUILT_RUSTC={}", rustc.trim());
}
