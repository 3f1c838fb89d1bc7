//! Policies of certificates: what requests may say, what they leave out, and when a version is replaced by itself.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::error::VaultError;
use super::issue::{self, CertificateOrder, KeyType};

/// The issuer of certificates that are signed with their own key.
const SELF: &str = "Self";
/// The issuer that the vault does not know: its certificate is merged.
const UNKNOWN: &str = "Unknown";
pub(super) const PEM: &str = "application/x-pem-file";
pub(super) const PKCS12: &str = "application/x-pkcs12";

/// Members that a request may change; others are the vault's.
const MEMBERS: [&str; 5] = ["key_props", "secret_props", "x509_props", "lifetime_actions", "issuer"];
/// Azure counts a month as 27 days where it limits the time before the expiry.
const MONTH_DAYS: i64 = 27;
const MONTHS_MAX: i64 = 1200;
const COMMON_NAME_CHARS_MAX: usize = 64;

/// The policy of a new certificate: the request's, with values for what it leaves out.
pub(super) fn complete(sent: &Value, now: Timestamp) -> Result<Value, VaultError> {
    if !sent.is_object() {
        return Err(invalid("policy", "it is required"));
    }
    let mut policy = json!({ "attributes": { "enabled": true, "created": now.as_second() } });
    apply(&mut policy, sent, now);
    fill(&mut policy);
    check(&policy)?;
    Ok(policy)
}

/// A policy with the members that a request changes.
pub(super) fn patch(before: &Value, sent: &Value, now: Timestamp) -> Result<Value, VaultError> {
    let mut policy = before.clone();
    apply(&mut policy, sent, now);
    fill(&mut policy);
    check(&policy)?;
    Ok(policy)
}

fn apply(policy: &mut Value, sent: &Value, now: Timestamp) {
    for member in MEMBERS {
        if let Some(value) = sent.get(member).filter(|it| !it.is_null()) {
            policy[member] = value.clone();
        }
    }
    policy["attributes"]["updated"] = json!(now.as_second());
}

fn fill(policy: &mut Value) {
    let is_curve = text(policy, "/key_props/kty") == "EC";
    let mut default = |pointer: &[&str], value: Value| {
        let mut place = &mut *policy;
        for name in pointer {
            if !place.is_object() {
                *place = json!({});
            }
            place = &mut place[*name];
        }
        if place.is_null() {
            *place = value;
        }
    };
    default(&["key_props", "kty"], json!("RSA"));
    default(&["key_props", "exportable"], json!(true));
    default(&["key_props", "reuse_key"], json!(false));
    match is_curve {
        true => default(&["key_props", "crv"], json!("P-256")),
        false => default(&["key_props", "key_size"], json!(2048)),
    }
    default(&["secret_props", "contentType"], json!(PKCS12));
    default(&["x509_props", "ekus"], json!(["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"]));
    default(&["x509_props", "key_usage"], json!(["digitalSignature", "keyEncipherment"]));
    default(&["x509_props", "validity_months"], json!(12));
    default(&["x509_props", "basic_constraints"], json!({ "ca": false }));
    let action =
        json!({ "trigger": { "lifetime_percentage": 80 }, "action": { "action_type": "EmailContacts" } });
    default(&["lifetime_actions"], json!([action]));
}

fn invalid(member: &str, why: &str) -> VaultError {
    VaultError::bad_parameter(format!("Property {member} has an invalid value: {why}."))
}

