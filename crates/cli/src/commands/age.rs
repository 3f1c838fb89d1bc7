//! Ages and durations in kubectl's format.

use std::time::Duration;

use jiff::Timestamp;

/// Age of `time`, such as `5m`; `in 5m` for a time in the future.
pub(super) fn age(time: Timestamp, now: Timestamp) -> String {
    let span = now.duration_since(time);
    match span.is_negative() {
        false => span_text(span.unsigned_abs()),
        true => format!("in {}", span_text(span.unsigned_abs())),
    }
}

/// A duration in at most two units, coarser the longer it is.
pub(super) fn span_text(span: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let seconds = span.as_secs();
    let two = |big: u64, big_unit: &str, small: u64, small_unit: &str| match seconds % big / small {
        0 => format!("{}{big_unit}", seconds / big),
        rest => format!("{}{big_unit}{rest}{small_unit}", seconds / big),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(MINUTE, "m", 1, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(HOUR, "h", MINUTE, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(DAY, "d", HOUR, "h"),
        _ => format!("{}d", seconds / DAY),
    }
}

/// A measured duration.
pub(super) fn duration_text(milliseconds: u64) -> String {
    match milliseconds {
        0..1_000 => format!("{milliseconds}ms"),
        1_000..60_000 => format!("{:.1}s", Duration::from_millis(milliseconds).as_secs_f64()),
        _ => span_text(Duration::from_millis(milliseconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_durations_are_coarser() {
        let check = |seconds: u64, expect: &str| assert_eq!(span_text(Duration::from_secs(seconds)), expect);
        check(0, "0s");
        check(119, "119s");
        check(120, "2m");
        check(312, "5m12s");
        check(3_600, "60m");
        check(10_800, "3h");
        check(11_520, "3h12m");
        check(100_000, "27h");
        check(190_800, "2d5h");
        check(2_592_000, "30d");
    }

    #[test]
    fn a_time_in_the_future_has_a_prefix() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(age("2026-01-01T00:05:00Z".parse().unwrap(), now), "in 5m");
        assert_eq!(age("2025-12-31T23:59:00Z".parse().unwrap(), now), "60s");
    }
}
