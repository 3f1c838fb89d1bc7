//! Who is signed in. Sessions are kept here, in memory; a browser has only a random name for its own, of which we keep the
//! digest. Links that sign in once are kept in the same manner.

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

/// A session that nobody used for this long is over, and so is any after a working day.
const IDLE_MAX: SignedDuration = SignedDuration::from_mins(30);
const AGE_MAX: SignedDuration = SignedDuration::from_hours(8);

/// How long a link can be used.
const LINK_AGE_MAX: SignedDuration = SignedDuration::from_hours(24);

/// How long signing in at a provider may take.
const ATTEMPT_AGE_MAX: SignedDuration = SignedDuration::from_mins(10);

/// More than this is kept of nothing; the oldest makes room.
const KEPT_MAX: usize = 10_000;

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look at everything.
    Reader,
    /// Look at everything and act.
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

/// Somebody who is signed in.
#[derive(Clone)]
pub(crate) struct SessionUser {
    pub(crate) user: String,
    pub(crate) role: Role,
    /// What everything that changes something must carry.
    pub(crate) csrf: String,
    key: Key,
}

impl SessionUser {
    /// By what a session is counted; nobody can use it.
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

/// What somebody did, told on the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlashMessage {
    pub(crate) is_bad: bool,
    pub(crate) text: String,
}

/// An attempt to sign in at a provider, between leaving and coming back.
pub(crate) struct Attempt {
    pub(crate) verifier: String,
    pub(crate) nonce: String,
    /// Where to go afterwards.
    pub(crate) to: String,
    /// The network that it was begun from, where that is known.
    pub(crate) network: Option<IpAddr>,
}

type Key = [u8; 32];

struct Session {
    user: String,
    role: Role,
    csrf: String,
    begun: Timestamp,
    used: Timestamp,
    told: Option<FlashMessage>,
}

struct Timestamped<T> {
    at: Timestamp,
    value: T,
}

/// Everybody who is signed in, and what lets others in.
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
        f.debug_struct("Sessions").field("count", &self.kept().sessions.len()).finish_non_exhaustive()
    }
}

impl Sessions {
    fn kept(&self) -> MutexGuard<'_, SessionTables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A token that signs in once.
    pub(crate) fn issue(&self, user: &str, role: Role, now: Timestamp) -> Result<String, PortalError> {
        let token = token()?;
        let mut kept = self.kept();
        make_room(&mut kept.links);
        kept.links.insert(key(&token), Timestamped { at: now, value: (user.to_owned(), role) });
        Ok(token)
    }

    /// Whom a token signs in; from now on nobody.
    pub(crate) fn redeem(&self, token: &str, now: Timestamp) -> Option<(String, Role)> {
        let found = self.kept().links.remove(&key(token))?;
        is_fresh(found.at, now, LINK_AGE_MAX).then_some(found.value)
    }

    /// Remembers an attempt to sign in, under a state that only its browser knows.
    pub(crate) fn attempt(&self, attempt: Attempt, state: &str, now: Timestamp) {
        let mut kept = self.kept();
        kept.attempts.insert(key(state), attempt.network, Timestamped { at: now, value: attempt });
    }

    /// The attempt of that state; it is answered once.
    pub(crate) fn answered(&self, state: &str, now: Timestamp) -> Option<Attempt> {
        let found = self.kept().attempts.remove(&key(state))?;
        is_fresh(found.at, now, ATTEMPT_AGE_MAX).then_some(found.value)
    }

    /// Begins a session; what the browser is to call it.
    pub(crate) fn begin(&self, user: &str, role: Role, now: Timestamp) -> Result<String, PortalError> {
        let (name, csrf) = (token()?, token()?);
        let mut kept = self.kept();
        kept.sessions.retain(|_, session| session.is_alive(now));
        if kept.sessions.len() >= KEPT_MAX {
            let oldest = kept.sessions.iter().min_by_key(|(_, session)| session.used).map(|(key, _)| *key);
            oldest.and_then(|key| kept.sessions.remove(&key));
        }
        let session = Session { user: user.to_owned(), role, csrf, begun: now, used: now, told: None };
        kept.sessions.insert(key(&name), session);
        Ok(name)
    }

