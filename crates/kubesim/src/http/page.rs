//! Pages of a list: resource versions, limits and continue tokens.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::handle::ApiRequest;
use super::query::Query;
use crate::objects::Object;
use crate::schema::FieldError;
use crate::state::State;
use crate::status::{ApiResult, StatusError};
use crate::verbs::Target;

/// Reads a resourceVersion; zero and an empty value mean any.
pub(super) fn revision(text: Option<&str>) -> ApiResult<u64> {
    let Some(text) = text else { return Ok(0) };
    text.parse().map_err(|_| {
        let problem = if text.bytes().all(|byte| byte.is_ascii_digit()) {
            "value out of range"
        } else {
            "invalid syntax"
        };
        let why = format!("strconv.ParseUint: parsing \"{text}\": {problem}");
        let cause = FieldError::invalid("resourceVersion", &json!(text), &why);
        StatusError::bad_request(format!("invalid resource version: {cause}"))
    })
}

/// Fails with a timeout for a revision that does not exist yet, as the real server does after waiting for it.
pub(super) fn require_revision(revision_min: u64, state: &State) -> ApiResult<()> {
    let present = state.objects.revision();
    if revision_min <= present {
        return Ok(());
    }
    let message = format!("Timeout: Too large resource version: {revision_min}, current: {present}");
    let mut failure = StatusError::new(504, "Timeout", message);
    failure.details = json!({
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}], "retryAfterSeconds": 1,
    });
    failure.retry_after = Some(1);
    Err(failure)
}

/// The position at which a list continues; clients get it as an opaque token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ContinueToken {
    v: String,
    rv: i64,
    start: String,
}

impl ContinueToken {
    pub(super) fn new(revision: i64, start: String) -> ContinueToken {
        ContinueToken { v: "meta.k8s.io/v1".to_owned(), rv: revision, start }
    }

    pub(super) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_string(self).unwrap_or_default())
    }

    fn decode(text: &str) -> ApiResult<ContinueToken> {
        let invalid = |why: &str| {
            StatusError::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .or_else(|_| URL_SAFE.decode(text))
            .or_else(|_| STANDARD.decode(text))
            .or_else(|_| STANDARD_NO_PAD.decode(text))
            .map_err(|error| invalid(&error.to_string()))?;
        let token: ContinueToken = serde_json::from_slice(&bytes)
            .map_err(|error| invalid(&invalid_start(&bytes).unwrap_or_else(|| error.to_string())))?;
        if token.v != "meta.k8s.io/v1" {
            return Err(invalid(&format!("server does not recognize this encoded version \"{}\"", token.v)));
        }
        if token.rv == 0 {
            return Err(invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
        }
        if token.start.is_empty() {
            return Err(invalid("encoded start key empty (version meta.k8s.io/v1)"));
        }
        if token.start.starts_with('/') || token.start.split('/').any(|part| part == "..") {
            return Err(invalid(&token.start.clone()));
        }
        Ok(token)
    }
}

/// Rejects options of a list that exclude each other.
fn check_list_options(query: &Query) -> ApiResult<()> {
    let mut causes = Vec::new();
    let version = query.get("resourceVersion");
    if let Some(matching) = query.get("resourceVersionMatch") {
        let mut forbid = |why: &str| causes.push(FieldError::forbidden("resourceVersionMatch", why));
        if version.is_none() {
            forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if query.get("continue").is_some() {
            forbid("resourceVersionMatch is forbidden when continue is provided");
        }
        if matching == "Exact" && version == Some("0") {
            forbid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            let known = ["Exact", "NotOlderThan", ""].map(Value::from);
            causes.push(FieldError::not_supported("resourceVersionMatch", &json!(matching), known.iter()));
        }
    }
    if query.get("sendInitialEvents").is_some() {
        causes.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(StatusError::invalid("meta.k8s.io", "ListOptions", "", &causes))
    }
}

/// Go's error for bytes that do not start like JSON.
fn invalid_start(bytes: &[u8]) -> Option<String> {
    let first = *bytes.iter().find(|byte| !byte.is_ascii_whitespace())?;
    let begins = matches!(first, b'{' | b'[' | b'"' | b'-' | b't' | b'f' | b'n' | b'0'..=b'9');
    let shown = match char::from(first) {
        '\'' => "\\'".to_owned(),
        letter if letter.is_control() => format!("\\u{:04x}", u32::from(letter)),
        letter => letter.to_string(),
    };
    (!begins).then(|| format!("invalid character '{shown}' looking for beginning of value"))
}

/// Which part of a collection is requested, and at which revision.
pub(super) struct Page {
    pub(super) limit: Option<usize>,
    pub(super) token: Option<ContinueToken>,
    pub(super) revision_min: u64,
    pub(super) exact: bool,
}

/// The objects of a page and their revision.
pub(super) struct PageContents {
    pub(super) objects: Vec<Arc<Object>>,
    pub(super) revision: u64,
}

impl Page {
    pub(super) fn from_request(request: &ApiRequest<'_>) -> ApiResult<Page> {
        let query = &request.query;
        let limit =
            query.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
        let version = query.get("resourceVersion");
        let matching = query.get("resourceVersionMatch");
        check_list_options(query)?;
        let token = query.get("continue").map(ContinueToken::decode).transpose()?;
        let exact = match matching {
            None => limit.is_some() && version.is_some_and(|version| version != "0"),
            Some(matching) => matching == "Exact",
        };
        if token.is_some() && version.is_some_and(|version| version != "0") {
            return Err(StatusError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        Ok(Page { limit, token, revision_min: revision(version)?, exact })
    }

    pub(super) fn read(&self, state: &State, target: &Target, prefix: &str) -> ApiResult<PageContents> {
        let table = target.kind.table();
        let start = self.token.as_ref().map(|token| format!("{prefix}{}", token.start)).unwrap_or_default();
        require_revision(self.revision_min, state)?;
        let revision = match &self.token {
            Some(token) if token.rv > 0 => token.rv.unsigned_abs(),
            None if self.exact => self.revision_min,
            _ => state.objects.revision(),
        };
        require_revision(revision, state)?;
        match state.objects.range_at(table, prefix, &start, revision) {
            Some(objects) => Ok(PageContents { objects, revision }),
            None => Err(self.expired()),
        }
    }

    fn expired(&self) -> StatusError {
        let Some(token) = &self.token else {
            return StatusError::expired("The resourceVersion for the provided list is too old.");
        };
        let mut failure = StatusError::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        );
        failure.continue_token = Some(ContinueToken::new(-1, token.start.clone()).encode());
        failure
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_invalid_token_is_rejected() {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        for text in [
            "",
            "%%%",
            "{}",
            &encode("{}"),
            &encode(r#"{"v":"v9","rv":1,"start":"a"}"#),
            &encode(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
            &encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#),
            &encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../x"}"#),
            &encode(r#"{"v":"meta.k8s.io/v1","rv":99999999999999999999,"start":"a"}"#),
        ] {
            assert_eq!(ContinueToken::decode(text).unwrap_err().code, 400, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_token_survives_encoding(revision in 1_i64.., start in "[a-z]{1,9}(/[a-z]{1,9})?") {
            let token = ContinueToken::new(revision, start);
            prop_assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
        }

        #[test]
        fn no_token_panics(text in ".{0,60}") {
            let _ = ContinueToken::decode(&text);
        }
    }
}
