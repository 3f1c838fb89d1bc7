//! The search against the plainest possible one: every second, minute or day is looked at in turn.

use super::{Calendars, Dice, at, calendar, expression};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use proptest::prelude::*;

/// Whether a text of the grammar names this local time; from the normal form, by no code of the parser or the search.
fn names(normal: &str, local: DateTime) -> bool {
    let mut words: Vec<&str> = normal.split(' ').collect();
    let time = words.pop().unwrap();
    let date = words.pop().unwrap();
    if let Some(weekdays) = words.pop()
        && !weekdays.split(',').any(|range| {
            let day = |name: &str| {
                ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].iter().position(|it| *it == name).unwrap()
            };
            let (first, last) = range.split_once("..").unwrap_or((range, range));
            (day(first)..=day(last)).contains(&(local.weekday().to_monday_zero_offset() as usize))
        })
    {
        return false;
    }
    let length = i64::from(local.date().days_in_month());
    let (year, rest) = date.split_once('-').unwrap();
    let at = rest.find(['-', '~']).unwrap();
    let (month, day) = (&rest[..at], &rest[at + 1..]);
    let mut clock = time.split(':');
    let in_order = [(year, i64::from(local.year()), 9999), (month, local.month().into(), 12)];
    let of_day = [local.hour(), local.minute(), local.second()];
    in_order.into_iter().all(|(text, number, last)| holds(text, number, last))
        && if rest[at..].starts_with('~') {
            holds_from_end(day, length - i64::from(local.day()) + 1)
        } else {
            holds(day, local.day().into(), 31)
        }
        && of_day.into_iter().all(|number| holds(clock.next().unwrap(), number.into(), 59))
}

fn element(text: &str) -> (i64, Option<i64>, Option<i64>) {
    let (range, step) = text.split_once('/').map_or((text, None), |(range, step)| (range, Some(step)));
    let (start, stop) = range.split_once("..").map_or((range, None), |(start, stop)| (start, Some(stop)));
    let number = |text: &str| text.parse().unwrap();
    (number(start), stop.map(number), step.map(number))
}

fn holds(field: &str, number: i64, last: i64) -> bool {
    field == "*"
        || field.split(',').any(|text| match element(text) {
            (start, None, None) => number == start,
            (start, stop, step) => {
                number >= start && number <= stop.unwrap_or(last) && (number - start) % step.unwrap_or(1) == 0
            }
        })
}

fn holds_from_end(field: &str, number: i64) -> bool {
    field.split(',').any(|text| match element(text) {
        (start, None, Some(step)) => number <= start && (start - number) % step == 0,
        (start, None, None) => number == start,
        (start, Some(stop), step) => {
            number >= start && number <= stop && (number - start) % step.unwrap_or(1) == 0
        }
    })
}

#[test]
fn the_search_agrees_with_looking_at_every_second() {
    for seed in 0..1500_u64 {
        let mut dice = Dice(seed);
        let text = expression(&mut dice);
        let calendar = calendar(&text);
        let normal = calendar.to_string();
        let begin = at("2026-01-01 00:00") + i64::try_from(dice.roll(4 * 365 * 86_400)).unwrap().seconds();
        let found = calendar.next_after(begin, &TimeZone::UTC);
        let local = |instant: Timestamp| TimeZone::UTC.to_datetime(instant);
        if let Some(found) = found {
            assert!(found > begin && names(&normal, local(found)), "seed {seed}: {text} gave {found}");
        }
        // Every second of the first ten minutes, and then a sparse net: whatever it catches must not lie before.
        for step in 1..=600_i64 {
            let net = if step <= 300 { step } else { (step - 300) * 1_800 };
            let instant = begin + net.seconds();
            let instant = if step <= 300 {
                instant
            } else {
                Timestamp::from_second(instant.as_second() / 60 * 60).unwrap()
            };
            if instant > begin && names(&normal, local(instant)) {
                let first = found.unwrap_or_else(|| panic!("seed {seed}: {text} fires at {instant}"));
                assert!(first <= instant, "seed {seed}: {text} fires at {instant}, before {first}");
            }
        }
    }
}

#[test]
fn dates_agree_with_looking_at_every_day_of_forty_years() {
    for seed in 0..40_u64 {
        let mut dice = Dice(seed ^ 0xdada);
        let text = loop {
            let text = expression(&mut dice);
            if text.contains(['-', '~']) {
                break text.split(' ').filter(|word| !word.contains(':')).collect::<Vec<_>>().join(" ");
            }
        };
        let calendar = calendar(&text);
        let normal = calendar.to_string();
        let mut next = calendar.next_after(at("2023-12-31 23:59:59"), &TimeZone::UTC);
        let mut day = jiff::civil::date(2024, 1, 1).at(0, 0, 0, 0);
        for _ in 0..40 * 365 {
            if names(&normal, day) {
                let instant = day.to_zoned(TimeZone::UTC).unwrap().timestamp();
                assert_eq!(next, Some(instant), "seed {seed}: {text}");
                next = calendar.next_after(instant, &TimeZone::UTC);
            }
            day += 1.day();
        }
        assert!(
            next.is_none_or(|it| it >= day.to_zoned(TimeZone::UTC).unwrap().timestamp()),
            "seed {seed}: {text}"
        );
    }
}

proptest! {
    /// Of two starts, the later one never has the earlier answer; and nothing lies between an answer and its start.
    #[test]
    fn next_is_strictly_increasing_and_skips_nothing_in_any_zone(
        seed in any::<u64>(),
        second in 1_600_000_000_i64..2_000_000_000,
        nanos in 0..1_000_000_000_i32,
        later in 0..10_000_000_i64,
        zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"]),
    ) {
        let calendars = Calendars::parse(&[expression(&mut Dice(seed))], Some(zone)).unwrap();
        let start = Timestamp::new(second, nanos).unwrap();
        let mut last = start;
        for found in calendars.after(start).take(5) {
            prop_assert!(found > last);
            last = found;
        }
        let first = calendars.next_after(start);
        let middle = start + later.seconds();
        let second = calendars.next_after(middle);
        match (first, second) {
            (Some(first), _) if first > middle => prop_assert_eq!(second, Some(first)),
            (Some(first), Some(second)) => prop_assert!(second > first),
            (None, second) => prop_assert_eq!(second, None),
            _ => {}
        }
    }
}
