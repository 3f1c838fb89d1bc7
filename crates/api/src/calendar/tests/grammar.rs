//! What is read, how it is written back, and how refusals sound.

use super::super::CALENDARS_MAX;
use super::{Calendar, Calendars, Dice, Zone, calendar, expression};
use proptest::prelude::*;

#[test]
fn every_shape_of_the_grammar_is_read_and_written_in_normal_form() {
    let check = |text: &str, expect: &str| assert_eq!(calendar(text).to_string(), expect, "{text}");
    check("Mon", "Mon *-*-* 00:00:00");
    check("Mon, 12:00", "Mon *-*-* 12:00:00");
    check("Mon-Fri", "Mon..Fri *-*-* 00:00:00");
    check("Sat..Sun", "Sat,Sun *-*-* 00:00:00");
    check("Mon..Wed,Fri  12:00", "Mon..Wed,Fri *-*-* 12:00:00");
    check("Mon..Sun", "*-*-* 00:00:00");
    check("12:00", "*-*-* 12:00:00");
    check("*-*", "*-*-* 00:00:00");
    check("2-3", "*-02-03 00:00:00");
    check("26-1-1", "2026-01-01 00:00:00");
    check("70..72-1-1", "1970..1972-01-01 00:00:00");
    check("*-*~1", "*-*~01 00:00:00");
    check("2~1..7/2", "*-02~01..07/2 00:00:00");
    check("*-*~*", "*-*-* 00:00:00");
    check("*-*~7/3", "*-*~07/3 00:00:00");
    check("*:0/15", "*-*-* *:00/15:00");
    check("5..5:00", "*-*-* 05:00:00");
    check("1..4/2:00", "*-*-* 01..03/2:00:00");
    check("1..2/5:00", "*-*-* 01:00:00");
    check("5,5,4:00", "*-*-* 04,05:00:00");
    check("*:*:*", "*-*-* *:*:*");
    check("*:*:0/1", "*-*-* *:*:*");
    check("*-*-*   ", "*-*-* 00:00:00");
    check("@1700000000", "2023-11-14 22:13:20 UTC");
    check("daily utc", "*-*-* 00:00:00 UTC");
    check("Mon europe/berlin", "Mon *-*-* 00:00:00 Europe/Berlin");
    check("bi-annually", "*-01,07-01 00:00:00");
}

#[test]
fn refusals_name_the_place_and_what_would_be_accepted() {
    let check = |text: &str, expect: &str| {
        let refusal = Calendar::parse(text).expect_err(text).to_string();
        assert_eq!(refusal, format!("{text:?} is no calendar: {expect}"));
    };
    check("", "it is empty; write, for example, Mon..Fri *-*-* 02:30 or weekly");
    check("*-*-* 24:00", "24 is no hour; accepted are 0 to 23");
    check("*-13-1", "13 is no month; accepted are 1 to 12");
    check("*-*~29", "29 is no day from the end of the month; accepted are 1 to 28");
    check(
        "Moon",
        "\"Moon\" is no weekday; weekdays are Mon to Sun or their full names, as a list or a range (Mon..Fri)",
    );
    check(
        "Fri..Mon",
        "the range of weekdays ending in Mon runs backwards; a week begins on Monday (write Fri..Sun,Mon)",
    );
    check("*:*/5", "minute \"*/5\": * cannot have steps or be in a list; write 0/2 for every second one");
    check("*:5..1", "minute range \"5..1\" runs backwards");
    check("*:0/60", "minute \"0/60\": the first step leads past 59");
    check("1/0:00", "hour \"1/0\": a step must be at least 1");
    check("*:*:30.5", "second \"30.5\" has a fraction; only whole seconds are accepted");
    check(
        "12:00 Nowhere/Land",
        "\"Nowhere/Land\" is no time zone; a zone is UTC or an IANA name such as Europe/Berlin",
    );
    check("12", "\"12\" is neither a date (year-month-day or month-day) nor a time (hour:minute[:second])");
    check(
        "12:00 ",
        "the time is followed by \"\"; only UTC or the name of a time zone may follow it, after one space",
    );
    check("1,:00", "\"\" is no hour; write *, a number, a range (1..5), steps (0/2), or a list of these");
    check(
        "*-*-* 00:00; *-*-* 12:00",
        "the time is followed by \"*-*-* 12:00\"; only UTC or the name of a time zone may follow it, after one space",
    );
}

