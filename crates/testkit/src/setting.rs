//! The environment variables with which a test run is steered; all are named `SHIPSHAPE_TEST_…`.

use std::ffi::OsString;

/// The value of a variable, unless it is unset or empty.
#[expect(
    clippy::disallowed_methods,
    reason = "tests have no configuration file: the environment is how cargo lets a test run be steered"
)]
pub(crate) fn get(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Whether a variable is set to something that means yes.
pub(crate) fn is_on(name: &str) -> bool {
    get(name).is_some_and(|value| value != "0")
}
