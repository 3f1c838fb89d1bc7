//! Certificates of vaults and identities.

pub(crate) mod issue;
