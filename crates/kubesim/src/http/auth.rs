//! Who asks: a client certificate of the cluster's own authority, or a bearer token that the cluster gave out.

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;

/// A user of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: Arc<str>,
    /// The groups.
    pub groups: Arc<[String]>,
}

impl User {
    /// The administrator, who may do everything.
    pub fn admin() -> User {
        User {
            name: "admin".into(),
            groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()].into(),
        }
    }

    /// Whoever the cluster was made for; they may do everything too, under a name of their own.
    pub fn customer() -> User {
        User { name: "customer-admin".into(), ..User::admin() }
    }
}

/// What a connection or a request proves.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// The user that the client certificate names, verified.
    pub certificate: Option<User>,
}

/// The bearer token of a request.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
