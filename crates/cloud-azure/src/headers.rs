//! Headers of responses: how long to wait, under which ids a request is known, and what a rejected token must claim.

use std::time::Duration;

use api::clock::{Clock as _, SystemClock};
use azure_core::http::headers::{HeaderName, Headers};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// Longest wait that a service may ask for.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(3600);

fn text(headers: &Headers, name: &'static str) -> Option<String> {
    headers.get_optional_string(&HeaderName::from_static(name)).filter(|it| !it.trim().is_empty())
}

/// The wait that headers ask for: milliseconds first, then seconds or a date. A wait of nothing counts as absent, as in the SDKs.
pub(crate) fn retry_after(headers: &Headers) -> Option<Duration> {
    let milliseconds = ["retry-after-ms", "x-ms-retry-after-ms"]
        .into_iter()
        .filter_map(|name| text(headers, name))
        .find_map(|it| seconds(&it).map(|it| it / 1000.0));
    let asked = milliseconds.or_else(|| {
        let value = text(headers, "retry-after")?;
        seconds(&value).or_else(|| seconds_until(&value, SystemClock.now()))
    })?;
    let wait = Duration::try_from_secs_f64(asked).unwrap_or(WAIT_MAX).min(WAIT_MAX);
    (!wait.is_zero()).then_some(wait)
}

/// A number that is no less than zero, with or without a fraction.
fn seconds(value: &str) -> Option<f64> {
    let value = value.trim();
    let is_number = value.chars().all(|it| it.is_ascii_digit() || it == '.');
    value.parse::<f64>().ok().filter(|it| is_number && it.is_finite())
}

/// The seconds from now until a date of HTTP; none for a date in the past.
fn seconds_until(value: &str, now: Timestamp) -> Option<f64> {
    // HTTP writes GMT, which RFC 2822 reads as an obsolete zone.
    let until = rfc2822::parse(value.trim()).ok()?.timestamp();
    Some(until.duration_since(now).as_secs_f64().max(0.0))
}

/// The ids under which a request is known, for operators and for Azure's support.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Correlation {
    /// The id that this client sent.
    pub(crate) client: String,
    /// The id that the service gave.
    pub(crate) request: String,
    /// The id that the service shares with those behind it.
    pub(crate) correlation: String,
}

impl Correlation {
    pub(crate) fn read(client: &str, headers: &Headers) -> Correlation {
        let id = |name| text(headers, name).map(|it| it.chars().take(100).collect()).unwrap_or_default();
        Correlation {
            client: client.to_owned(),
            request: id("x-ms-request-id"),
            correlation: id("x-ms-correlation-request-id"),
        }
    }

    /// The ids for the end of a sentence.
    pub(crate) fn describe(&self) -> Option<String> {
        match (self.request.as_str(), self.correlation.as_str()) {
            ("", "") => None,
            (request, "") => Some(format!("request id {request}")),
            ("", correlation) => Some(format!("correlation id {correlation}")),
            (request, correlation) if request == correlation => Some(format!("request id {request}")),
            (request, correlation) => Some(format!("request id {request}, correlation id {correlation}")),
        }
    }
}

/// A text without the ids that [`Correlation::describe`] added to it, and without those at the end of Entra ID's messages: a text that is
/// the same for every repetition of a call.
pub(crate) fn without_ids(text: &str) -> String {
    let mut text = text.to_owned();
    for (open, closes) in [(" (", true), ("; ", false)] {
        for kind in ["request id ", "correlation id "] {
            while let Some(from) = text.find(&format!("{open}{kind}")) {
                let end = text[from..].find(')').map_or(text.len(), |at| from + at + usize::from(closes));
                text.replace_range(from..end, "");
            }
        }
    }
    while let Some(from) = text.find(" Trace ID: ") {
        // `Trace ID: ID Correlation ID: ID Timestamp: DATE TIME`
        let words = text[from..].match_indices(' ').nth(9);
        let end = words.map_or(text.len(), |(at, _)| from + at);
        text.replace_range(from..end, "");
    }
    text
}

/// The requests that are left to the principal in the subscription, as far as a response tells.
pub(crate) fn remaining_requests(headers: &Headers) -> String {
    let remaining = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_prefix("x-ms-ratelimit-remaining-")?;
        Some(format!("{name}: {}", value.as_str()))
    });
    let mut remaining: Vec<String> = remaining.collect();
    remaining.sort();
    remaining.join(", ")
}

/// The claims that a challenge asks for: base64 of JSON in one of its parameters.
pub(crate) fn challenge_claims(challenge: &str) -> Option<String> {
    let encoded = parameter(challenge, "claims")?;
    let encoded = encoded.trim().trim_end_matches('=');
    let decoded = [STANDARD_NO_PAD, URL_SAFE_NO_PAD].into_iter().find_map(|it| it.decode(encoded).ok())?;
    let claims = String::from_utf8(decoded).ok()?;
    // Anything else would be refused together with the token request that carries it.
    serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&claims).ok().map(|_| claims)
}

