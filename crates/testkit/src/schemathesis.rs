//! Schemathesis, which reads the description of an HTTP API and asks everything that it allows, and some that it does not.

use std::path::PathBuf;

use crate::setting;

/// Why a test that needs it is skipped.
pub const MISSING: &str = "no schemathesis was found; tools/setup installs it";

/// Where it is: named by `SHIPSHAPE_TEST_SCHEMATHESIS`, or where `tools/setup` keeps it.
pub fn find() -> Option<PathBuf> {
    if let Some(named) = setting::get("SHIPSHAPE_TEST_SCHEMATHESIS") {
        return Some(named.into());
    }
    let cache = setting::get("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| setting::get("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    // Which version tools/setup installs is its own affair; whichever it kept last is taken.
    let kept = std::fs::read_dir(cache.join("shipshape")).ok()?.filter_map(Result::ok);
    let named = kept.filter(|entry| entry.file_name().to_string_lossy().starts_with("schemathesis-"));
    let mut found: Vec<PathBuf> =
        named.map(|entry| entry.path().join("bin/schemathesis")).filter(|it| it.is_file()).collect();
    found.sort();
    found.pop()
}
