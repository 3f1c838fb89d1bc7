//! A real browser: Debian's Chromium with its driver, and axe-core, which checks the accessibility of pages.

use std::path::PathBuf;

use crate::{prerequisites, tools};

/// Why a test that needs it is skipped.
pub const MISSING: &str = "no chromium with chromedriver and axe-core was found; tools/setup installs them";

/// The browser and its driver.
#[derive(Debug, Clone)]
pub struct Chromium {
    /// The browser.
    pub browser: PathBuf,
    /// The WebDriver server of the browser.
    pub driver: PathBuf,
    /// The script of axe-core.
    pub axe: PathBuf,
}

/// The programs on `PATH`, and the script named by `SHIPSHAPE_TEST_AXE` or installed by `tools/setup`.
pub fn find() -> Option<Chromium> {
    Some(Chromium {
        browser: tools::on_path(prerequisites::CHROMIUM)?,
        driver: tools::on_path("chromedriver")?,
        axe: tools::named("SHIPSHAPE_TEST_AXE")
            .or_else(|| tools::newest_cached("axe-core-", "node_modules/axe-core/axe.min.js"))?,
    })
}
