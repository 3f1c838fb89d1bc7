//! Schemathesis, which reads the OpenAPI description of an API and sends requests that it allows, and some that it does not.

use std::path::PathBuf;

use crate::tools;

/// Why a test that needs it is skipped.
pub const MISSING: &str = "no schemathesis was found; tools/setup installs it";

/// The program: named by `SHIPSHAPE_TEST_SCHEMATHESIS`, or installed by `tools/setup`.
pub fn find() -> Option<PathBuf> {
    tools::named("SHIPSHAPE_TEST_SCHEMATHESIS")
        .or_else(|| tools::newest_cached("schemathesis-", "bin/schemathesis"))
}
