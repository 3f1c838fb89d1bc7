//! Prometheus's promtool, which checks and tests alert rules.

use std::path::PathBuf;

use crate::tools;

/// Why a test that needs it is skipped.
pub const MISSING: &str = "no promtool was found; tools/setup fetches it";

/// The program: named by `SHIPSHAPE_TEST_PROMTOOL`, on `PATH`, or installed by `tools/setup`.
pub fn find() -> Option<PathBuf> {
    tools::named("SHIPSHAPE_TEST_PROMTOOL")
        .or_else(|| tools::on_path("promtool"))
        .or_else(|| tools::cached("promtool/promtool"))
}
