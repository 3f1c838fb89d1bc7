//! The token by which a cluster pulls images.

use api::doc::Record;
use jiff::Timestamp;

use crate::engine::StepError;

/// So many days a token's password is good.
pub const TOKEN_DAYS: i64 = 180;
/// After so many it should be replaced.
pub const TOKEN_ROTATION_DAYS: i64 = 140;

/// Looks whether the token is good, and for how long; changes nothing. Whatever is wrong with it is for an operator to mend: an
/// update of the cluster issues another password.
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
    let age = now.duration_since(issued).as_hours() / 24;
    if age > TOKEN_DAYS || token.expires.is_some_and(|expires| expires <= now) {
        let message = format!("the registry token {name}, issued {age} days ago, has expired; {REMEDY}");
        return Err(StepError::terminal("TokenExpired", message));
    }
    if age > TOKEN_ROTATION_DAYS {
        let message = format!(
            "the registry token {name} was issued {age} days ago and should be replaced after {TOKEN_ROTATION_DAYS}; {REMEDY}"
        );
        return Err(StepError::terminal("RotationDue", message));
    }
    Ok(format!("the registry token {name} is good for {} more days", TOKEN_DAYS - age))
}

#[cfg(test)]
mod tests {
    use api::doc::RegistryToken;
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn a_token_is_good_due_or_expired_by_its_age() {
        let now: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
        let check = |age_hours: Option<i64>, expires_hours: Option<i64>| {
            let from = |hours: i64| now + SignedDuration::from_hours(hours);
            let token = RegistryToken {
                registry: "registry.example".to_owned(),
                name: "token-1".to_owned(),
                issued: age_hours.map(|hours| from(-hours)),
                expires: expires_hours.map(from),
            };
            let record = Record { registry_token: Some(token), ..Record::default() };
            check_token(&record, now).map_err(|error| error.code().to_owned())
        };
        let good = |days: i64| Ok(format!("the registry token token-1 is good for {days} more days"));
        assert_eq!(check(Some(0), Some(24)), good(180));
        assert_eq!(check(Some(140 * 24 + 23), None), good(40));
        assert_eq!(check(Some(141 * 24), None), Err("RotationDue".to_owned()));
        assert_eq!(check(Some(180 * 24 + 23), None), Err("RotationDue".to_owned()));
        assert_eq!(check(Some(181 * 24), None), Err("TokenExpired".to_owned()));
        assert_eq!(check(Some(24), Some(0)), Err("TokenExpired".to_owned()));
        assert_eq!(check(None, None), Err("NoIssueDate".to_owned()));
        assert_eq!(check_token(&Record::default(), now).unwrap_err().code(), "NoToken");
    }
}