/// A parameter of a challenge, quoted or not. Its name does not count within other names or quoted values.
fn parameter<'a>(challenge: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = challenge;
    while let Some(at) = rest.find('=') {
        let found = rest[..at].rsplit([' ', ',', '\t']).next().unwrap_or_default();
        let value = &rest[at + 1..];
        let (value, after) = match value.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => value.split_at(value.find([',', ' ']).unwrap_or(value.len())),
        };
        if found.eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> Headers {
        let mut headers = Headers::new();
        for (name, value) in pairs {
            headers.insert(*name, (*value).to_owned());
        }
        headers
    }

    fn wait(pairs: &[(&'static str, &str)]) -> Option<Duration> {
        retry_after(&headers(pairs))
    }

    #[test]
    fn a_wait_is_read_in_every_form() {
        assert_eq!(wait(&[("retry-after", "17")]), Some(Duration::from_secs(17)));
        assert_eq!(wait(&[("retry-after", " 0.25 ")]), Some(Duration::from_millis(250)));
        assert_eq!(wait(&[("retry-after-ms", "50"), ("retry-after", "9")]), Some(Duration::from_millis(50)));
        assert_eq!(wait(&[("x-ms-retry-after-ms", "70")]), Some(Duration::from_millis(70)));
        assert_eq!(wait(&[("retry-after-ms", "soon"), ("retry-after", "9")]), Some(Duration::from_secs(9)));
        assert_eq!(wait(&[("retry-after", "Thu, 31 Dec 2099 23:59:59 GMT")]), Some(WAIT_MAX));
        for absent in ["0", "", "-1", "soon", "Mon, 01 Jan 2001 00:00:00 GMT", "NaN", "1e3"] {
            assert_eq!(wait(&[("retry-after", absent)]), None, "{absent}");
        }
        assert_eq!(wait(&[]), None);
    }

    #[test]
    fn a_date_is_a_wait_from_now() {
        let now: Timestamp = "2026-11-18T10:00:00Z".parse().unwrap();
        assert_eq!(seconds_until("Wed, 18 Nov 2026 10:00:30 GMT", now), Some(30.0));
        assert_eq!(seconds_until("Wed, 18 Nov 2026 09:00:30 GMT", now), Some(0.0));
    }

    #[test]
    fn claims_are_found_among_the_parameters() {
        let claims = r#"{"access_token":{"nbf":{"essential":true,"value":"1"}}}"#;
        let encoded = STANDARD.encode(claims);
        let challenge = format!(
            "Bearer authorization_uri=\"https://a/b?claims=no\", error=\"insufficient_claims\", claims=\"{encoded}\""
        );
        assert_eq!(challenge_claims(&challenge).as_deref(), Some(claims));
        assert_eq!(challenge_claims(&format!("Bearer claims={encoded}, x=y")).as_deref(), Some(claims));
        for none in ["Bearer error=\"invalid_token\"", "Bearer claims=\"!\"", "Bearer claims=\"bm8=\"", ""] {
            assert_eq!(challenge_claims(none), None, "{none}");
        }
    }

    #[test]
    fn ids_of_a_request_are_reported_once() {
        let read = |request: &str, correlation: &str| {
            let headers =
                headers(&[("x-ms-request-id", request), ("x-ms-correlation-request-id", correlation)]);
            Correlation::read("ours", &headers).describe()
        };
        assert_eq!(read("a", "b").as_deref(), Some("request id a, correlation id b"));
        assert_eq!(read("a", "a").as_deref(), Some("request id a"));
        assert_eq!(read("", ""), None);
        let left = headers(&[("x-ms-ratelimit-remaining-subscription-writes", "3")]);
        assert_eq!(remaining_requests(&left), "subscription-writes: 3");
    }

    proptest! {
        #[test]
        fn no_header_makes_a_wait_longer_than_allowed(value in "\\PC{0,40}", name in 0usize..3) {
            let name = ["retry-after", "retry-after-ms", "x-ms-retry-after-ms"][name];
            let wait = wait(&[(name, &value)]);
            prop_assert!(wait.is_none_or(|it| !it.is_zero() && it <= WAIT_MAX));
        }

        #[test]
        fn whole_seconds_are_taken_as_they_are(seconds in 1u64..3600) {
            prop_assert_eq!(wait(&[("retry-after", &seconds.to_string())]), Some(Duration::from_secs(seconds)));
        }

        #[test]
        fn any_challenge_is_read_without_a_panic(text in "\\PC{0,200}") {
            let _ = challenge_claims(&text);
            let _ = challenge_claims(&format!("Bearer claims={text}"));
        }

        #[test]
        fn claims_survive_the_challenge(value in "[ -~]{0,40}") {
            let claims = serde_json::json!({"access_token": {"x": {"value": value}}}).to_string();
            let challenge = format!("Bearer error=\"e\", claims=\"{}\"", STANDARD.encode(&claims));
            prop_assert_eq!(challenge_claims(&challenge), Some(claims));
        }
    }

    #[test]
    fn texts_without_ids_are_the_same_for_every_repetition() {
        let check = |text: &str, expect: &str| assert_eq!(without_ids(text), expect);
        check("GET /x (500 Odd: m; request id r, correlation id k)", "GET /x (500 Odd: m)");
        check("Odd: m. (request id r)", "Odd: m.");
        check("a (correlation id k) and b (request id r)", "a and b");
        check("a (request id r", "a");
        check("the request identity of (x)", "the request identity of (x)");
        check(
            "AADSTS7: No. Trace ID: t Correlation ID: c Timestamp: 2026-11-18 10:00:00Z (request id r)",
            "AADSTS7: No.",
        );
        check("AADSTS7: No. Trace ID: t Correlation ID: c Timestamp: 2026-11-18 10:00:00Z", "AADSTS7: No.");
        check("AADSTS7: No. Trace ID: t Corr…", "AADSTS7: No.");
    }
}
