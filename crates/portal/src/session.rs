//! Sessions of signed-in users, in memory. A browser holds a random token, of which the portal stores the digest only. One-time links
//! are stored in the same way.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::PortalError;
use crate::sign_in_attempts::Attempts;

/// Longest idle time of a session, and its longest lifetime: a working day.
const IDLE_MAX: SignedDuration = SignedDuration::from_mins(30);
const AGE_MAX: SignedDuration = SignedDuration::from_hours(8);

/// Lifetime of a one-time link.
const LINK_AGE_MAX: SignedDuration = SignedDuration::from_hours(24);

/// Time limit of a sign-in at a provider.
const ATTEMPT_AGE_MAX: SignedDuration = SignedDuration::from_mins(10);

/// Highest number of sessions, and of links; the oldest is removed for a new one.
const ENTRIES_MAX: usize = 10_000;

/// Role of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May view everything.
    Reader,
    /// May view and change everything.
    Operator,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Reader => "reader",
            Role::Operator => "operator",
        })
    }
}

/// A signed-in user.
#[derive(Clone)]
pub(crate) struct SessionUser {
    pub(crate) user: String,
    pub(crate) role: Role,
    /// CSRF token that every change must carry.
    pub(crate) csrf: String,
    key: Key,
}

impl SessionUser {
    /// Key by which streams of the session are counted; it does not authenticate.
    pub(crate) fn key(&self) -> [u8; 32] {
        self.key
    }
}

impl fmt::Debug for SessionUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionUser")
            .field("user", &self.user)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// Result of an action, shown once on the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlashMessage {
    pub(crate) is_error: bool,
    pub(crate) text: String,
}

/// A sign-in at a provider that waits for its callback.
pub(crate) struct Attempt {
    pub(crate) verifier: String,
    pub(crate) nonce: String,
    /// Path to redirect to afterwards.
    pub(crate) to: String,
    /// Network of the client, if it is known.
    pub(crate) network: Option<IpAddr>,
}

type Key = [u8; 32];

struct Session {
    user: String,
    role: Role,
    csrf: String,
    created: Timestamp,
    used: Timestamp,
    flash: Option<FlashMessage>,
}

struct Timestamped<T> {
    at: Timestamp,
    value: T,
}

/// Sessions, one-time links and pending sign-ins.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<SessionTables>);

#[derive(Default)]
struct SessionTables {
    sessions: HashMap<Key, Session>,
    links: HashMap<Key, Timestamped<(String, Role)>>,
    attempts: Attempts<Timestamped<Attempt>>,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("count", &self.lock().sessions.len()).finish_non_exhaustive()
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, SessionTables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Issues the token of a one-time link.
    pub(crate) fn issue(&self, user: &str, role: Role, now: Timestamp) -> Result<String, PortalError> {
        let token = token()?;
        let mut tables = self.lock();
        evict_oldest(&mut tables.links);
        tables.links.insert(key(&token), Timestamped { at: now, value: (user.to_owned(), role) });
        Ok(token)
    }

    /// Consumes the token of a one-time link: the user and role that it signs in.
    pub(crate) fn redeem(&self, token: &str, now: Timestamp) -> Option<(String, Role)> {
        let found = self.lock().links.remove(&key(token))?;
        is_fresh(found.at, now, LINK_AGE_MAX).then_some(found.value)
    }

    /// Stores a pending sign-in under a state that only its browser knows.
    pub(crate) fn insert_attempt(&self, attempt: Attempt, state: &str, now: Timestamp) {
        let mut tables = self.lock();
        tables.attempts.insert(key(state), attempt.network, Timestamped { at: now, value: attempt });
    }

    /// Removes and returns the pending sign-in of a state.
    pub(crate) fn take_attempt(&self, state: &str, now: Timestamp) -> Option<Attempt> {
        let found = self.lock().attempts.remove(&key(state))?;
        is_fresh(found.at, now, ATTEMPT_AGE_MAX).then_some(found.value)
    }

    /// Creates a session and returns its token.
    pub(crate) fn create(&self, user: &str, role: Role, now: Timestamp) -> Result<String, PortalError> {
        let (name, csrf) = (token()?, token()?);
        let mut tables = self.lock();
        tables.sessions.retain(|_, session| session.is_alive(now));
        if tables.sessions.len() >= ENTRIES_MAX {
            let oldest = tables.sessions.iter().min_by_key(|(_, session)| session.used).map(|(key, _)| *key);
            oldest.and_then(|key| tables.sessions.remove(&key));
        }
        let session = Session { user: user.to_owned(), role, csrf, created: now, used: now, flash: None };
        tables.sessions.insert(key(&name), session);
        Ok(name)
    }

