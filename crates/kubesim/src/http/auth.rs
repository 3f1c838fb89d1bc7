//! Authentication: a client certificate of the cluster's certificate authority, a bearer token of the cluster, or
//! neither, which makes the request anonymous.

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use jiff::Timestamp;

use crate::access::token::ISSUER;
use crate::access::{User, service_account};
use crate::cluster::ClusterInner;

/// The credentials of a connection.
#[derive(Debug, Clone, Default)]
pub enum Credentials {
    /// No client certificate. Requests may have bearer tokens.
    #[default]
    None,
    /// A client certificate that is not of this cluster.
    InvalidCertificate,
    /// The user of a verified client certificate, or of a client in the process.
    User(User),
    /// A client in the process that acts as a ServiceAccount while it exists.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// The user of a request. A valid certificate counts before a token; `None` if what was sent is not valid.
pub(super) fn authenticate(
    cluster: &ClusterInner,
    credentials: &Credentials,
    headers: &HeaderMap,
    now: Timestamp,
) -> Option<User> {
    match credentials {
        Credentials::User(user) => return Some(user.clone()),
        Credentials::ServiceAccount { namespace, name } => {
            return service_account::present_user(&cluster.read(), namespace, name);
        }
        Credentials::None | Credentials::InvalidCertificate => {}
    }
    match (bearer(headers), credentials) {
        (Some(token), _) => token_user(cluster, token, &[ISSUER], now).ok(),
        (None, Credentials::InvalidCertificate) => None,
        (None, _) => Some(User::anonymous()),
    }
}

/// The user of a token that is for one of these audiences, or why there is none, as a TokenReview words it.
pub(super) fn token_user(
    cluster: &ClusterInner,
    token: &str,
    audiences: &[&str],
    now: Timestamp,
) -> Result<User, String> {
    const UNKNOWN: &str = "invalid bearer token";
    if let Some(user) = cluster.access.authenticate_token(token) {
        return Ok(user);
    }
    let claims = cluster.access.claims(token).ok_or(UNKNOWN)?;
    if !claims.aud.iter().any(|own| audiences.contains(&own.as_str())) {
        let (own, wanted) = (crate::rbac::quoted_list(&claims.aud), crate::rbac::quoted_list(audiences));
        return Err(format!(
            "[{UNKNOWN}, token audiences {own} is invalid for the target audiences {wanted}]"
        ));
    }
    service_account::user(&cluster.read(), &claims, now).map_err(|why| format!("[{UNKNOWN}, {why}]"))
}

/// The bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
