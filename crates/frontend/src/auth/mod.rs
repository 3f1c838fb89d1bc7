//! Who asks. A client certificate that the configured authority signed and the allow list names, or a bearer token of the
//! configured issuer; without one of them nobody gets further than this.

mod certificate;
mod fetch;
mod keys;
mod token;

use std::sync::Arc;

use http::{HeaderMap, Method, header};
use jiff::Timestamp;

pub(crate) use certificate::{Certificates, Holder};
pub(crate) use fetch::is_protected;
pub(crate) use token::Tokens;

/// The caller's own name behind a tool that speaks for many, for the audit log.
const PRINCIPAL: &str = "x-ms-client-principal-name";

/// Names of callers are kept with everything they do.
const ACTOR_BYTES_MAX: usize = 200;

/// Who asks, and what they may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name in logs, histories and the audit log.
    pub actor: String,
    /// What they may do.
    pub role: Role,
}

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Look at everything.
    Reader,
    /// Look at everything and change it.
    Operator,
}

impl Role {
    /// Whether this role may use that method.
    pub(crate) fn allows(self, method: &Method) -> bool {
        match self {
            Role::Operator => true,
            Role::Reader => matches!(*method, Method::GET | Method::HEAD),
        }
    }
}

/// Decides who comes in.
#[derive(Debug)]
pub(crate) enum Doorman {
    /// Everybody does; only on the loopback interface.
    Open,
    /// Only those with a certificate or token that is known.
    Guarded { certificates: Option<Certificates>, tokens: Option<Box<Tokens>> },
}

/// Why somebody does not come in; for the log, never for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stranger(pub(crate) String);

impl Stranger {
    pub(crate) fn because(why: impl Into<String>) -> Stranger {
        Stranger(why.into())
    }
}

/// What a connection has proved about its client.
#[derive(Debug, Clone, Default)]
pub(crate) struct Proof(pub(crate) Option<Arc<Result<Holder, Stranger>>>);

impl Doorman {
    /// What the certificates of a connection prove.
    pub(crate) fn examine(
        &self,
        chain: Option<&[rustls::pki_types::CertificateDer<'_>]>,
        now: Timestamp,
    ) -> Proof {
        match (self, chain) {
            (Doorman::Guarded { certificates: Some(certificates), .. }, Some(chain)) if !chain.is_empty() => {
                Proof(Some(Arc::new(certificates.holder(chain, now))))
            }
            _ => Proof(None),
        }
    }

    /// Who sends a request. A token that is given decides; a certificate speaks for requests without one.
    pub(crate) async fn identify(
        &self,
        proof: &Proof,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<Identity, Stranger> {
        let principal = principal(headers);
        let (name, role) = match self {
            Doorman::Open => {
                let actor = principal.unwrap_or_else(|| "anonymous".to_owned());
                return Ok(Identity { actor, role: Role::Operator });
            }
            Doorman::Guarded { tokens, .. } => match (bearer(headers)?, tokens, proof.0.as_deref()) {
                (Some(token), Some(tokens), _) => {
                    // A token names its person; nobody speaks for others with it.
                    let (actor, role) = tokens.holder(token, now).await?;
                    return Ok(Identity { actor: short(&actor), role });
                }
                (Some(_), None, _) => return Err(Stranger::because("tokens are not accepted here")),
                (None, _, Some(Ok(holder))) => (holder.name_at(now)?, holder.role),
                (None, _, Some(Err(stranger))) => return Err(stranger.clone()),
                (None, _, None) => return Err(Stranger::because("neither certificate nor token")),
            },
        };
        let actor = match principal {
            Some(principal) => format!("{principal} via {name}"),
            None => name,
        };
        Ok(Identity { actor: short(&actor), role })
    }
}

fn short(text: &str) -> String {
    let end = text.floor_char_boundary(ACTOR_BYTES_MAX);
    text[..end].chars().filter(|letter| !letter.is_control()).collect()
}

/// The name that a fronting tool gives, if it is one.
fn principal(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(PRINCIPAL)?.to_str().ok()?.trim();
    (!text.is_empty()).then(|| short(text))
}

/// The bearer token of a request.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Stranger> {
    let mut values = headers.get_all(header::AUTHORIZATION).into_iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Stranger::because("the header Authorization is there twice"));
    }
    let wrong = || Stranger::because("the header Authorization holds no bearer token");
    let (scheme, token) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(wrong)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(Some(token.trim())) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_only_looks() {
        assert!(Role::Reader.allows(&Method::GET) && Role::Reader.allows(&Method::HEAD));
        for method in [Method::PUT, Method::POST, Method::DELETE, Method::PATCH, Method::OPTIONS] {
            assert!(!Role::Reader.allows(&method) && Role::Operator.allows(&method), "{method}");
        }
    }

    #[test]
    fn a_token_is_taken_from_one_header_only() {
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
    fn a_name_is_cut_and_freed_of_control_characters() {
        assert_eq!(short("a\u{7}b"), "ab");
        assert_eq!(short(&"ä".repeat(300)).len(), 200);
    }
}
