//! Signatures: of requests with a key of the account, and shared access signatures of an account, a container or a blob, which are made
//! with a key of the account or with a user delegation key.

use std::net::{IpAddr, Ipv4Addr};

use jiff::civil::{Date, DateTime};
use jiff::fmt::rfc2822;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::BlobRequest;
use super::access;
use super::error::{BlobError, BlobFailure};
use crate::arm::ArmResource;
use crate::arm::kinds::storage;
use crate::call_context::CallContext;
use crate::database;
use crate::entra::Caller;
use crate::failure::Failure;

/// The headers in the text of a signed request.
const SIGNED_HEADERS: [&str; 11] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

/// How far the date of a signed request may be from now.
const DATE_TOLERANCE: SignedDuration = SignedDuration::from_mins(15);

/// The parameters that a user delegation key is made for.
pub(super) const KEY_PARAMETERS: [&str; 6] = ["skoid", "sktid", "skt", "ske", "sks", "skv"];

/// The place of the signed resource among the parameters of a signature.
const RESOURCE: &str = "/";
const SERVICE_START: &[&str] = &["sp", "st", "se", RESOURCE, "si", "sip", "spr", "sv", "sr", "snapshot"];
const DELEGATION_START: &[&str] =
    &["sp", "st", "se", RESOURCE, "skoid", "sktid", "skt", "ske", "sks", "skv", "saoid", "suoid", "scid"];
const DELEGATED_USER: &[&str] = &["skdutid", "sduoid"];
const DELEGATION_MIDDLE: &[&str] = &["sip", "spr", "sv", "sr", "snapshot"];
const ENCRYPTION_SCOPE: &[&str] = &["ses"];
const SIGNED_REQUEST: &[&str] = &["srh", "srq"];
const RESPONSE_HEADERS: &[&str] = &["rscc", "rscd", "rsce", "rscl", "rsct"];

/// A verified shared access signature.
#[derive(Debug)]
pub(super) struct Sas {
    pub(super) permissions: String,
    pub(super) kind: SasKind,
}

#[derive(Debug)]
pub(super) enum SasKind {
    Account {
        resource_types: String,
    },
    Service,
    /// Limited by the roles of the principal that had the key.
    Delegation {
        caller: Caller,
    },
}

fn failed(why: &str) -> BlobFailure {
    let message = format!(
        "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature. {why}"
    );
    BlobError::authentication(message).into()
}

/// Whether one of the keys gives the signature of one of the texts.
fn is_signed(keys: &[String], texts: &[String], signature: &str) -> Result<bool, Failure> {
    for key in keys {
        for text in texts {
            if storage::sign(key, text)? == signature {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Verifies the signature of a request, `{account}:{signature}`.
pub(super) fn verify_shared_key(
    cx: &CallContext<'_>,
    request: &BlobRequest<'_>,
    account: &ArmResource,
    signed: &str,
) -> Result<(), BlobFailure> {
    let Some((name, signature)) = signed.trim().split_once(':') else {
        return Err(failed("The account or the signature is missing."));
    };
    if !name.eq_ignore_ascii_case(account.id.name()) {
        return Err(failed("The account is another one than that of the path."));
    }
    let date = request.header("x-ms-date").or_else(|| request.header("date"));
    let date = date.and_then(|it| rfc2822::DateTimeParser::new().parse_timestamp(it).ok());
    if date.is_none_or(|it| cx.now.duration_since(it).abs() > DATE_TOLERANCE) {
        return Err(failed("The date of the request is missing or too far from now."));
    }
    let keys = storage::account_keys(account).unwrap_or_default();
    match is_signed(&keys, &[request_text(request, name)], signature)? {
        true => Ok(()),
        false => Err(failed("The signature does not match.")),
    }
}

/// The text that the signature of a request is made of.
fn request_text(request: &BlobRequest<'_>, account: &str) -> String {
    let header = |name: &str| match (name, request.header(name).unwrap_or_default()) {
        ("content-length", "0") => String::new(),
        ("date", _) if request.header("x-ms-date").is_some() => String::new(),
        (_, value) => value.to_owned(),
    };
    let mut lines = vec![request.method.to_string()];
    lines.extend(SIGNED_HEADERS.map(header));
    let mut own: Vec<(&str, &str)> = request
        .headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("x-ms-"))
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?.trim())))
        .collect();
    own.sort_by_key(|(name, _)| header_order(name));
    lines.extend(own.iter().map(|(name, value)| format!("{name}:{value}")));
    let mut text = format!("{}\n/{account}{}", lines.join("\n"), request.path);
    let mut query: Vec<(String, &str)> =
        request.query.iter().map(|(name, value)| (name.to_lowercase(), value.as_str())).collect();
    query.sort();
    for (at, (name, value)) in query.iter().enumerate() {
        match at > 0 && query[at - 1].0 == *name {
            true => text.push_str(&format!(",{value}")),
            false => text.push_str(&format!("\n{name}:{value}")),
        }
    }
    text
}

