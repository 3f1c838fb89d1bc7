//! Cells that many kinds share.

use jiff::Timestamp;
use serde_json::{Value, json};

/// The object's name.
pub(super) fn name(object: &Value, _: Timestamp) -> Value {
    text(&object["metadata"]["name"])
}

/// The age of the object.
pub(crate) fn age(object: &Value, now: Timestamp) -> Value {
    since(&object["metadata"]["creationTimestamp"], now)
}

/// The time since `time`.
pub(super) fn since(time: &Value, now: Timestamp) -> Value {
    match time.as_str().and_then(|time| time.parse::<Timestamp>().ok()) {
        Some(time) => json!(human_duration(now.as_second() - time.as_second())),
        None => json!("<unknown>"),
    }
}

/// A text, empty when it is missing.
pub(super) fn text(value: &Value) -> Value {
    json!(value.as_str().unwrap_or_default())
}

/// A text, or `<none>`.
pub(super) fn or_none(value: &Value) -> Value {
    json!(value.as_str().filter(|text| !text.is_empty()).unwrap_or("<none>"))
}

/// A number, zero when it is missing.
pub(super) fn count(value: &Value) -> Value {
    json!(value.as_i64().unwrap_or(0))
}

/// The number of entries of a list or map.
pub(super) fn length(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    }
}

/// A number or percentage, or `N/A`.
pub(super) fn bound(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.to_string()),
        Value::String(text) => json!(text),
        _ => json!("N/A"),
    }
}

/// Labels as `a=b,c=d`, or `<none>`.
pub(super) fn labels(map: &Value) -> String {
    match map.as_object() {
        Some(map) if !map.is_empty() => {
            let pairs: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                .collect();
            pairs.join(",")
        }
        _ => "<none>".to_owned(),
    }
}

/// A duration in at most two units, as kubectl prints it.
pub(crate) fn human_duration(seconds: i64) -> String {
    let two = |large: i64, unit: &str, small: i64, rest: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{rest}") }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => two(hours / 24, "d", hours % 24, "h"),
        _ if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        _ if hours < 24 * 365 * 8 => two(hours / 24 / 365, "y", hours / 24 % 365, "d"),
        _ => format!("{}y", hours / 24 / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_at_most_two_units() {
        let cases = [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (3 * 3600, "3h"),
            (11_000, "3h3m"),
            (47 * 3600, "47h"),
            (50 * 3600, "2d2h"),
            (9 * 86_400, "9d"),
            (800 * 86_400, "2y70d"),
            (9 * 365 * 86_400, "9y"),
        ];
        for (seconds, expect) in cases {
            assert_eq!(human_duration(seconds), expect, "{seconds}");
        }
    }
}
