//! The image registry: tokens whose passwords are valid for 180 days.

use cloud::PullToken;
use jiff::{SignedDuration, Timestamp};

use crate::call_context::CallContext;
use crate::database;
use crate::failure::{Failure, invalid, not_found};
use crate::protocol::IssuedPullToken;
use crate::secrets;

const TOKEN: &str = "token";
const HOST: &str = "registry.simulated.cloud";
const PASSWORD_DAYS: i64 = 180;

pub(crate) fn ensure_token(cx: &CallContext<'_>, name: &str) -> Result<PullToken, Failure> {
    let sound =
        (5..=50).contains(&name.len()) && name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-');
    if !sound {
        let why = format!("'{name}' is no name of a token; expected 5 to 50 letters, digits and dashes");
        return Err(invalid("InvalidTokenName", why));
    }
    if let Some(found) = token(cx, name)? {
        return Ok(found);
    }
    let token = PullToken { name: name.to_owned(), registry: HOST.to_owned(), issued: None, expires: None };
    database::write(cx.db, TOKEN, &name.to_lowercase(), &token)?;
    Ok(token)
}

pub(crate) fn token(cx: &CallContext<'_>, name: &str) -> Result<Option<PullToken>, Failure> {
    database::record(cx.db, TOKEN, &name.to_lowercase())
}

/// Every token, by name.
pub(crate) fn tokens(cx: &CallContext<'_>) -> Result<Vec<PullToken>, Failure> {
    database::records(cx.db, TOKEN)
}

pub(crate) fn issue_password(cx: &CallContext<'_>, name: &str) -> Result<IssuedPullToken, Failure> {
    let mut token = token(cx, name)?.ok_or_else(|| not_found(format!("the token {name}")))?;
    let lasts = SignedDuration::from_hours(24 * PASSWORD_DAYS);
    token.issued = Some(cx.now);
    token.expires = Some(cx.now.saturating_add(lasts).unwrap_or(Timestamp::MAX));
    database::write(cx.db, TOKEN, &name.to_lowercase(), &token)?;
    Ok(IssuedPullToken { token, password: secrets::password()? })
}

pub(crate) fn delete_token(cx: &CallContext<'_>, name: &str) -> Result<(), Failure> {
    database::delete(cx.db, TOKEN, &name.to_lowercase()).map(drop)
}