/// The order of headers in a signed text: hyphens do not count, and other signs come before digits and letters.
fn header_order(name: &str) -> (Vec<(u8, char)>, &str) {
    let rank = |it: char| match it {
        'a'..='z' => 2,
        '0'..='9' => 1,
        _ => 0,
    };
    (name.chars().filter(|it| *it != '-').map(|it| (rank(it), it)).collect(), name)
}

/// Verifies the shared access signature in the query of a request.
pub(super) fn verify_sas(
    cx: &CallContext<'_>,
    request: &BlobRequest<'_>,
    account: &ArmResource,
) -> Result<Sas, BlobFailure> {
    let value = |name: &str| request.parameter(name).unwrap_or_default().to_owned();
    let signature = value("sig");
    let is_delegated = request.parameter("skoid").is_some();
    for unsupported in ["si", "sduoid", "srh", "srq"] {
        if request.parameter(unsupported).is_some() {
            let why = format!("The emulator does not support the parameter {unsupported} of a signature.");
            return Err(failed(&why));
        }
    }
    let (keys, texts, kind) = match (request.parameter("ss"), is_delegated) {
        (Some(services), _) => {
            access::check_shared_keys(account)?;
            if !services.contains('b') {
                let message = "This request is not authorized to perform this operation using this service.";
                return Err(BlobError::forbidden("AuthorizationServiceMismatch", message).into());
            }
            let text = storage::account_sas_text(account.id.name(), value);
            // Before version 2020-12-06 there is no encryption scope, which is the last line.
            let older = text.strip_suffix("\n\n").map(|it| format!("{it}\n"));
            let texts = [Some(text.clone()), older].into_iter().flatten().collect();
            let kind = SasKind::Account { resource_types: value("srt") };
            (storage::account_keys(account).unwrap_or_default().to_vec(), texts, kind)
        }
        (None, false) => {
            access::check_shared_keys(account)?;
            let with_scope = [SERVICE_START, ENCRYPTION_SCOPE, RESPONSE_HEADERS].concat();
            let without = [SERVICE_START, RESPONSE_HEADERS].concat();
            let texts = sas_texts(request, account, &[with_scope, without])?;
            (storage::account_keys(account).unwrap_or_default().to_vec(), texts, SasKind::Service)
        }
        (None, true) => {
            let end = [DELEGATION_MIDDLE, ENCRYPTION_SCOPE].concat();
            let newest = [DELEGATION_START, DELEGATED_USER, &end, SIGNED_REQUEST, RESPONSE_HEADERS].concat();
            let newer = [DELEGATION_START, DELEGATED_USER, &end, RESPONSE_HEADERS].concat();
            let older = [DELEGATION_START, &end, RESPONSE_HEADERS].concat();
            let texts = sas_texts(request, account, &[newest, newer, older])?;
            check_times(cx, &value("skt"), &value("ske"))?;
            let caller = Caller {
                client_id: String::new(),
                object_id: value("skoid"),
                tenant_id: value("sktid"),
                identity: None,
            };
            let key = delegation_key(cx, account, &KEY_PARAMETERS.map(value))?;
            (vec![key], texts, SasKind::Delegation { caller })
        }
    };
    if !is_signed(&keys, &texts, &signature)? {
        return Err(failed("Signature did not match."));
    }
    check_times(cx, &value("st"), &value("se"))?;
    if !is_meant_for_loopback(&value("sip")) {
        let message = "This request is not authorized to perform this operation using this source IP.";
        return Err(BlobError::forbidden("AuthorizationSourceIPMismatch", message).into());
    }
    Ok(Sas { permissions: value("sp"), kind })
}

