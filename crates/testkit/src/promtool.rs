//! Prometheus's promtool, which checks alerts and plays them through.

use std::path::PathBuf;

use crate::setting;

/// Why a test that needs it is skipped.
pub const MISSING: &str = "no promtool was found; tools/setup fetches it";

/// Where it is: named by `SHIPSHAPE_TEST_PROMTOOL`, on `PATH`, or where `tools/setup` keeps it.
pub fn find() -> Option<PathBuf> {
    if let Some(named) = setting::get("SHIPSHAPE_TEST_PROMTOOL") {
        return Some(named.into());
    }
    let on_path = setting::get("PATH").and_then(|path| {
        std::env::split_paths(&path).map(|directory| directory.join("promtool")).find(|it| it.is_file())
    });
    let kept = || {
        let cache = setting::get("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| setting::get("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
        Some(cache.join("shipshape/promtool/promtool")).filter(|it| it.is_file())
    };
    on_path.or_else(kept)
}
