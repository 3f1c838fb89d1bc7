//! Local time in zones that skip and repeat it.

use super::{Zone, calendar};
use jiff::Timestamp;

/// Checks that after `from` the calendar fires at these instants, all in RFC 3339.
fn check(text: &str, zone: &str, from: &str, expect: &[&str]) {
    let instant = |text: &str| text.parse::<Timestamp>().unwrap_or_else(|error| panic!("{text}: {error}"));
    let (calendar, zone) = (calendar(text), Zone::named(zone).unwrap());
    let mut last = instant(from);
    for expect in expect {
        let found = calendar.next_after(last, zone.time_zone()).unwrap();
        assert_eq!(found, instant(expect), "{text} in {} after {last}", zone.name());
        last = found;
    }
}

#[test]
fn in_berlin_a_skipped_time_runs_at_three_and_a_repeated_one_at_its_first_turn() {
    // 2026-03-29: 02:00 to 03:00 is skipped. 2026-10-25: 02:00 to 03:00 comes twice.
    check(
        "02:30",
        "Europe/Berlin",
        "2026-03-27T12:00:00Z",
        &["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
    );
    check(
        "02:30",
        "Europe/Berlin",
        "2026-10-24T00:00:00Z",
        &["2026-10-24T02:30:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"],
    );
    // Several skipped times are one run, and so is 03:00 itself.
    check(
        "*:0/15",
        "Europe/Berlin",
        "2026-03-29T00:40:00Z",
        &["2026-03-29T01:45:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T03:15:00+02:00"],
    );
    check(
        "2,3:00",
        "Europe/Berlin",
        "2026-03-29T00:00:00Z",
        &["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"],
    );
    // From within the second turn, whose times have all been met.
    check(
        "*:0/30",
        "Europe/Berlin",
        "2026-10-25T00:29:59Z",
        &["2026-10-25T02:30:00+02:00", "2026-10-25T03:00:00+01:00"],
    );
    check("*:0/30", "Europe/Berlin", "2026-10-25T02:10:00+01:00", &["2026-10-25T03:00:00+01:00"]);
    check("*:*:*", "Europe/Berlin", "2026-10-25T02:00:00+01:00", &["2026-10-25T03:00:00+01:00"]);
    // The zone of the expression goes before the one beside it.
    check("12:00 Europe/Berlin", "UTC", "2026-07-01T00:00:00Z", &["2026-07-01T12:00:00+02:00"]);
}

#[test]
fn in_new_york_too() {
    // 2026-03-08: 02:00 to 03:00 is skipped. 2026-11-01: 01:00 to 02:00 comes twice.
    check(
        "02:15",
        "America/New_York",
        "2026-03-07T12:00:00Z",
        &["2026-03-08T03:00:00-04:00", "2026-03-09T02:15:00-04:00"],
    );
    check(
        "01:15",
        "America/New_York",
        "2026-10-31T12:00:00Z",
        &["2026-11-01T01:15:00-04:00", "2026-11-02T01:15:00-05:00"],
    );
}

#[test]
fn on_lord_howe_the_clock_moves_by_half_an_hour() {
    // 2026-04-05: back from 02:00 to 01:30. 2026-10-04: on from 02:00 to 02:30.
    check(
        "01:45",
        "Australia/Lord_Howe",
        "2026-04-04T00:00:00Z",
        &["2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"],
    );
    check(
        "02:10",
        "Australia/Lord_Howe",
        "2026-10-03T00:00:00Z",
        &["2026-10-04T02:30:00+11:00", "2026-10-05T02:10:00+11:00"],
    );
}

#[test]
fn in_kathmandu_the_hour_begins_at_a_quarter() {
    check(
        "00:00",
        "Asia/Kathmandu",
        "2026-03-01T00:00:00Z",
        &["2026-03-01T18:15:00Z", "2026-03-02T18:15:00Z"],
    );
    // 1986-01-01: on from 00:00 to 00:15.
    check(
        "00:05",
        "Asia/Kathmandu",
        "1985-12-31T00:00:00Z",
        &["1986-01-01T00:15:00+05:45", "1986-01-02T00:05:00+05:45"],
    );
}

#[test]
fn a_day_that_a_zone_skipped_is_met_at_its_end() {
    // Samoa had no 30 December 2011; Kwajalein no 21 August 1993.
    check(
        "12:00",
        "Pacific/Apia",
        "2011-12-29T12:00:00-10:00",
        &["2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"],
    );
    check("2011-12-30 08:00", "Pacific/Apia", "2011-01-01T00:00:00Z", &["2011-12-31T00:00:00+14:00"]);
    check("1993-08-21 08:00", "Pacific/Kwajalein", "1993-01-01T00:00:00Z", &["1993-08-22T00:00:00+12:00"]);
}

#[test]
fn midnight_that_is_skipped_is_met_too() {
    // Cairo moves its clock on at midnight: 2026-04-24 begins at 01:00.
    check(
        "daily",
        "Africa/Cairo",
        "2026-04-23T12:00:00Z",
        &["2026-04-24T01:00:00+03:00", "2026-04-25T00:00:00+03:00"],
    );
}
