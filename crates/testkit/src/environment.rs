//! The environment variables that control a test run; all are named `SHIPSHAPE_TEST_…`.

use std::ffi::OsString;

/// The value of a variable, unless it is unset or empty.
#[expect(
    clippy::disallowed_methods,
    reason = "tests have no configuration file: the environment is the only way to pass settings through cargo"
)]
pub(crate) fn get(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Whether a variable is set, and not to 0.
pub(crate) fn is_on(name: &str) -> bool {
    get(name).is_some_and(|value| value != "0")
}
