//! Where programs are that `tools/setup` installs.

use std::path::PathBuf;

use crate::environment;

/// The file that the variable `name` names, if it is set.
pub(crate) fn named(name: &str) -> Option<PathBuf> {
    environment::get(name).map(PathBuf::from)
}

/// A program on `PATH`.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = environment::get("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// A file below the cache directory of `tools/setup`.
pub(crate) fn cached(file: &str) -> Option<PathBuf> {
    Some(cache()?.join(file)).filter(|path| path.is_file())
}

/// `file` in the newest of the directories in the cache whose name starts with `prefix`: `tools/setup` installs each
/// version into a directory of its own.
pub(crate) fn newest_cached(prefix: &str, file: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(cache()?).ok()?.filter_map(Result::ok);
    let versions = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    versions.map(|entry| entry.path().join(file)).filter(|path| path.is_file()).max()
}

fn cache() -> Option<PathBuf> {
    let cache = named("XDG_CACHE_HOME").or_else(|| named("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("shipshape"))
}
