//! Conditions and ranges of requests.

use std::ops::Range;

use http::header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE};
use http::{HeaderMap, Method, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;

use super::error::BlobError;

/// A time as headers have it.
pub(super) fn http_date(time: Timestamp) -> String {
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Checks the conditions of a request on what is there: its etag without quotes and the time of its last change.
pub(super) fn check(
    method: &Method,
    headers: &HeaderMap,
    present: Option<(&str, Timestamp)>,
) -> Result<(), BlobError> {
    let is_read = [Method::GET, Method::HEAD].contains(method);
    let is_named = |wanted: &str, etag: &str| {
        wanted.split(',').any(|it| it.trim().trim_start_matches("W/").trim_matches('"') == etag)
    };
    let failed = || {
        let message = "The condition specified using HTTP conditional header(s) is not met.";
        Err(BlobError::new(StatusCode::PRECONDITION_FAILED, "ConditionNotMet", message))
    };
    let not_modified = || match is_read {
        true => Err(BlobError::new(StatusCode::NOT_MODIFIED, "ConditionNotMet", "")),
        false => failed(),
    };
    if let Some(wanted) = text(headers, &IF_MATCH) {
        let is_met = present.is_some_and(|(etag, _)| wanted == "*" || is_named(wanted, etag));
        if !is_met {
            return failed();
        }
    }
    if let (Some(wanted), Some((etag, _))) = (text(headers, &IF_NONE_MATCH), present) {
        if wanted == "*" && !is_read {
            return Err(BlobError::conflict("BlobAlreadyExists", "The specified blob already exists."));
        }
        if wanted == "*" || is_named(wanted, etag) {
            return not_modified();
        }
    }
    let time = |name: &HeaderName| {
        text(headers, name).and_then(|it| rfc2822::DateTimeParser::new().parse_timestamp(it).ok())
    };
    let changed = present.map(|(_, modified)| modified.as_second());
    if let (Some(since), Some(changed)) = (time(&IF_UNMODIFIED_SINCE), changed)
        && changed > since.as_second()
    {
        return failed();
    }
    if let (Some(since), Some(changed)) = (time(&IF_MODIFIED_SINCE), changed)
        && changed <= since.as_second()
    {
        return not_modified();
    }
    Ok(())
}

/// The range of a request on a content; `None` for the whole. What is no range is ignored, as Azure does.
pub(super) fn range(headers: &HeaderMap, size: usize) -> Result<Option<Range<usize>>, BlobError> {
    let given = text(headers, &HeaderName::from_static("x-ms-range")).or_else(|| text(headers, &RANGE));
    let parsed = given.and_then(|it| it.strip_prefix("bytes=")).and_then(|it| it.split_once('-'));
    let Some((first, last)) = parsed else { return Ok(None) };
    let Ok(first) = first.trim().parse::<usize>() else { return Ok(None) };
    let end = match last.trim() {
        "" => size,
        last => match last.parse::<usize>() {
            Ok(last) if last >= first => last.saturating_add(1).min(size),
            _ => return Ok(None),
        },
    };
    if first >= size {
        let message = "The range specified is invalid for the current size of the resource.";
        let error = BlobError::new(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange", message);
        return Err(error.with_header("content-range", format!("bytes */{size}")));
    }
    Ok(Some(first..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn ranges_are_cut_to_the_content() {
        let check = |text: &str, size: usize, expected: Result<Option<Range<usize>>, u16>| {
            let found = range(&headers(&[("x-ms-range", text)]), size);
            assert_eq!(found.map_err(|it| it.status.as_u16()), expected, "{text}");
        };
        check("bytes=0-33554431", 5, Ok(Some(0..5)));
        check("bytes=2-3", 5, Ok(Some(2..4)));
        check("bytes=2-", 5, Ok(Some(2..5)));
        check("bytes=5-9", 5, Err(416));
        check("bytes=0-9", 0, Err(416));
        check("bytes=3-2", 5, Ok(None));
        check("items=0-1", 5, Ok(None));
        check("bytes=-2", 5, Ok(None));
        let both = headers(&[("range", "bytes=0-0"), ("x-ms-range", "bytes=1-1")]);
        assert_eq!(range(&both, 5).unwrap(), Some(1..2));
    }

    #[test]
    fn conditions_decide_by_etag_and_time() {
        let modified = Timestamp::from_second(1_700_000_000).unwrap();
        let (date, later) = (http_date(modified), http_date(Timestamp::from_second(1_700_000_001).unwrap()));
        let earlier = http_date(Timestamp::from_second(1_699_999_999).unwrap());
        let there = Some(("0x1", modified));
        let check = |method: Method, name: &'static str, value: &str, present, expected: Option<u16>| {
            let outcome = check(&method, &headers(&[(name, value)]), present);
            assert_eq!(outcome.err().map(|it| it.status.as_u16()), expected, "{method} {name}: {value}");
        };
        check(Method::PUT, "if-match", "\"0x1\"", there, None);
        check(Method::PUT, "if-match", "\"0x2\"", there, Some(412));
        check(Method::PUT, "if-match", "*", there, None);
        check(Method::PUT, "if-match", "*", None, Some(412));
        check(Method::PUT, "if-none-match", "*", there, Some(409));
        check(Method::PUT, "if-none-match", "*", None, None);
        check(Method::PUT, "if-none-match", "\"0x1\"", there, Some(412));
        check(Method::GET, "if-none-match", "\"0x1\"", there, Some(304));
        check(Method::GET, "if-none-match", "\"0x2\"", there, None);
        check(Method::GET, "if-modified-since", &date, there, Some(304));
        check(Method::GET, "if-modified-since", &earlier, there, None);
        check(Method::PUT, "if-unmodified-since", &date, there, None);
        check(Method::PUT, "if-unmodified-since", &earlier, there, Some(412));
        check(Method::DELETE, "if-modified-since", &later, there, Some(412));
    }
}