    /// The user of a session token, if the session is valid. Counts as use of the session.
    pub(crate) fn user(&self, name: &str, now: Timestamp) -> Option<SessionUser> {
        let key = key(name);
        let mut tables = self.lock();
        let session = tables.sessions.get_mut(&key)?;
        if !session.is_alive(now) {
            tables.sessions.remove(&key);
            return None;
        }
        session.used = now;
        Some(SessionUser { user: session.user.clone(), role: session.role, csrf: session.csrf.clone(), key })
    }

    /// Whether a session is valid, without using it: an open page must not keep its user signed in forever.
    pub(crate) fn is_valid(&self, user: &SessionUser, now: Timestamp) -> bool {
        self.lock().sessions.get(&user.key).is_some_and(|session| session.is_alive(now))
    }

    /// Removes a session.
    pub(crate) fn remove(&self, user: &SessionUser) {
        self.lock().sessions.remove(&user.key);
    }

    /// Sets the message for the next page of the session.
    pub(crate) fn set_flash(&self, user: &SessionUser, message: FlashMessage) {
        if let Some(session) = self.lock().sessions.get_mut(&user.key) {
            session.flash = Some(message);
        }
    }

    /// Removes and returns the message for the next page.
    pub(crate) fn take_flash(&self, user: &SessionUser) -> Option<FlashMessage> {
        self.lock().sessions.get_mut(&user.key)?.flash.take()
    }
}

impl Session {
    fn is_alive(&self, now: Timestamp) -> bool {
        is_fresh(self.used, now, IDLE_MAX) && is_fresh(self.created, now, AGE_MAX)
    }
}

fn is_fresh(at: Timestamp, now: Timestamp, age_max: SignedDuration) -> bool {
    now.duration_since(at) <= age_max
}

fn evict_oldest<T>(entries: &mut HashMap<Key, Timestamped<T>>) {
    if entries.len() >= ENTRIES_MAX {
        let oldest = entries.iter().min_by_key(|(_, dated)| dated.at).map(|(key, _)| *key);
        oldest.and_then(|key| entries.remove(&key));
    }
}

/// A random token.
pub(crate) fn token() -> Result<String, PortalError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(PortalError::Random)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// The digest under which a token is stored: it cannot be used as a token, and the time of a lookup does not depend on the token.
fn key(token: &str) -> Key {
    Sha256::digest(token.as_bytes()).into()
}

/// Compares two secrets in constant time.
pub(crate) fn secrets_equal(a: &str, b: &str) -> bool {
    key(a) == key(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + minutes * 60).unwrap()
    }

    #[test]
    fn a_link_signs_in_once_and_not_after_a_day() {
        let sessions = Sessions::default();
        let token = sessions.issue("jo", Role::Reader, at(0)).unwrap();
        assert_eq!(sessions.redeem("another", at(1)), None);
        assert_eq!(sessions.redeem(&token, at(1)), Some(("jo".to_owned(), Role::Reader)));
        assert_eq!(sessions.redeem(&token, at(1)), None);
        let late = sessions.issue("jo", Role::Reader, at(0)).unwrap();
        assert_eq!(sessions.redeem(&late, at(24 * 60 + 1)), None);
    }

    #[test]
    fn a_session_ends_when_it_is_unused_or_a_working_day_old_or_removed() {
        let sessions = Sessions::default();
        let name = sessions.create("jo", Role::Operator, at(0)).unwrap();
        assert!(sessions.user(&name, at(30)).is_some());
        assert!(sessions.user(&name, at(61)).is_none(), "unused for 31 minutes");
        let name = sessions.create("jo", Role::Operator, at(0)).unwrap();
        for minutes in (20..=480).step_by(20) {
            assert!(sessions.user(&name, at(minutes)).is_some(), "{minutes}");
        }
        assert!(sessions.user(&name, at(481)).is_none(), "older than eight hours");
        let name = sessions.create("jo", Role::Operator, at(0)).unwrap();
        let user = sessions.user(&name, at(1)).unwrap();
        sessions.remove(&user);
        assert!(sessions.user(&name, at(1)).is_none() && !sessions.is_valid(&user, at(1)));
    }

    #[test]
    fn a_message_is_shown_once_and_debug_output_has_no_secret() {
        let sessions = Sessions::default();
        let name = sessions.create("jo", Role::Operator, at(0)).unwrap();
        let user = sessions.user(&name, at(0)).unwrap();
        let message = FlashMessage { is_error: false, text: "done".to_owned() };
        sessions.set_flash(&user, message.clone());
        assert_eq!((sessions.take_flash(&user), sessions.take_flash(&user)), (Some(message), None));
        let shown = format!("{user:?} {sessions:?}");
        assert!(!shown.contains(&user.csrf) && !shown.contains(&name), "{shown}");
    }
}
