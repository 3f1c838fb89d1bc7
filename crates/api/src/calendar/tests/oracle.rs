//! The search against systemd's own, in universal time, over thousands of expressions.

use std::process::Command;

use super::{Dice, at, calendar, expression};
use jiff::tz::TimeZone;
use testkit::prerequisites;

/// One process answers for so many expressions.
const BLOCK: usize = 250;
const BLOCKS: u64 = 16;
/// So many times of each are compared.
const ITERATIONS: usize = 3;

/// What systemd says of one expression: its normal form, and its next times as `2026-03-02 00:00:00`.
struct Answer {
    normal: String,
    times: Vec<String>,
}

#[test]
fn four_thousand_calendars_are_read_and_met_as_systemd_does() {
    if !prerequisites::is_on_path(prerequisites::SYSTEMD_ANALYZE) {
        return prerequisites::skip(prerequisites::SYSTEMD_ANALYZE, "there is no systemd-analyze on PATH");
    }
    for block in 0..BLOCKS {
        let mut dice = Dice(0x5eed_0000 + block);
        let texts: Vec<String> = (0..BLOCK).map(|_| expression(&mut dice)).collect();
        let base = format!(
            "{}-0{}-2{} 1{}:59:59",
            dice.between(2022, 2030),
            dice.between(1, 9),
            dice.roll(8),
            dice.roll(10)
        );
        let answers = ask(&texts, &base);
        assert_eq!(answers.len(), texts.len(), "systemd-analyze answers for each");
        for (text, answer) in texts.iter().zip(answers) {
            let ours = calendar(text);
            assert_eq!(ours.to_string(), answer.normal, "the normal form of {text:?} (block {block})");
            let mut last = at(&base);
            for index in 0..ITERATIONS {
                let found = ours.next_after(last, &TimeZone::UTC);
                // systemd's calendar ends with 2199, ours does not.
                let found = found.filter(|it| *it < at("2200-01-01 00:00:00"));
                let shown = found.map(|it| it.strftime("%Y-%m-%d %H:%M:%S").to_string());
                assert_eq!(
                    shown.as_ref(),
                    answer.times.get(index),
                    "time {index} of {text:?} after {base} (block {block})"
                );
                let Some(found) = found else { break };
                last = found;
            }
        }
    }
}

#[test]
fn what_systemd_refuses_we_refuse() {
    if !prerequisites::is_on_path(prerequisites::SYSTEMD_ANALYZE) {
        return prerequisites::skip(prerequisites::SYSTEMD_ANALYZE, "there is no systemd-analyze on PATH");
    }
    // Words of the grammar, one letter changed, left out or put in.
    let mut dice = Dice(0xbad);
    let mut texts = Vec::new();
    while texts.len() < 2000 {
        let mut text = expression(&mut dice);
        let place = usize::try_from(dice.roll(text.len() as u64)).unwrap();
        match dice.roll(3) {
            0 => drop(text.remove(place)),
            1 => {
                text.insert_str(
                    place,
                    dice.pick(&["*", ",", "/", "..", ":", "-", "~", " ", "0", "x", "Mon"]),
                );
            }
            _ => {
                text.replace_range(place..=place, dice.pick(&["*", ",", "/", ".", ":", "-", "~", " ", "7"]));
            }
        }
        texts.push(text);
    }
    let accepted = accepted_by_systemd(&texts);
    for (text, accepted) in texts.iter().zip(accepted) {
        let ours = super::Calendar::parse(text);
        let differs_on_purpose = match &ours {
            Err(error) => error.to_string().contains("has a fraction"),
            // systemd's limit on lists of days from the end (see `field`).
            Ok(_) => !accepted && text.contains('~') && text.contains(','),
        };
        assert!(
            ours.is_ok() == accepted || differs_on_purpose,
            "{text:?}: systemd says {accepted}, we say {ours:?}"
        );
    }
}

fn ask(texts: &[String], base: &str) -> Vec<Answer> {
    let output = analyze(texts, base);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut answers: Vec<Answer> = Vec::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let Some((key, value)) = line.trim_start().split_once(": ") else { continue };
        if key == "Normalized form" {
            answers.push(Answer { normal: value.to_owned(), times: Vec::new() });
        } else if (key == "Next elapse" || key.starts_with("Iter")) && value != "never" {
            // `Mon 2026-03-02 00:00:00 UTC`
            let time: Vec<&str> = value.split(' ').collect();
            answers.last_mut().unwrap().times.push(format!("{} {}", time[1], time[2]));
        }
    }
    answers
}

/// Which of them systemd takes. It goes on behind those that it refuses, and names each that it refuses.
fn accepted_by_systemd(texts: &[String]) -> Vec<bool> {
    let refusals: String = texts
        .chunks(BLOCK)
        .map(|block| String::from_utf8(analyze(block, "2026-03-01 00:00:00").stderr).unwrap())
        .collect();
    texts
        .iter()
        .map(|text| !refusals.contains(&format!("Failed to parse calendar specification '{text}':")))
        .collect()
}

fn analyze(texts: &[String], base: &str) -> std::process::Output {
    Command::new("systemd-analyze")
        .env("TZ", "UTC")
        .env("LC_ALL", "C")
        .env("SYSTEMD_COLORS", "0")
        .args(["calendar", &format!("--iterations={ITERATIONS}"), &format!("--base-time={base} UTC"), "--"])
        .args(texts)
        .output()
        .expect("systemd-analyze can be run")
}
