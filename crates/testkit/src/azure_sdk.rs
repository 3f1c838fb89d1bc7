//! The public Python SDK `azure-mgmt-redhatopenshift` in an environment of its own, as customers have it.

use std::path::PathBuf;

use crate::setting;

/// Why a test that needs it is skipped.
pub const MISSING: &str = "no Python with azure-mgmt-redhatopenshift was found; tools/setup installs it";

/// The Python that has it: named by `SHIPSHAPE_TEST_AZURE_SDK`, or where `tools/setup` keeps it.
pub fn python() -> Option<PathBuf> {
    if let Some(named) = setting::get("SHIPSHAPE_TEST_AZURE_SDK") {
        return Some(named.into());
    }
    let cache = setting::get("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| setting::get("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    // Which version tools/setup installs is its own affair; whichever it kept last is taken.
    let kept = std::fs::read_dir(cache.join("shipshape")).ok()?.filter_map(Result::ok);
    let named = kept.filter(|entry| entry.file_name().to_string_lossy().starts_with("azure-sdk-"));
    let mut found: Vec<PathBuf> =
        named.map(|entry| entry.path().join("bin/python")).filter(|it| it.is_file()).collect();
    found.sort();
    found.pop()
}