    /// Whose session it is, if it is one.
    pub(crate) fn user(&self, name: &str, now: Timestamp) -> Option<SessionUser> {
        let key = key(name);
        let mut kept = self.kept();
        let session = kept.sessions.get_mut(&key)?;
        if !session.is_alive(now) {
            kept.sessions.remove(&key);
            return None;
        }
        session.used = now;
        Some(SessionUser { user: session.user.clone(), role: session.role, csrf: session.csrf.clone(), key })
    }

    /// Whether a session is still there, without using it: an open page does not keep its owner signed in for ever.
    pub(crate) fn is_there(&self, user: &SessionUser, now: Timestamp) -> bool {
        self.kept().sessions.get(&user.key).is_some_and(|session| session.is_alive(now))
    }

    /// Ends a session.
    pub(crate) fn end(&self, user: &SessionUser) {
        self.kept().sessions.remove(&user.key);
    }

    /// Tells something on the next page.
    pub(crate) fn tell(&self, user: &SessionUser, told: FlashMessage) {
        if let Some(session) = self.kept().sessions.get_mut(&user.key) {
            session.told = Some(told);
        }
    }

    /// What is to be told; once.
    pub(crate) fn told(&self, user: &SessionUser) -> Option<FlashMessage> {
        self.kept().sessions.get_mut(&user.key)?.told.take()
    }
}

impl Session {
    fn is_alive(&self, now: Timestamp) -> bool {
        is_fresh(self.used, now, IDLE_MAX) && is_fresh(self.begun, now, AGE_MAX)
    }
}

fn is_fresh(at: Timestamp, now: Timestamp, age_max: SignedDuration) -> bool {
    now.duration_since(at) <= age_max
}

fn make_room<T>(kept: &mut HashMap<Key, Timestamped<T>>) {
    if kept.len() >= KEPT_MAX {
        let oldest = kept.iter().min_by_key(|(_, dated)| dated.at).map(|(key, _)| *key);
        oldest.and_then(|key| kept.remove(&key));
    }
}

/// A random text that nobody can guess.
pub(crate) fn token() -> Result<String, PortalError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(PortalError::Random)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// What is kept of a token: who reads our memory cannot use it, and looking it up takes no longer for a near miss.
fn key(token: &str) -> Key {
    Sha256::digest(token.as_bytes()).into()
}

/// Whether two secrets are the same, without telling by the time it takes how much of them is.
pub(crate) fn same(a: &str, b: &str) -> bool {
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
    fn a_session_ends_when_it_is_unused_or_a_working_day_old_or_ended() {
        let sessions = Sessions::default();
        let name = sessions.begin("jo", Role::Operator, at(0)).unwrap();
        assert!(sessions.user(&name, at(30)).is_some());
        assert!(sessions.user(&name, at(61)).is_none(), "unused for 31 minutes");
        let name = sessions.begin("jo", Role::Operator, at(0)).unwrap();
        for minutes in (20..=480).step_by(20) {
            assert!(sessions.user(&name, at(minutes)).is_some(), "{minutes}");
        }
        assert!(sessions.user(&name, at(481)).is_none(), "older than eight hours");
        let name = sessions.begin("jo", Role::Operator, at(0)).unwrap();
        let user = sessions.user(&name, at(1)).unwrap();
        sessions.end(&user);
        assert!(sessions.user(&name, at(1)).is_none() && !sessions.is_there(&user, at(1)));
    }

    #[test]
    fn what_is_told_is_told_once_and_no_debug_tells_a_secret() {
        let sessions = Sessions::default();
        let name = sessions.begin("jo", Role::Operator, at(0)).unwrap();
        let user = sessions.user(&name, at(0)).unwrap();
        let told = FlashMessage { is_bad: false, text: "done".to_owned() };
        sessions.tell(&user, told.clone());
        assert_eq!((sessions.told(&user), sessions.told(&user)), (Some(told), None));
        let shown = format!("{user:?} {sessions:?}");
        assert!(!shown.contains(&user.csrf) && !shown.contains(&name), "{shown}");
    }
}
