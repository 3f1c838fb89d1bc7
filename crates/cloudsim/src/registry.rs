//! The registry of images: tokens whose passwords are good for 180 days.

use cloud::Token;
use jiff::{SignedDuration, Timestamp};

use crate::database;
use crate::failure::{Failure, invalid, not_found};
use crate::protocol::IssuedToken;
use crate::room::Room;
use crate::secrets;

const TOKEN: &str = "token";
const HOST: &str = "registry.simulated.cloud";
const PASSWORD_DAYS: i64 = 180;

pub(crate) fn ensure_token(room: &Room<'_>, name: &str) -> Result<Token, Failure> {
    let sound =
        (5..=50).contains(&name.len()) && name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-');
    if !sound {
        let why = format!("'{name}' is no name of a token; expected 5 to 50 letters, digits and dashes");
        return Err(invalid("InvalidTokenName", why));
    }
    if let Some(found) = token(room, name)? {
        return Ok(found);
    }
    let token = Token { name: name.to_owned(), registry: HOST.to_owned(), issued: None, expires: None };
    database::keep(room.db, TOKEN, &name.to_lowercase(), &token)?;
    Ok(token)
}

pub(crate) fn token(room: &Room<'_>, name: &str) -> Result<Option<Token>, Failure> {
    database::record(room.db, TOKEN, &name.to_lowercase())
}

/// Every token, by name.
pub(crate) fn tokens(room: &Room<'_>) -> Result<Vec<Token>, Failure> {
    database::records(room.db, TOKEN)
}

pub(crate) fn issue_password(room: &Room<'_>, name: &str) -> Result<IssuedToken, Failure> {
    let mut token = token(room, name)?.ok_or_else(|| not_found(format!("the token {name}")))?;
    let lasts = SignedDuration::from_hours(24 * PASSWORD_DAYS);
    token.issued = Some(room.now);
    token.expires = Some(room.now.saturating_add(lasts).unwrap_or(Timestamp::MAX));
    database::keep(room.db, TOKEN, &name.to_lowercase(), &token)?;
    Ok(IssuedToken { token, password: secrets::password()? })
}

pub(crate) fn delete_token(room: &Room<'_>, name: &str) -> Result<(), Failure> {
    database::forget(room.db, TOKEN, &name.to_lowercase()).map(drop)
}
