//! The tables of MIMO's calendar, which existing schedules rely on.

use super::{Calendars, at, calendar};
use jiff::tz::TimeZone;
use std::time::Duration;

#[test]
fn mimos_table_of_next_times_holds_but_for_the_slot_that_rounding_skipped() {
    let check = |text: &str, now: &str, expect: Option<&str>| {
        let found = calendar(text).next_after(at(now), &TimeZone::UTC);
        assert_eq!(found, expect.map(at), "{text} after {now}");
    };
    check("*-*-* 00:00", "2026-03-01 00:00:00", Some("2026-03-02 00:00"));
    check("*-*-* *:*", "2026-03-01 00:00:00", Some("2026-03-01 00:01"));
    check("*-*-31 00:00", "2026-04-01 00:00", Some("2026-05-31 00:00"));
    check("*-2-29 00:00", "2026-03-01 00:00", Some("2028-02-29 00:00"));
    check("Sun *-2-29 00:00", "2026-03-01 00:00", Some("2032-02-29 00:00"));
    check("Fri *-*-13 06:30", "2026-03-14 00:00", Some("2026-11-13 06:30"));
    check("*-3,6,9,12-1 00:00", "2026-12-02 00:00", Some("2027-03-01 00:00"));
    check("Mon,Thu *-*-* 00:00", "2026-08-03 00:00", Some("2026-08-06 00:00"));
    check("2026-*-* 00:00", "2027-01-01 00:00", None);
    check("*-2-30 00:00", "2026-03-01 00:00", None);
    check("*-*-* 12:00", "2026-03-01 11:59:59.4", Some("2026-03-01 12:00"));
    // MIMO rounds to the next second first and then looks strictly behind it, so that it goes to the next day.
    check("*-*-* 12:00", "2026-03-01 11:59:59.6", Some("2026-03-01 12:00"));
    check("*-*-* 12:00", "2026-03-01 12:00:00", Some("2026-03-02 12:00"));
    check("*-*-* 12:00", "2026-03-01 12:00:00.000000001", Some("2026-03-02 12:00"));
    // systemd 252 goes to 20:00:29.
    check("*:*:0/29", "2026-03-01 19:59:59", Some("2026-03-01 20:00:00"));
    // Years beyond systemd's last one, which MIMO takes.
    check("3000-1-1 00:00", "2026-03-01 00:00", Some("3000-01-01 00:00"));
    check("9999-12-31 23:59:59", "2026-03-01 00:00", None); // after the last representable instant
}

#[test]
fn what_mimo_accepts_means_the_same_here() {
    let same = |mimo: &str, plain: &str| assert_eq!(calendar(mimo).to_string(), plain, "{mimo}");
    same("*-*-* 00:00", "*-*-* 00:00:00");
    same("*-*-* 00:00:0", "*-*-* 00:00:00");
    same("*-*-* 00:00:00", "*-*-* 00:00:00");
    same("Thu,mon *-*-* 00:00", "Mon,Thu *-*-* 00:00:00");
    same("WEDNESDAY,Sunday 2026,2028-02,1-031,1,1 023:45,0", "Wed,Sun 2026,2028-01,02-01,31 23:00,45:00");
    same("*-*-* *:*", "*-*-* *:*:00");
    same("Sun,Mon,Tue,Wed,Thu,Fri,Sat *-*-* 00:15", "*-*-* 00:15:00");
}

#[test]
fn a_calendar_that_never_fires_says_so_at_once() {
    for text in
        ["*-2-30", "*-2-31 12:00", "Mon *-2-30", "*-4,6,9,11-31", "2027/4-2-29", "2025-*-*", "Sat 2027-1-1"]
    {
        let begin = std::time::Instant::now();
        assert_eq!(calendar(text).next_after(at("2026-03-01 00:00"), &TimeZone::UTC), None, "{text}");
        assert!(begin.elapsed() < Duration::from_secs(1), "{text} took {:?}", begin.elapsed());
    }
}

#[test]
fn the_shortest_interval_is_found_wherever_it_lies() {
    let check = |texts: &[&str], seconds: Option<u64>| {
        let found = Calendars::parse(texts, None).unwrap().shortest_interval(at("2026-03-01 00:00"));
        assert_eq!(found, seconds.map(Duration::from_secs), "{texts:?}");
    };
    const DAY: u64 = 86_400;
    check(&["daily"], Some(DAY));
    check(&["hourly"], Some(3600));
    check(&["minutely"], Some(60));
    check(&["*:*:*"], Some(1));
    check(&["weekly"], Some(7 * DAY));
    check(&["monthly"], Some(28 * DAY));
    check(&["*-*-31"], Some(31 * DAY)); // July and August
    check(&["*-2-29"], Some(1461 * DAY));
    check(&["*-1-1,2 00:00"], Some(DAY));
    check(&["*-*-* 00:10,23:50".split(',').next().unwrap(), "23:50"], Some(20 * 60)); // across midnight
    check(&["Mon 02:00", "Tue 01:00"], Some(23 * 3600));
    check(&["Mon 02:00", "Mon 02:00"], Some(7 * DAY));
    check(&["2027-01-01"], None);
    check(&["2027-01-01", "2027-01-03"], Some(2 * DAY));
    check(&["*-2-30"], None);
    check(&["2100-2-28", "2100-3-1"], Some(DAY)); // 2100 is no leap year
}

#[test]
fn days_that_some_months_lack_are_known() {
    let check = |text: &str, expect: bool| {
        assert_eq!(calendar(text).names_a_day_that_some_months_lack(), expect, "{text}");
    };
    check("*-*-31", true);
    check("*-*-30", true);
    check("*-2-29", true);
    check("*-1,3-31", false);
    check("*-4-30", false);
    check("*-4-31", true);
    check("*-*-1..28", false);
    check("*-*~28", false);
    check("daily", false);
}
