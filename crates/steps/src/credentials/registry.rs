//! The age of the registry token by which a cluster pulls images.

use api::doc::{Record, RegistryToken};
use jiff::{SignedDuration, Timestamp};

use crate::engine::StepError;

/// Lifetime of a token's password, in days.
pub const TOKEN_DAYS: i64 = 180;
/// Age in days at which it should be replaced; for a shorter lifetime, the same share of it.
pub const TOKEN_ROTATION_DAYS: i64 = 140;

const HOURS_OF_DAY: i64 = 24;

/// Whether a token's password is old enough to be replaced: whenever [`check_token`] fails, and up to a day sooner.
pub fn is_token_old(token: Option<&RegistryToken>, now: Timestamp) -> bool {
    let issued = token.and_then(|it| Some((it.issued?, it.expires)));
    let Some((issued, expires)) = issued else { return true };
    now.duration_since(issued) >= SignedDuration::from_hours(HOURS_OF_DAY * rotation_days(issued, expires))
}

/// Age in days at which a password should be replaced.
fn rotation_days(issued: Timestamp, expires: Option<Timestamp>) -> i64 {
    let lasts = expires.map_or(TOKEN_DAYS, |end| days_between(issued, end)).min(TOKEN_DAYS);
    lasts * TOKEN_ROTATION_DAYS / TOKEN_DAYS
}

/// Whole days.
fn days_between(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).as_hours() / HOURS_OF_DAY
}

/// Checks the validity of the token; changes nothing. An operator fixes an error by updating the cluster, which issues another
/// password.
pub fn check_token(record: &Record, now: Timestamp) -> Result<String, StepError> {
    const REMEDY: &str = "update the cluster to issue another password";
    let Some(token) = &record.registry_token else {
        return Err(StepError::terminal("NoToken", format!("the cluster has no registry token; {REMEDY}")));
    };
    let name = &token.name;
    let Some(issued) = token.issued else {
        let message = format!("no date of issue is recorded for the registry token {name}; {REMEDY}");
        return Err(StepError::terminal("NoIssueDate", message));
    };
    let age = days_between(issued, now);
    if age > TOKEN_DAYS || token.expires.is_some_and(|expires| expires <= now) {
        let message = format!("the registry token {name}, issued {age} days ago, has expired; {REMEDY}");
        return Err(StepError::terminal("TokenExpired", message));
    }
    let rotation = rotation_days(issued, token.expires);
    if age > rotation {
        let message = format!(
            "the registry token {name} was issued {age} days ago and should be replaced after {rotation}; {REMEDY}"
        );
        return Err(StepError::terminal("RotationDue", message));
    }
    let left = token.expires.map_or(TOKEN_DAYS, |end| days_between(now, end)).min(TOKEN_DAYS - age);
    Ok(format!("the registry token {name} is good for {left} more days"))
}

#[cfg(test)]
mod tests {
    use api::doc::RegistryToken;
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn a_token_is_valid_due_or_expired_by_its_age_and_expiry() {
        let now: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
        let check = |age_hours: Option<i64>, expires_hours: Option<i64>| {
            let from = |hours: i64| now + SignedDuration::from_hours(hours);
            let token = RegistryToken {
                registry: "registry.example".to_owned(),
                name: "token-1".to_owned(),
                issued: age_hours.map(|hours| from(-hours)),
                expires: expires_hours.map(from),
            };
            let is_old = is_token_old(Some(&token), now);
            let record = Record { registry_token: Some(token), ..Record::default() };
            let checked = check_token(&record, now).map_err(|error| error.code().to_string());
            assert!(checked.is_ok() || is_old, "an update would not mend it: {checked:?}");
            checked
        };
        let good = |days: i64| Ok(format!("the registry token token-1 is good for {days} more days"));
        assert_eq!(check(Some(0), Some(180 * 24)), good(180));
        assert_eq!(check(Some(0), Some(24)), good(1));
        // A registry may give less: 90 days, of which 70 are the same share.
        assert_eq!(check(Some(70 * 24), Some(20 * 24)), good(20));
        assert_eq!(check(Some(71 * 24), Some(19 * 24)), Err("RotationDue".to_owned()));
        assert_eq!(check(Some(89 * 24), Some(24)), Err("RotationDue".to_owned()));
        assert_eq!(check(Some(90 * 24), Some(0)), Err("TokenExpired".to_owned()));
        assert_eq!(check(Some(140 * 24 + 23), None), good(40));
        assert_eq!(check(Some(141 * 24), None), Err("RotationDue".to_owned()));
        assert_eq!(check(Some(180 * 24 + 23), None), Err("RotationDue".to_owned()));
        assert_eq!(check(Some(181 * 24), None), Err("TokenExpired".to_owned()));
        assert_eq!(check(Some(24), Some(0)), Err("TokenExpired".to_owned()));
        assert_eq!(check(None, None), Err("NoIssueDate".to_owned()));
        assert_eq!(check_token(&Record::default(), now).unwrap_err().code().as_str(), "NoToken");
    }
}
