//! The location of the PostgreSQL server programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;

use crate::environment;

/// Debian installs the server programs of each major version in a directory that is not on `PATH`.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The directory with `postgres`, `initdb`, `pg_basebackup` and `psql`.
#[derive(Clone, Debug)]
pub(super) struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// The directory that `SHIPSHAPE_TEST_PG_BIN` names, else that of `pg_config` on `PATH`, else Debian's newest. A
    /// client-only installation does not count.
    pub(super) fn find() -> anyhow::Result<Option<Binaries>> {
        if let Some(directory) = environment::get("SHIPSHAPE_TEST_PG_BIN") {
            let directory = PathBuf::from(directory);
            ensure!(
                has_server(&directory),
                "SHIPSHAPE_TEST_PG_BIN is {}, where there is no postgres and initdb",
                directory.display()
            );
            return Ok(Some(Binaries { directory }));
        }
        let directory = from_pg_config().into_iter().chain(newest(Path::new(DEBIAN))).find(|d| has_server(d));
        Ok(directory.map(|directory| Binaries { directory }))
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

fn has_server(directory: &Path) -> bool {
    ["postgres", "initdb"].iter().all(|program| directory.join(program).is_file())
}

fn from_pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let directory = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(directory.trim()))
}

/// `VERSION/bin` of every version in `parent`, the newest first.
fn newest(parent: &Path) -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = parent
        .read_dir()
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version = path.file_name()?.to_str()?.parse().ok()?;
            Some((version, path.join("bin")))
        })
        .collect();
    found.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    found.into_iter().map(|(_, directory)| directory).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::ScratchDirectory;

    #[test]
    fn the_newest_version_is_the_largest_number() {
        let scratch = ScratchDirectory::new("binaries").unwrap();
        for version in ["9", "15", "13", "common"] {
            std::fs::create_dir(scratch.path().join(version)).unwrap();
        }
        let expect: Vec<PathBuf> = ["15", "13", "9"].map(|v| scratch.path().join(v).join("bin")).into();
        assert_eq!(newest(scratch.path()), expect);
        assert_eq!(newest(&scratch.path().join("missing")), Vec::<PathBuf>::new());
    }
}
