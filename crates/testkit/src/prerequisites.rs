//! Parts of a machine that some tests need and some machines lack.
//!
//! ```no_run
//! # use testkit::{prerequisites, postgres};
//! fn a_test() {
//!     let Some(server) = postgres::shared() else {
//!         return prerequisites::skip(prerequisites::POSTGRESQL, "no server binaries were found");
//!     };
//!     // …
//! }
//! ```
//!
//! `cargo test` has no word for "skipped while running" and counts such a test as passed. So every skip is
//! also written to the file that `SHIPSHAPE_TEST_SKIPPED` names, from which `tools/test` corrects the
//! count; and `SHIPSHAPE_TEST_REFUSE_SKIPS=1` (CI) turns every skip into a failure.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::setting;

/// The binaries of a PostgreSQL server, or a running one; see [`crate::postgres`].
pub const POSTGRESQL: &str = "postgresql";
/// A kube-apiserver with etcd and kubectl; see [`crate::kube`].
pub const KUBERNETES: &str = "kubernetes";
/// A kube-controller-manager and a kube-scheduler beside them, which other people's builds may lack.
pub const KUBERNETES_CONTROLLERS: &str = "kubernetes-controllers";
/// Prometheus's tool that checks alerts; see [`crate::promtool`].
pub const PROMTOOL: &str = "promtool";
/// What tests an HTTP API by its description; see [`crate::schemathesis`].
pub const SCHEMATHESIS: &str = "schemathesis";
/// The public Python SDK that customers speak with; see [`crate::azure_sdk`].
pub const AZURE_SDK: &str = "azure-sdk";
/// Debian's Chromium with its driver and axe-core; see [`crate::chromium`].
pub const CHROMIUM: &str = "chromium";
/// The right to mount a small tmpfs; see [`crate::tmpfs`].
pub const SMALL_DISK: &str = "small-disk";
/// systemd's own reader of calendar expressions, on PATH; a program by its name, see [`is_on_path`].
pub const SYSTEMD_ANALYZE: &str = "systemd-analyze";

/// Whether a part that is a program on PATH, and named like it, is there.
pub fn is_on_path(program: &str) -> bool {
    let path = setting::get("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Says that the calling test cannot run because `part` is missing; the test returns after it.
///
/// # Panics
/// When `SHIPSHAPE_TEST_REFUSE_SKIPS=1`, or when the skip cannot be recorded.
pub fn skip(part: &str, why: &str) {
    let skipped = Skipped::here(part, why);
    if setting::is_on("SHIPSHAPE_TEST_REFUSE_SKIPS") {
        panic!("{}", skipped.refusal());
    }
    println!("{}", skipped.sentence());
    if let Some(file) = setting::get("SHIPSHAPE_TEST_SKIPPED")
        && let Err(error) = skipped.append_to(Path::new(&file))
    {
        panic!("{} and it could not be recorded in {}: {error}", skipped.sentence(), file.display());
    }
}

struct Skipped<'a> {
    part: &'a str,
    why: &'a str,
    executable: String,
    test: String,
}

impl<'a> Skipped<'a> {
    fn here(part: &'a str, why: &'a str) -> Skipped<'a> {
        Skipped {
            part,
            why,
            executable: std::env::current_exe().as_deref().map(target_name).unwrap_or_default(),
            // The test harness names each test's thread after the test.
            test: std::thread::current().name().unwrap_or("unnamed").to_owned(),
        }
    }

    fn sentence(&self) -> String {
        let Skipped { part, why, executable, test } = self;
        format!("skipped {executable} {test}: it needs {part} ({why})")
    }

    fn refusal(&self) -> String {
        let Skipped { part, why, .. } = self;
        format!(
            "this test needs the part {part}, which is missing ({why}), and SHIPSHAPE_TEST_REFUSE_SKIPS=1 \
             refuses to skip it; tools/setup installs what is missing"
        )
    }

    /// One line of four fields, in one write: tests of several processes append at the same time.
    fn append_to(&self, file: &Path) -> std::io::Result<()> {
        let fields = [self.part, &self.executable, &self.test, self.why];
        let line = fields.map(|field| field.replace(['\t', '\n'], " ")).join("\t") + "\n";
        OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
    }
}

/// `store` for `…/deps/store-0123456789abcdef`: cargo's hash says nothing to a reader.
fn target_name(executable: &Path) -> String {
    let stem = PathBuf::from(executable.file_stem().unwrap_or_default()).display().to_string();
    match stem.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            name.to_owned()
        }
        _ => stem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::ScratchDirectory;

    #[test]
    fn a_skip_is_one_line_with_part_executable_test_and_reason() {
        let place = ScratchDirectory::new("parts").unwrap();
        let file = place.path().join("skipped");
        Skipped::here("a-part", "first\nreason").append_to(&file).unwrap();
        Skipped::here("b-part", "second").append_to(&file).unwrap();
        let name = "parts::tests::a_skip_is_one_line_with_part_executable_test_and_reason";
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            format!("a-part\ttestkit\t{name}\tfirst reason\nb-part\ttestkit\t{name}\tsecond\n")
        );
    }

    #[test]
    fn a_refused_skip_names_the_part() {
        assert!(Skipped::here("a-part", "why").refusal().starts_with("this test needs the part a-part,"));
    }

    #[test]
    fn only_the_hash_that_cargo_adds_is_cut_from_an_executable() {
        let check = |given: &str, expect: &str| assert_eq!(target_name(Path::new(given)), expect);
        check("/t/debug/deps/store-0123456789abcdef", "store");
        check("/t/debug/deps/two-words-0123456789abcdef", "two-words");
        check("/t/debug/examples/two-words", "two-words");
    }
}
