//! Names that do not collide with those of concurrent tests.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A number that differs at every call and in every process; std seeds its hashers from the system.
pub(crate) fn number() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Sixteen hexadecimal digits, fit for file and database names.
pub(crate) fn suffix() -> String {
    format!("{:016x}", number())
}
