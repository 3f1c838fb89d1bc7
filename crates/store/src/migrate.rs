//! Migrations: numbered, forward only, each applied once and stored with its checksum. This module decides for both
//! engines what a database needs; the engines apply it.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::open::{Migrate, OpenError};

/// One migration of the schema.
#[derive(Debug)]
pub(crate) struct Migration {
    pub(crate) number: i64,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// A migration of one engine that is one file, named by its number and name.
macro_rules! migration {
    ($engine:literal, $number:literal, $name:literal) => {
        $crate::migrate::Migration {
            number: $number,
            name: $name,
            sql: include_str!(concat!("../../migrations/", $engine, "/000", $number, "_", $name, ".sql")),
        }
    };
}
pub(crate) use migration;

impl Migration {
    /// Checksum by which a changed text is detected.
    pub(crate) fn checksum(&self) -> String {
        hex(&Sha256::digest(self.sql.as_bytes()))
    }
}

/// A migration that was applied to a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) number: i64,
    pub(crate) checksum: String,
}

/// Decision about a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    UpToDate,
    /// Apply all migrations behind this number.
    Apply {
        from: i64,
    },
}

/// Decides what a database needs. A schema one version newer than known is tolerated: two successive releases work on
/// one schema, so that processes can be upgraded one by one.
pub(crate) fn plan(
    place: &str,
    applied: &[Applied],
    known: &[Migration],
    migrate: Migrate,
) -> Result<Plan, OpenError> {
    let newest = known.last().map_or(0, |it| it.number);
    let found = applied.iter().map(|it| it.number).max().unwrap_or(0);
    if found > newest + 1 {
        return Err(OpenError::TooNew { place: place.to_owned(), found, known: newest });
    }
    for migration in known {
        let changed =
            applied.iter().any(|it| it.number == migration.number && it.checksum != migration.checksum());
        if changed {
            return Err(OpenError::Diverged { place: place.to_owned(), number: migration.number });
        }
    }
    if found >= newest {
        return Ok(Plan::UpToDate);
    }
    match migrate {
        Migrate::Auto => Ok(Plan::Apply { from: found }),
        Migrate::Never => Err(OpenError::TooOld { place: place.to_owned(), found, needed: newest }),
    }
}

/// Initial meta values of a new database.
pub(crate) fn first_meta() -> [(&'static str, String); 3] {
    [
        ("generation", "1".to_owned()),
        ("feed_floor", "0-0".to_owned()),
        ("store_id", Uuid::new_v4().to_string()),
    ]
}

/// Formats bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Migration] =
        &[Migration { number: 1, name: "a", sql: "x" }, Migration { number: 2, name: "b", sql: "y" }];

    fn applied(numbers: &[i64]) -> Vec<Applied> {
        let checksum = |number: &i64| {
            KNOWN.iter().find(|it| it.number == *number).map_or("?".to_owned(), Migration::checksum)
        };
        numbers.iter().map(|number| Applied { number: *number, checksum: checksum(number) }).collect()
    }

    #[test]
    fn an_older_schema_is_migrated_only_where_that_is_allowed() {
        assert_eq!(plan("db", &applied(&[]), KNOWN, Migrate::Auto).unwrap(), Plan::Apply { from: 0 });
        assert_eq!(plan("db", &applied(&[1]), KNOWN, Migrate::Auto).unwrap(), Plan::Apply { from: 1 });
        assert_eq!(plan("db", &applied(&[1, 2]), KNOWN, Migrate::Never).unwrap(), Plan::UpToDate);
        let error = plan("db", &applied(&[1]), KNOWN, Migrate::Never).unwrap_err().to_string();
        assert_eq!(error, "store db: its schema is 1, this release needs 2; run `shipshape store migrate`");
    }

    #[test]
    fn one_newer_version_is_tolerated_and_two_are_rejected() {
        assert_eq!(plan("db", &applied(&[1, 2, 3]), KNOWN, Migrate::Auto).unwrap(), Plan::UpToDate);
        let error = plan("db", &applied(&[1, 2, 3, 4]), KNOWN, Migrate::Auto).unwrap_err().to_string();
        assert_eq!(error, "store db: its schema is 4, this release supports up to 2; run a newer release");
    }

    #[test]
    fn a_migration_with_another_text_is_rejected() {
        let mut applied = applied(&[1, 2]);
        applied[0].checksum = "other".to_owned();
        assert!(matches!(
            plan("db", &applied, KNOWN, Migrate::Auto),
            Err(OpenError::Diverged { number: 1, .. })
        ));
    }
}
