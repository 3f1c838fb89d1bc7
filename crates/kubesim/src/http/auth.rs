//! Authentication: a client certificate of the cluster's certificate authority, or a bearer token of the cluster.

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;

/// A user of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user name.
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

    /// The customer who owns the cluster; has all permissions too, under another name.
    pub fn customer() -> User {
        User { name: "customer-admin".into(), ..User::admin() }
    }
}

/// The credentials of a connection.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// The user of the verified client certificate.
    pub certificate: Option<User>,
}

/// The bearer token of a request.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
