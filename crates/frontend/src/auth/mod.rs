//! Authentication. Operators use a client certificate that the configured authority signed and the configuration lists, or a bearer
//! token of the configured issuer. Callers of the resource manager's API, who may use no other, have a listed certificate, a token of
//! the issuer, or a token that the token validation service accepts. All other requests are rejected here.

mod arm;
mod certificate;
mod fetch;
mod keys;
mod token;

use std::sync::Arc;

use api::actor;
use http::{HeaderMap, Method, Uri, header};
use jiff::Timestamp;

pub(crate) use arm::{AllowList, TokenService};
pub(crate) use certificate::{CertificateHolder, CertificateVerifier};
pub(crate) use fetch::is_protected;
pub(crate) use token::TokenVerifier;

/// The name of the person behind a tool that acts for many, for the audit log.
const PRINCIPAL: &str = "x-ms-client-principal-name";

/// The name of a resource manager whose identity has no name.
const RESOURCE_MANAGER: &str = "resource manager";

/// An authenticated caller and its role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name in logs, histories and the audit log.
    pub actor: String,
    /// The caller's role.
    pub role: Role,
}

/// The permissions of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// May read everything.
    Reader,
    /// May read and change everything.
    Operator,
}

impl Role {
    /// Whether this role may use the method.
    pub(crate) fn allows(self, method: &Method) -> bool {
        match self {
            Role::Operator => true,
            Role::Reader => matches!(*method, Method::GET | Method::HEAD),
        }
    }
}

/// The API that a request addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// The Admin API: a path under `/admin`, or `api-version=admin` anywhere.
    Admin,
    /// The resource manager's API.
    Arm,
}

/// The parts of a request that authentication needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestContext<'a> {
    pub(crate) audience: Audience,
    pub(crate) method: &'a Method,
    /// In the caller's spelling.
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) peer: &'a str,
}

/// Authenticates requests.
#[derive(Debug)]
pub(crate) enum Authenticator {
    /// Accepts every request; only on the loopback interface.
    AllowAll,
    /// Requires an accepted certificate or token.
    Required(Box<AuthenticationMethods>),
}

/// The configured methods of authentication.
#[derive(Debug)]
pub(crate) struct AuthenticationMethods {
    pub(crate) certificates: Option<CertificateVerifier>,
    pub(crate) tokens: Option<TokenVerifier>,
    pub(crate) callers: Option<AllowList>,
    pub(crate) token_service: Option<TokenService>,
    pub(crate) admit_operators: bool,
}

/// Why authentication failed; for the log, never for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthenticationError(pub(crate) String);

impl AuthenticationError {
    pub(crate) fn new(why: impl Into<String>) -> AuthenticationError {
        AuthenticationError(why.into())
    }
}

/// The result of verifying the certificates of a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientProof {
    /// The holder, if the operators' authority signed the certificate.
    holder: Option<Arc<Result<CertificateHolder, AuthenticationError>>>,
    /// The client's own certificate, in DER.
    leaf: Option<Arc<[u8]>>,
    /// Whether it is the resource manager of this process.
    is_resource_manager: bool,
}

impl ClientProof {
    /// The proof of a component of this process.
    pub(crate) fn in_process(name: &str) -> ClientProof {
        let holder = Some(Arc::new(Ok(CertificateHolder::in_process(name))));
        ClientProof { holder, ..ClientProof::default() }
    }

    /// The proof of a resource manager in this process, which may use no other API than its own.
    pub(crate) fn resource_manager() -> ClientProof {
        ClientProof { is_resource_manager: true, ..ClientProof::default() }
    }
}

