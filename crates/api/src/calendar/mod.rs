//! Calendars: systemd's expressions of recurring times, such as `Mon..Fri *-*-* 02:30` or `*-*~1 22:00`.
//!
//! The grammar is that of systemd 252 (`man systemd.time`, "Calendar events"), of which MIMO's is a part with the same
//! meaning. Where we differ from systemd:
//!
//! - A local time that a zone skips (the gap in spring) is moved to the first instant after the gap, and one that
//!   occurs twice is used at its first occurrence. systemd skips the former.
//! - Years go up to 9999, because MIMO has no limit; systemd stops at 2199.
//! - Steps of seconds end with the minute. systemd 252 carries them over the turn of an hour: after 19:59:59 it goes
//!   from `0/29` to 20:00:29 and misses 20:00:00.
//! - Fractions of seconds are rejected: manifests start at whole seconds.
//! - Zones come from the built-in database, ignoring case, so that every host reads the same.
//!
//! Nothing here reads a clock or does I/O.

mod field;
mod next;
mod parse;
mod union;
mod zone;

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use field::{Field, Place};

pub use parse::CalendarError;
pub use union::{CALENDARS_MAX, Calendars, CalendarsError};
pub use zone::Zone;

/// All seven weekdays; bit 0 is Monday.
const EVERY_WEEKDAY: u8 = 0x7f;

/// A calendar expression: recurring local times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendar {
    /// The days of the week, bit 0 for Monday.
    weekdays: u8,
    years: Field,
    months: Field,
    days: Field,
    /// Whether days are counted from the end of the month, the last being 1.
    from_end: bool,
    hours: Field,
    minutes: Field,
    seconds: Field,
    /// The zone that the expression itself names.
    zone: Option<Zone>,
}

impl Calendar {
    /// Parse an expression. The error names the position and the accepted form.
    pub fn parse(text: &str) -> Result<Calendar, CalendarError> {
        parse::calendar(text)
    }

    /// The zone that the expression itself names, which takes precedence.
    pub fn zone(&self) -> Option<&Zone> {
        self.zone.as_ref()
    }

    /// Whether it names a day of the month that some months do not have.
    pub fn names_a_day_that_some_months_lack(&self) -> bool {
        let (february, short) = (1_u64 << 2, (1_u64 << 4) | (1 << 6) | (1 << 9) | (1 << 11));
        let months = self.months.mask();
        let days = if self.days.is_any() || self.from_end { 0 } else { self.days.mask() };
        let lacks = |months: u64, beyond: u32| months != 0 && days >> (beyond + 1) != 0;
        lacks(months & february, 28) || lacks(months & short, 30)
    }
}

impl FromStr for Calendar {
    type Err = CalendarError;

    fn from_str(text: &str) -> Result<Calendar, CalendarError> {
        Calendar::parse(text)
    }
}

impl fmt::Display for Calendar {
    /// In systemd's normal form, which reads back as the same calendar.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.weekdays != EVERY_WEEKDAY {
            write_weekdays(f, self.weekdays)?;
            f.write_str(" ")?;
        }
        self.years.write(f, Place::Year)?;
        f.write_str("-")?;
        self.months.write(f, Place::Month)?;
        f.write_str(if self.from_end { "~" } else { "-" })?;
        self.days.write(f, Place::Day)?;
        f.write_str(" ")?;
        self.hours.write(f, Place::Hour)?;
        f.write_str(":")?;
        self.minutes.write(f, Place::Minute)?;
        f.write_str(":")?;
        self.seconds.write(f, Place::Second)?;
        match &self.zone {
            Some(zone) => write!(f, " {}", zone.name()),
            None => Ok(()),
        }
    }
}

const WEEKDAYS: [(&str, &str); 7] = [
    ("Mon", "Monday"),
    ("Tue", "Tuesday"),
    ("Wed", "Wednesday"),
    ("Thu", "Thursday"),
    ("Fri", "Friday"),
    ("Sat", "Saturday"),
    ("Sun", "Sunday"),
];

/// Days that follow each other: two as a list, three and more as a range.
fn write_weekdays(f: &mut fmt::Formatter<'_>, weekdays: u8) -> fmt::Result {
    let has = |day: usize| day < 7 && weekdays & (1 << day) != 0;
    let mut separator = "";
    let mut day = 0;
    while day < 7 {
        if !has(day) {
            day += 1;
            continue;
        }
        let mut last = day;
        while has(last + 1) {
            last += 1;
        }
        write!(f, "{separator}{}", WEEKDAYS[day].0)?;
        match last - day {
            0 => {}
            1 => write!(f, ",{}", WEEKDAYS[last].0)?,
            _ => write!(f, "..{}", WEEKDAYS[last].0)?,
        }
        separator = ",";
        day = last + 1;
    }
    Ok(())
}
