//! The public Python SDK `azure-mgmt-redhatopenshift` in a virtual environment, as customers use it.

use std::path::PathBuf;

use crate::tools;

/// Why a test that needs it is skipped.
pub const MISSING: &str = "no Python with azure-mgmt-redhatopenshift was found; tools/setup installs it";

/// The Python with the SDK: named by `SHIPSHAPE_TEST_AZURE_SDK`, or installed by `tools/setup`.
pub fn python() -> Option<PathBuf> {
    tools::named("SHIPSHAPE_TEST_AZURE_SDK").or_else(|| tools::newest_cached("azure-sdk-", "bin/python"))
}