#[test]
fn nonsense_is_refused() {
    for text in [
        "*",
        "Mon Tue",
        "Mon,,Tue",
        "Mon.Tue",
        "Mon...Tue",
        "Mon..Wed..Fri",
        "Mon..",
        "Mon12:00",
        " 12:00",
        "12:00  UTC",
        "UTC",
        " UTC",
        "hourly  UTC",
        "2026-02-03T11:12",
        "1969-1-1",
        "10000-1-1",
        "*-0-1",
        "*-*-0",
        "*-*-32",
        "*:*:60",
        ",1:00",
        "1,,2:00",
        "*,1:00",
        "1..*:00",
        "*..5:00",
        "+1:00",
        "-1:00",
        "1/-1:00",
        "0x1:00",
        "*-*~5..3",
        "*-*~1/1",
        "*~*-1",
        "*-*-*-*",
        "1:2:3:4",
        "99999999999999999999:00",
        "@",
        "@-1",
        "@1.5",
        "@99999999999999",
        "12:00 UTC UTC",
        "１２:00",
        "12:00\u{a0}",
        "Mön",
    ] {
        assert!(Calendar::parse(text).is_err(), "{text:?}");
    }
    assert!(Calendar::parse(&"1,".repeat(2000)).is_err());
    assert!(Calendar::parse(&format!("{}1:00", "1,".repeat(300))).is_err());
}

#[test]
fn calendars_of_a_schedule_share_one_zone() {
    let zone = |texts: &[&str], zone| Calendars::parse(texts, zone).map(|it| it.zone().name().to_owned());
    assert_eq!(zone(&["daily"], None).unwrap(), "UTC");
    assert_eq!(zone(&["daily"], Some("asia/kathmandu")).unwrap(), "Asia/Kathmandu");
    assert_eq!(zone(&["daily Europe/Berlin"], None).unwrap(), "Europe/Berlin");
    assert_eq!(zone(&["daily Europe/Berlin", "weekly"], Some("Europe/Berlin")).unwrap(), "Europe/Berlin");
    let refusal = zone(&["daily", "weekly Europe/Berlin"], Some("UTC")).unwrap_err().to_string();
    assert_eq!(
        refusal,
        "the calendar names the zone Europe/Berlin, but the others are read in UTC; give all of them one zone"
    );
    assert!(zone(&["daily"], Some("Mars/Olympus")).is_err());
    assert!(zone(&[], None).is_err());
    assert!(zone(&["daily"; CALENDARS_MAX + 1], None).is_err());
    assert_eq!(Zone::named("Nowhere"), None);
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in ".*") {
        let _ = Calendar::parse(&text);
    }

    #[test]
    fn no_text_of_its_own_letters_makes_the_parser_panic(text in "[0-9*,./:~@ UTCMonTueSn-]{0,24}") {
        if let Ok(calendar) = Calendar::parse(&text) {
            calendar.next_after(jiff::Timestamp::UNIX_EPOCH, &jiff::tz::TimeZone::UTC);
        }
    }

    #[test]
    fn the_normal_form_reads_back_as_the_same_calendar(seed in any::<u64>()) {
        let text = expression(&mut Dice(seed));
        let once = calendar(&text);
        let again = calendar(&once.to_string());
        prop_assert_eq!(once.to_string(), again.to_string());
        prop_assert_eq!(once, again);
    }
}
