//! A real browser: Debian's Chromium with its driver, and axe-core, which knows the rules of accessible pages.

use std::path::PathBuf;

use crate::prerequisites;
use crate::setting;

/// Why a test that needs it is skipped.
pub const MISSING: &str = "no chromium with chromedriver and axe-core was found; tools/setup installs them";

/// The browser and what drives it.
#[derive(Debug, Clone)]
pub struct Chromium {
    /// The browser.
    pub browser: PathBuf,
    /// Its driver, which speaks WebDriver.
    pub driver: PathBuf,
    /// The script of axe-core.
    pub axe: PathBuf,
}

/// Where they are: the programs on PATH, the script named by `SHIPSHAPE_TEST_AXE` or where `tools/setup` keeps it.
pub fn find() -> Option<Chromium> {
    let on_path = |program: &str| {
        let path = setting::get("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
    };
    Some(Chromium {
        browser: on_path(prerequisites::CHROMIUM)?,
        driver: on_path("chromedriver")?,
        axe: axe()?,
    })
}

fn axe() -> Option<PathBuf> {
    if let Some(named) = setting::get("SHIPSHAPE_TEST_AXE") {
        return Some(named.into());
    }
    let cache = setting::get("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| setting::get("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    // Which version tools/setup installs is its own affair; whichever it kept last is taken.
    let kept = std::fs::read_dir(cache.join("shipshape")).ok()?.filter_map(Result::ok);
    let named = kept.filter(|entry| entry.file_name().to_string_lossy().starts_with("axe-core-"));
    let mut found: Vec<PathBuf> = named
        .map(|entry| entry.path().join("node_modules/axe-core/axe.min.js"))
        .filter(|it| it.is_file())
        .collect();
    found.sort();
    found.pop()
}