/// The texts of a signature for a container or a blob, in several layouts.
fn sas_texts(
    request: &BlobRequest<'_>,
    account: &ArmResource,
    layouts: &[Vec<&str>],
) -> Result<Vec<String>, BlobFailure> {
    let (Some(container), resource) = (&request.container, request.parameter("sr")) else {
        return Err(failed("A signature for a container or a blob does not cover the account."));
    };
    let name = account.id.name();
    let signed = match (resource, &request.blob) {
        (Some("c"), _) => format!("/blob/{name}/{container}"),
        (Some("b"), Some(blob)) => format!("/blob/{name}/{container}/{blob}"),
        (Some("b"), None) => return Err(failed("A signature for a blob does not cover its container.")),
        _ => return Err(failed("The signed resource is none of b and c.")),
    };
    let value = |it: &&str| match *it {
        RESOURCE => signed.clone(),
        name => request.parameter(name).unwrap_or_default().to_owned(),
    };
    Ok(layouts.iter().map(|it| it.iter().map(value).collect::<Vec<String>>().join("\n")).collect())
}

fn check_times(cx: &CallContext<'_>, start: &str, expiry: &str) -> Result<(), BlobFailure> {
    let is_started = start.is_empty() || parse_time(start).is_some_and(|it| it <= cx.now);
    match is_started && parse_time(expiry).is_some_and(|it| cx.now < it) {
        true => Ok(()),
        false => Err(failed("Signature not valid in the specified time frame.")),
    }
}

/// A time in one of the forms that signatures accept: with seconds, with minutes, or a date.
pub(super) fn parse_time(text: &str) -> Option<Timestamp> {
    let bare = text.trim_end_matches('Z');
    let civil = bare
        .parse::<DateTime>()
        .ok()
        .filter(|_| bare.contains('T'))
        .or_else(|| bare.parse::<Date>().ok().map(|it| it.at(0, 0, 0, 0)));
    civil.and_then(|it| it.to_zoned(TimeZone::UTC).ok()).map(|it| it.timestamp())
}

/// Whether an address or a range of addresses includes the callers, who are all on this machine.
fn is_meant_for_loopback(addresses: &str) -> bool {
    let (first, last) = addresses.split_once('-').unwrap_or((addresses, addresses));
    match (first.parse::<IpAddr>(), last.parse::<IpAddr>()) {
        (Ok(first), Ok(last)) => (first..=last).contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)),
        _ => addresses.is_empty(),
    }
}

/// The user delegation key for some parameters, in base64. It follows from them and a secret, so that none is stored.
pub(super) fn delegation_key(
    cx: &CallContext<'_>,
    account: &ArmResource,
    parameters: &[String; 6],
) -> Result<String, Failure> {
    const SECRET: (&str, &str) = ("meta", "delegation-secret");
    let secret: Option<String> = database::record(cx.db, SECRET.0, SECRET.1)?;
    let secret = match secret {
        Some(secret) => secret,
        None => {
            let made = storage::new_key()?;
            database::write(cx.db, SECRET.0, SECRET.1, &made)?;
            made
        }
    };
    storage::sign(&secret, &format!("{}\n{}", account.id.key(), parameters.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_several_forms() {
        let seconds = |text: &str| parse_time(text).map(Timestamp::as_second);
        assert_eq!(seconds("1970-01-02"), Some(86_400));
        assert_eq!(seconds("1970-01-02T00:01Z"), Some(86_460));
        assert_eq!(seconds("1970-01-02T00:01:02Z"), Some(86_462));
        assert_eq!(seconds("1970-01-02T00:01:02.5Z"), Some(86_462));
        assert_eq!(seconds("tomorrow"), None);
        assert_eq!(seconds(""), None);
    }

    #[test]
    fn headers_are_sorted_as_the_service_does() {
        let mut names = ["x-ms-meta-b", "x-ms-meta-a_1", "x-ms-meta-a1", "x-ms-meta-a", "x-ms-date"];
        names.sort_by_key(|it| header_order(it));
        assert_eq!(names, ["x-ms-date", "x-ms-meta-a", "x-ms-meta-a_1", "x-ms-meta-a1", "x-ms-meta-b"]);
    }

    #[test]
    fn addresses_include_the_loopback_interface_or_not() {
        for (text, expected) in [
            ("", true),
            ("127.0.0.1", true),
            ("127.0.0.0-127.0.0.9", true),
            ("10.0.0.1", false),
            ("10.0.0.1-10.0.0.9", false),
            ("nonsense", false),
        ] {
            assert_eq!(is_meant_for_loopback(text), expected, "{text}");
        }
    }
}
