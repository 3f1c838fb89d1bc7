//! Certificates of vaults and identities.

pub(crate) mod authority;
pub(crate) mod issue;
