//! What some tests need of the machine, and some machines lack.
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
//! `cargo test` cannot report that a test skipped itself and counts it as passed. So every skip is also written to
//! the file that `SHIPSHAPE_TEST_SKIPPED` names, from which `tools/test` corrects the count; and
//! `SHIPSHAPE_TEST_REFUSE_SKIPS=1` (CI) turns every skip into a failure.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::{environment, tools};

/// The binaries of a PostgreSQL server, or a running one; see [`crate::postgres`].
pub const POSTGRESQL: &str = "postgresql";
/// A kube-apiserver with etcd and kubectl; see [`crate::kube`].
pub const KUBERNETES: &str = "kubernetes";
/// A kube-controller-manager and a kube-scheduler, which other builds may lack.
pub const KUBERNETES_CONTROLLERS: &str = "kubernetes-controllers";
/// Prometheus's promtool; see [`crate::promtool`].
pub const PROMTOOL: &str = "promtool";
/// The API tester Schemathesis; see [`crate::schemathesis`].
pub const SCHEMATHESIS: &str = "schemathesis";
/// The public Python SDK of customers; see [`crate::azure_sdk`].
pub const AZURE_SDK: &str = "azure-sdk";
/// The server of moto, which is Amazon's services for tests; see [`crate::moto`].
pub const MOTO: &str = "moto";
/// Debian's Chromium with its driver and axe-core; see [`crate::chromium`].
pub const CHROMIUM: &str = "chromium";
/// The right to mount a small tmpfs; see [`crate::tmpfs`].
pub const SMALL_DISK: &str = "small-disk";
/// The program systemd-analyze, which evaluates calendar expressions; see [`is_on_path`].
pub const SYSTEMD_ANALYZE: &str = "systemd-analyze";

/// Whether a program is on `PATH`.
pub fn is_on_path(program: &str) -> bool {
    tools::on_path(program).is_some()
}

/// Records that the calling test cannot run because `part` is missing; the test must return after it.
///
/// # Panics
/// When `SHIPSHAPE_TEST_REFUSE_SKIPS=1`, or when the skip cannot be recorded.
pub fn skip(part: &str, why: &str) {
    let skip = Skip::here(part, why);
    if environment::is_on("SHIPSHAPE_TEST_REFUSE_SKIPS") {
        panic!("{}", skip.panic_message());
    }
    println!("{}", skip.message());
    if let Some(file) = environment::get("SHIPSHAPE_TEST_SKIPPED")
        && let Err(error) = skip.append_to(Path::new(&file))
    {
        panic!("{}; failed to record this in {}: {error}", skip.message(), file.display());
    }
}

struct Skip<'a> {
    part: &'a str,
    why: &'a str,
    executable: String,
    test: String,
}

impl<'a> Skip<'a> {
    fn here(part: &'a str, why: &'a str) -> Skip<'a> {
        Skip {
            part,
            why,
            executable: std::env::current_exe().as_deref().map(target_name).unwrap_or_default(),
            // The test harness names each test's thread after the test.
            test: std::thread::current().name().unwrap_or("unnamed").to_owned(),
        }
    }

    fn message(&self) -> String {
        let Skip { part, why, executable, test } = self;
        format!("skipped {executable} {test}: it needs {part} ({why})")
    }

    fn panic_message(&self) -> String {
        let Skip { part, why, .. } = self;
        format!(
            "this test needs {part}, which is missing ({why}), and SHIPSHAPE_TEST_REFUSE_SKIPS=1 forbids to \
             skip it; tools/setup installs what is missing"
        )
    }

    /// Writes one line of four fields in one call: tests of several processes append at the same time.
    fn append_to(&self, file: &Path) -> std::io::Result<()> {
        let fields = [self.part, &self.executable, &self.test, self.why];
        let line = fields.map(|field| field.replace(['\t', '\n'], " ")).join("\t") + "\n";
        OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
    }
}

/// `store` for `…/deps/store-0123456789abcdef`, without cargo's hash.
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
    fn a_skip_is_one_line_with_prerequisite_executable_test_and_reason() {
        let place = ScratchDirectory::new("prerequisites").unwrap();
        let file = place.path().join("skipped");
        Skip::here("a-part", "first\nreason").append_to(&file).unwrap();
        Skip::here("b-part", "second").append_to(&file).unwrap();
        let name = "prerequisites::tests::a_skip_is_one_line_with_prerequisite_executable_test_and_reason";
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            format!("a-part\ttestkit\t{name}\tfirst reason\nb-part\ttestkit\t{name}\tsecond\n")
        );
    }

    #[test]
    fn a_forbidden_skip_names_the_prerequisite() {
        assert!(Skip::here("a-part", "why").panic_message().starts_with("this test needs a-part,"));
    }

    #[test]
    fn only_the_hash_of_cargo_is_removed_from_an_executable() {
        let check = |given: &str, expect: &str| assert_eq!(target_name(Path::new(given)), expect);
        check("/t/debug/deps/store-0123456789abcdef", "store");
        check("/t/debug/deps/two-words-0123456789abcdef", "two-words");
        check("/t/debug/examples/two-words", "two-words");
    }
}