impl Authenticator {
    /// Verifies the certificates of a connection.
    pub(crate) fn examine(
        &self,
        chain: Option<&[rustls::pki_types::CertificateDer<'_>]>,
        now: Timestamp,
    ) -> ClientProof {
        let (Authenticator::Required(guarded), Some([leaf, ..])) = (self, chain) else {
            return ClientProof::default();
        };
        let holder = guarded.certificates.as_ref().map(|it| it.holder(chain.unwrap_or_default(), now));
        ClientProof {
            holder: holder.map(Arc::new),
            leaf: Some(leaf.as_ref().into()),
            is_resource_manager: false,
        }
    }

    /// Authenticates the sender of a request.
    pub(crate) async fn identify(
        &self,
        proof: &ClientProof,
        context: &RequestContext<'_>,
        now: Timestamp,
    ) -> Result<Identity, AuthenticationError> {
        match (self, context.audience) {
            (Authenticator::AllowAll, _) => {
                let claimed = principal(context.headers)?.and_then(actor::claim);
                let actor = claimed.unwrap_or_else(|| "anonymous".to_owned());
                Ok(Identity { actor, role: Role::Operator })
            }
            (Authenticator::Required(guarded), Audience::Admin) => {
                guarded.operator(proof, context.headers, now).await
            }
            (Authenticator::Required(guarded), Audience::Arm) => guarded.caller(proof, context, now).await,
        }
    }

    /// Why no caller could authenticate now; none when authentication works.
    pub(crate) fn problem(&self, now: Timestamp) -> Option<&'static str> {
        match self {
            Authenticator::AllowAll => None,
            // The token service accepts callers independently of the list.
            Authenticator::Required(guarded) if guarded.token_service.is_some() => None,
            Authenticator::Required(guarded) => {
                guarded.callers.as_ref().and_then(|callers| callers.problem(now))
            }
        }
    }
}

impl AuthenticationMethods {
    /// Authenticates an operator: by the token if the request has one, by the certificate otherwise.
    async fn operator(
        &self,
        proof: &ClientProof,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<Identity, AuthenticationError> {
        let (name, role) = match (bearer(headers)?, &self.tokens, proof.holder.as_deref()) {
            (Some(token), Some(tokens), _) => {
                // A token names a person, who cannot act for others.
                let (actor, role) = tokens.holder(token, Audience::Admin, now).await?;
                return Ok(Identity { actor, role });
            }
            (Some(_), None, _) => return Err(AuthenticationError::new("tokens are not accepted here")),
            (None, _, Some(Ok(holder))) => (holder.name_at(now)?, holder.role),
            (None, _, Some(Err(error))) => return Err(error.clone()),
            (None, _, None) => return Err(AuthenticationError::new("neither certificate nor token")),
        };
        Ok(Identity { actor: acting_for(headers, &name)?, role })
    }

    /// Authenticates a caller of the resource manager's API: by the token first, and unless tokens are enforced by the certificate.
    async fn caller(
        &self,
        proof: &ClientProof,
        context: &RequestContext<'_>,
        now: Timestamp,
    ) -> Result<Identity, AuthenticationError> {
        if proof.is_resource_manager {
            let actor = acting_for(context.headers, RESOURCE_MANAGER)?;
            return Ok(Identity { actor, role: Role::Operator });
        }
        let mut why = Vec::new();
        // An invalid Authorization header does not exclude the certificate.
        let token = bearer(context.headers).unwrap_or_else(|error| {
            why.push(error.0);
            None
        });
        if let Some(service) = &self.token_service {
            let judged = match token {
                Some(token) => service.accepts(context, token).await,
                None => Err(AuthenticationError::new("no token for the token service")),
            };
            match judged {
                Ok(()) => {
                    let actor = acting_for(context.headers, RESOURCE_MANAGER)?;
                    return Ok(Identity { actor, role: Role::Operator });
                }
                Err(error) if service.is_enforced => return Err(error),
                Err(error) => why.push(error.0),
            }
        }
        if let (Some(tokens), Some(token)) = (&self.tokens, token) {
            match tokens.holder(token, Audience::Arm, now).await {
                Ok((actor, role)) => return Ok(Identity { actor, role }),
                Err(error) => why.push(error.0),
            }
        }
        if let (Some(callers), Some(leaf)) = (&self.callers, &proof.leaf) {
            match callers.caller(leaf, now) {
                Ok(name) => {
                    return Ok(Identity { actor: acting_for(context.headers, &name)?, role: Role::Operator });
                }
                Err(error) => why.push(error.0),
            }
        }
        match proof.holder.as_deref() {
            Some(Ok(holder)) if self.admit_operators => {
                let name = holder.name_at(now)?;
                return Ok(Identity { actor: acting_for(context.headers, &name)?, role: holder.role });
            }
            Some(Ok(_)) => why.push("operators may not use the resource manager's API".to_owned()),
            Some(Err(error)) => why.push(error.0.clone()),
            None if why.is_empty() => why.push("neither certificate nor token".to_owned()),
            None => {}
        }
        Err(AuthenticationError::new(why.join("; ")))
    }
}

/// The actor of a request: the authenticated name, with the name of the person for whom the caller acts.
fn acting_for(headers: &HeaderMap, name: &str) -> Result<String, AuthenticationError> {
    Ok(actor::acting_for(principal(headers)?, name))
}

/// The normalized name of an authenticated caller, under which its actions are recorded. A name that would have to be shortened is
/// rejected.
fn identity(name: &str) -> Result<String, AuthenticationError> {
    actor::identity(name)
        .map_err(|why| AuthenticationError::new(format!("the name of the caller is not accepted: {why}")))
}

/// The name in the principal header; not normalized.
fn principal(headers: &HeaderMap) -> Result<Option<&str>, AuthenticationError> {
    let mut values = headers.get_all(PRINCIPAL).into_iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        // Two headers are ambiguous.
        return Err(AuthenticationError::new(format!("the header {PRINCIPAL} occurs twice")));
    }
    Ok(value.to_str().ok())
}

