//! Next occurrence of a calendar.
//!
//! Local time first: the next date, the next time of that day. Then the instant at which a zone has that local time.
//! The way from local time to instants never goes backwards (a skipped time goes to the end of its gap, one that comes
//! twice to its first occurrence), so the first local time that lands behind the given instant is the answer.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};

use super::{Calendar, Place};

impl Calendar {
    /// The first occurrence strictly after `instant`, in the zone that the expression names, or else in `zone`. None when
    /// there is no further one.
    pub fn next_after(&self, instant: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let zone = self.zone.as_ref().map_or(zone, super::Zone::time_zone);
        // Truncated to the whole second, never rounded: half a second before its time a slot has not passed.
        let mut from = zone.to_datetime(instant).with().subsec_nanosecond(0).build().ok()?;
        loop {
            let local = self.local_at_or_after(from.checked_add(1.second()).ok()?)?;
            let found = instant_of(local, zone)?;
            if found > instant {
                return Some(found);
            }
            // In the second pass of an hour that occurs twice: its local times were used in the first.
            from = local;
        }
    }

    /// The first of its local times at or after `from`.
    pub(super) fn local_at_or_after(&self, from: DateTime) -> Option<DateTime> {
        let date = self.date_at_or_after(from.date())?;
        if date == from.date()
            && let Some(time) = self.time_at_or_after(from.time())
        {
            return Some(date.to_datetime(time));
        }
        let date = if date == from.date() { self.date_at_or_after(date.tomorrow().ok()?)? } else { date };
        Some(date.to_datetime(self.time_at_or_after(Time::midnight())?))
    }

    /// The first of its dates at or after `from`.
    pub(super) fn date_at_or_after(&self, from: Date) -> Option<Date> {
        let (months, days) = (self.months.mask(), self.days.mask());
        let mut year = from.year();
        loop {
            let next = self.years.at_or_after(u16::try_from(year).unwrap_or(0), Place::Year)?;
            let next = i16::try_from(next).ok()?;
            let first = if next == from.year() { from.month() } else { 1 };
            for month in first..=12 {
                if months & (1 << month) == 0 {
                    continue;
                }
                let begin = Date::new(next, month, 1).ok()?;
                let mut fitting = days_of(begin, days, self.from_end) & weekdays_of(begin, self.weekdays);
                if next == from.year() && month == from.month() {
                    fitting &= u64::MAX << from.day();
                }
                if fitting != 0 {
                    let day = i8::try_from(fitting.trailing_zeros()).ok()?;
                    return begin.with().day(day).build().ok();
                }
            }
            year = next.checked_add(1)?;
        }
    }

    /// The first of its times of day at or after `from`.
    pub(super) fn time_at_or_after(&self, from: Time) -> Option<Time> {
        let number = |number: i8| u16::try_from(number).unwrap_or(0);
        let (hour, minute, second) = (number(from.hour()), number(from.minute()), number(from.second()));
        let hours = |from| self.hours.number_from(from);
        let minutes = |from| self.minutes.number_from(from);
        let seconds = |from| self.seconds.number_from(from);
        let found = hours(hour)?;
        if found > hour {
            return time(found, minutes(0)?, seconds(0)?);
        }
        if let Some(found) = minutes(minute) {
            if found > minute {
                return time(hour, found, seconds(0)?);
            }
            if let Some(found) = seconds(second) {
                return time(hour, minute, found);
            }
            if let Some(found) = minutes(minute + 1) {
                return time(hour, found, seconds(0)?);
            }
        }
        time(hours(hour + 1)?, minutes(0)?, seconds(0)?)
    }
}

fn time(hour: u16, minute: u16, second: u16) -> Option<Time> {
    let number = |number: u16| i8::try_from(number).ok();
    Time::new(number(hour)?, number(minute)?, number(second)?, 0).ok()
}

/// The days of a month, as bits from 1, of which `days` are named.
fn days_of(begin: Date, days: u64, from_end: bool) -> u64 {
    let length = u32::try_from(begin.days_in_month()).unwrap_or(31);
    let all = ((1 << length) - 1) << 1;
    if !from_end {
        return days & all;
    }
    // The last day is 1: bit n becomes bit length + 1 - n.
    (days.reverse_bits() >> (63 - (length + 1))) & all
}

/// The days of a month, as bits from 1, that are among these days of the week.
fn weekdays_of(begin: Date, weekdays: u8) -> u64 {
    let first = u32::try_from(begin.weekday().to_monday_zero_offset()).unwrap_or(0);
    let week = u64::from(weekdays);
    let week = ((week >> first) | (week << (7 - first))) & 0x7f;
    (0..5).fold(0, |days, number| days | (week << (7 * number))) << 1
}

/// The instant at which a zone has a local time.
fn instant_of(local: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(local);
    match ambiguous.offset() {
        // Of two, the first.
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => ambiguous.compatible().ok(),
        // Read with the offset after the gap, a skipped time lies before it: the next change of the zone is the gap.
        AmbiguousOffset::Gap { after, .. } => {
            let before = after.to_timestamp(local).ok()?;
            zone.following(before).next().map(|change| change.timestamp())
        }
    }
}