fn text<'a>(policy: &'a Value, pointer: &str) -> &'a str {
    policy.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn texts(policy: &Value, pointer: &str) -> Vec<String> {
    let found = policy.pointer(pointer).and_then(Value::as_array);
    found.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn is_true(policy: &Value, pointer: &str) -> bool {
    policy.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
}

fn months(policy: &Value) -> i64 {
    policy.pointer("/x509_props/validity_months").and_then(Value::as_i64).unwrap_or(0)
}

fn key_type(policy: &Value) -> Result<KeyType, VaultError> {
    let size = policy.pointer("/key_props/key_size").and_then(Value::as_u64);
    match (text(policy, "/key_props/kty"), size, text(policy, "/key_props/crv")) {
        ("RSA", Some(2048), _) => Ok(KeyType::Rsa2048),
        ("RSA", Some(3072), _) => Ok(KeyType::Rsa3072),
        ("RSA", Some(4096), _) => Ok(KeyType::Rsa4096),
        ("RSA", ..) => Err(invalid("policy.key_props.key_size", "it is none of 2048, 3072 and 4096")),
        ("EC", _, "P-256") => Ok(KeyType::P256),
        ("EC", _, "P-384") => Ok(KeyType::P384),
        ("EC", ..) => Err(invalid("policy.key_props.crv", "the emulator has P-256 and P-384")),
        _ => Err(invalid("policy.key_props.kty", "it is none of RSA and EC")),
    }
}

fn check(policy: &Value) -> Result<(), VaultError> {
    key_type(policy)?;
    if ![PEM, PKCS12].contains(&content_type(policy)) {
        let why = format!("it is none of {PEM} and {PKCS12}");
        return Err(invalid("policy.secret_props.contentType", &why));
    }
    if issuer(policy).is_empty() {
        return Err(invalid("policy.issuer.name", "it is required"));
    }
    let subject = text(policy, "/x509_props/subject");
    if subject.is_empty() && texts(policy, "/x509_props/sans/dns_names").is_empty() {
        return Err(invalid("policy.x509_props.subject", "a subject or a DNS name is required"));
    }
    let common_name = subject.split(',').find_map(|it| it.trim().strip_prefix("CN="));
    if !subject.is_empty() && !subject.contains('=') {
        return Err(invalid("policy.x509_props.subject", "it is no X.500 name such as CN=name"));
    }
    if common_name.is_some_and(|it| it.chars().count() > COMMON_NAME_CHARS_MAX) {
        let why = format!("the common name has more than {COMMON_NAME_CHARS_MAX} characters");
        return Err(invalid("policy.x509_props.subject", &why));
    }
    if !(1..=MONTHS_MAX).contains(&months(policy)) {
        let why = format!("it is not between 1 and {MONTHS_MAX}");
        return Err(invalid("policy.x509_props.validity_months", &why));
    }
    if texts(policy, "/x509_props/key_usage").iter().any(|it| issue::key_usage(it).is_none()) {
        return Err(invalid("policy.x509_props.key_usage", "it has an unknown usage"));
    }
    let actions = policy["lifetime_actions"].as_array();
    actions.into_iter().flatten().try_for_each(|it| check_action(policy, it))
}

/// Requires a trigger that a version meets after its start, so that a renewed certificate is not due at once again.
fn check_action(policy: &Value, action: &Value) -> Result<(), VaultError> {
    let kind = text(action, "/action/action_type");
    if !["AutoRenew", "EmailContacts"].contains(&kind) {
        return Err(invalid("policy.lifetime_actions.action", "it is none of AutoRenew and EmailContacts"));
    }
    let number = |name: &str| action["trigger"][name].as_i64();
    let days_max = months(policy) * MONTH_DAYS;
    match (number("days_before_expiry"), number("lifetime_percentage")) {
        (Some(days), None) if (1..=days_max).contains(&days) => Ok(()),
        (Some(_), None) => {
            let why = format!("days_before_expiry is not between 1 and {days_max}");
            Err(invalid("policy.lifetime_actions.trigger", &why))
        }
        (None, Some(1..=99)) => Ok(()),
        (None, Some(_)) => {
            Err(invalid("policy.lifetime_actions.trigger", "lifetime_percentage is not between 1 and 99"))
        }
        _ => Err(invalid("policy.lifetime_actions.trigger", "it needs exactly one condition")),
    }
}

pub(super) fn issuer(policy: &Value) -> &str {
    text(policy, "/issuer/name")
}

/// Whether the certificate is signed elsewhere and merged.
pub(super) fn is_merged(policy: &Value) -> bool {
    issuer(policy).eq_ignore_ascii_case(UNKNOWN)
}

pub(super) fn content_type(policy: &Value) -> &str {
    text(policy, "/secret_props/contentType")
}

/// Whether the secret of the certificate holds its key.
pub(super) fn is_exportable(policy: &Value) -> bool {
    is_true(policy, "/key_props/exportable")
}

/// Whether a new version keeps the key of the last.
pub(super) fn reuses_key(policy: &Value) -> bool {
    is_true(policy, "/key_props/reuse_key")
}

/// The order of a version from a time on.
pub(super) fn order(policy: &Value, from: Timestamp) -> Result<CertificateOrder, VaultError> {
    Ok(CertificateOrder {
        dns_names: texts(policy, "/x509_props/sans/dns_names"),
        self_signed: issuer(policy).eq_ignore_ascii_case(SELF),
        key_usages: texts(policy, "/x509_props/key_usage"),
        usages: texts(policy, "/x509_props/ekus"),
        not_before: from,
        not_after: issue::months_later(from, months(policy)),
        ..CertificateOrder::new(text(policy, "/x509_props/subject"), key_type(policy)?)
    })
}

/// When a version with this validity is replaced by itself; never without the action `AutoRenew`.
pub(super) fn renewal(policy: &Value, not_before: Timestamp, not_after: Timestamp) -> Option<Timestamp> {
    let actions = policy["lifetime_actions"].as_array()?;
    let renew = actions.iter().find(|it| text(it, "/action/action_type") == "AutoRenew")?;
    if is_merged(policy) {
        return None;
    }
    let trigger = &renew["trigger"];
    let due = match (trigger["days_before_expiry"].as_i64(), trigger["lifetime_percentage"].as_i64()) {
        (Some(days), _) => not_after.saturating_sub(SignedDuration::from_hours(24 * days)).ok()?,
        (None, Some(percentage)) => {
            let seconds = not_after.duration_since(not_before).as_secs() / 100 * percentage;
            not_before.saturating_add(SignedDuration::from_secs(seconds)).ok()?
        }
        (None, None) => return None,
    };
    // A policy that was changed later does not renew before its change.
    let changed = policy["attributes"]["updated"].as_i64().and_then(|it| Timestamp::from_second(it).ok());
    Some(changed.map_or(due, |it| due.max(it)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(change: impl FnOnce(&mut Value)) -> Value {
        let mut policy = json!({ "issuer": { "name": "Self" }, "x509_props": { "subject": "CN=a", "validity_months": 3 } });
        change(&mut policy);
        policy
    }

    fn renew(trigger: Value) -> Value {
        json!([{ "trigger": trigger, "action": { "action_type": "AutoRenew" } }])
    }

    #[test]
    fn what_a_policy_leaves_out_is_filled_in() {
        let policy = complete(&sent(|_| ()), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(content_type(&policy), PKCS12);
        assert!(is_exportable(&policy));
        assert_eq!(key_type(&policy).unwrap(), KeyType::Rsa2048);
        let curve = sent(|it| it["key_props"] = json!({ "kty": "EC" }));
        assert_eq!(key_type(&complete(&curve, Timestamp::UNIX_EPOCH).unwrap()).unwrap(), KeyType::P256);
    }

    #[test]
    fn unusable_values_are_rejected_by_name() {
        for (pointer, value) in [
            ("key_props", json!({ "kty": "RSA", "key_size": 1024 })),
            ("key_props", json!({ "kty": "oct" })),
            ("secret_props", json!({ "contentType": "text/plain" })),
            ("x509_props", json!({ "subject": "a" })),
            ("x509_props", json!({ "subject": format!("CN={}", "a".repeat(65)) })),
            ("x509_props", json!({ "subject": "CN=a", "validity_months": 0 })),
            ("issuer", json!({})),
            ("lifetime_actions", renew(json!({ "days_before_expiry": 82 }))),
            ("lifetime_actions", renew(json!({ "lifetime_percentage": 100 }))),
            ("lifetime_actions", renew(json!({}))),
        ] {
            let policy = sent(|it| it[pointer] = value.clone());
            assert!(complete(&policy, Timestamp::UNIX_EPOCH).is_err(), "{pointer}: {value}");
        }
    }

    #[test]
    fn a_version_is_replaced_before_its_end_but_not_before_the_policy_says_so() {
        let day = |number: i64| Timestamp::from_second(number * 86_400).unwrap();
        let check = |trigger: Value, updated: i64, expected: i64| {
            let policy = complete(&sent(|it| it["lifetime_actions"] = renew(trigger)), day(updated)).unwrap();
            assert_eq!(renewal(&policy, day(0), day(100)), Some(day(expected)));
        };
        check(json!({ "days_before_expiry": 30 }), 0, 70);
        check(json!({ "lifetime_percentage": 80 }), 0, 80);
        check(json!({ "days_before_expiry": 30 }), 90, 90);
        let never = complete(&sent(|_| ()), day(0)).unwrap();
        assert_eq!(renewal(&never, day(0), day(100)), None);
    }
}