/// The bearer token of a request.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, AuthenticationError> {
    let mut values = headers.get_all(header::AUTHORIZATION).into_iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(AuthenticationError::new("the header Authorization occurs twice"));
    }
    let wrong = || AuthenticationError::new("the header Authorization contains no bearer token");
    let (scheme, token) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(wrong)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(Some(token.trim())) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_may_only_use_get_and_head() {
        assert!(Role::Reader.allows(&Method::GET) && Role::Reader.allows(&Method::HEAD));
        for method in [Method::PUT, Method::POST, Method::DELETE, Method::PATCH, Method::OPTIONS] {
            assert!(!Role::Reader.allows(&method) && Role::Operator.allows(&method), "{method}");
        }
    }

    #[tokio::test]
    async fn a_resource_manager_of_this_process_may_not_use_the_admin_api() {
        let methods = AuthenticationMethods {
            certificates: None,
            tokens: None,
            callers: None,
            token_service: None,
            admit_operators: true,
        };
        let authenticator = Authenticator::Required(Box::new(methods));
        let mut headers = HeaderMap::new();
        headers.insert(PRINCIPAL, http::HeaderValue::from_static("app"));
        let identify = async |audience, proof: ClientProof| {
            let uri = Uri::from_static("/x");
            let context =
                RequestContext { audience, method: &Method::PUT, uri: &uri, headers: &headers, peer: "test" };
            authenticator.identify(&proof, &context, Timestamp::UNIX_EPOCH).await
        };
        let known = identify(Audience::Arm, ClientProof::resource_manager()).await.unwrap();
        assert_eq!((known.actor.as_str(), known.role), ("app via resource manager", Role::Operator));
        assert!(identify(Audience::Admin, ClientProof::resource_manager()).await.is_err());
        assert!(identify(Audience::Arm, ClientProof::default()).await.is_err());
    }

    #[test]
    fn a_token_is_accepted_from_a_single_header() {
        let check = |values: &[&str], expect: Result<Option<&str>, ()>| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            assert_eq!(bearer(&headers).map_err(drop), expect, "{values:?}");
        };
        check(&[], Ok(None));
        check(&["Bearer abc"], Ok(Some("abc")));
        check(&["bearer  abc "], Ok(Some("abc")));
        check(&["Basic abc"], Err(()));
        check(&["Bearer"], Err(()));
        check(&["Bearer a", "Bearer b"], Err(()));
    }

    #[test]
    fn a_principal_name_never_replaces_the_authenticated_name() {
        let check = |claims: &[&str], expect: Result<&str, ()>| {
            let mut headers = HeaderMap::new();
            for claim in claims {
                headers.append(PRINCIPAL, http::HeaderValue::from_bytes(claim.as_bytes()).unwrap());
            }
            let actor = acting_for(&headers, "shipshape-operator").map_err(drop);
            assert_eq!(actor, expect.map(str::to_owned), "{claims:?}");
        };
        check(&[], Ok("shipshape-operator"));
        check(&["jo@example"], Ok("jo@example via shipshape-operator"));
        check(&[&format!("jo{}x", " ".repeat(300))], Ok("jo x via shipshape-operator"));
        check(&["jo\t\tx"], Ok("jo x via shipshape-operator"));
        check(&["   "], Ok("shipshape-operator"));
        check(&["j\u{fc}"], Ok("shipshape-operator"));
        check(&["jo", "al"], Err(()));
        let long = format!("{}… via shipshape-operator", "x".repeat(597));
        check(&[&"x".repeat(5000)], Ok(&long));
    }

    #[test]
    fn an_authenticated_name_that_is_too_long_is_rejected() {
        assert_eq!(identity(&"x".repeat(200)), Ok("x".repeat(200)));
        let error = identity(&"x".repeat(201)).unwrap_err().0;
        assert_eq!(error, "the name of the caller is not accepted: it has more than 200 bytes");
    }
}
