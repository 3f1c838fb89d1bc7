//! Documents as they are stored, without their type.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::StoreError;
use crate::migrate::hex;

/// Largest body: every reader of a page holds a page of them in memory.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Most documents in one page.
pub const PAGE_MAX: usize = 1000;

/// Largest path, scope and unique key: they are index keys, and PostgreSQL rejects index entries much beyond this.
pub const KEY_BYTES_MAX: usize = 2000;

/// A document's version: a counter that each change increments. Callers see it as opaque text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Etag(pub(crate) i64);

impl Etag {
    /// Version of a new document.
    pub(crate) const FIRST: Etag = Etag(1);

    pub(crate) fn next(self) -> Etag {
        Etag(self.0 + 1)
    }
}

impl fmt::Display for Etag {
    /// Formats as in an HTTP header, quotes included.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{:x}\"", self.0)
    }
}

impl FromStr for Etag {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Etag, StoreError> {
        text.strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .filter(|inner| inner.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
            .and_then(|inner| i64::from_str_radix(inner, 16).ok())
            .filter(|counter| *counter > 0 && format!("\"{counter:x}\"") == text)
            .map(Etag)
            .ok_or_else(|| {
                StoreError::invalid(format!(
                    "{text:?} is not an etag of this store; use one that a read returned"
                ))
            })
    }
}

/// A body as an engine returns it. Text is parsed once, into the type that the reader wants.
#[derive(Debug, Clone)]
pub(crate) enum RawBody {
    /// Unparsed.
    Text(Box<str>),
    /// Parsed.
    Value(Value),
}

impl RawBody {
    /// Parses into the type that it was written from.
    pub(crate) fn read<T: serde::de::DeserializeOwned>(&self) -> serde_json::Result<T> {
        match self {
            RawBody::Text(text) => serde_json::from_str(text),
            RawBody::Value(value) => T::deserialize(value),
        }
    }

    /// Parses into a JSON value, including fields that the type does not know.
    pub(crate) fn value(&self) -> Result<std::borrow::Cow<'_, Value>, StoreError> {
        use std::borrow::Cow;
        match self {
            RawBody::Text(text) => text_value(text).map(Cow::Owned),
            RawBody::Value(value) => Ok(Cow::Borrowed(value)),
        }
    }

    pub(crate) fn into_value(self) -> Result<Value, StoreError> {
        match self {
            RawBody::Text(text) => text_value(&text),
            RawBody::Value(value) => Ok(value),
        }
    }
}

impl PartialEq for RawBody {
    fn eq(&self, other: &RawBody) -> bool {
        match (self.value(), other.value()) {
            (Ok(one), Ok(other)) => one == other,
            _ => false,
        }
    }
}

/// A body to be stored: JSON text with sorted keys, serialised once for validation, digest and write. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Body(Arc<str>);

impl Body {
    /// Serialises a value. `serde_json` sorts objects by key in this build, so equal values give equal text.
    pub(crate) fn new(value: &Value) -> Body {
        Body(value.to_string().into())
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Digest by which two versions are compared without storing either.
    pub(crate) fn digest(&self) -> String {
        format!("sha256:{}", hex(&Sha256::digest(self.0.as_bytes())))
    }

    /// Whether it contains the character NUL, which not every engine can store.
    pub(crate) fn has_nul(&self) -> bool {
        // NUL is written as this escape, and a backslash before it as two: the sequence is the escape only behind an
        // even number of backslashes.
        self.0.match_indices("\\u0000").any(|(at, _)| {
            let before = self.0[..at].bytes().rev().take_while(|byte| *byte == b'\\').count();
            before % 2 == 0
        })
    }
}

/// Parses JSON that the store holds as text.
pub(crate) fn text_value(text: &str) -> Result<Value, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Broken {
        what: "a row holds text that is not JSON".to_owned(),
        source: Some(Box::new(error)),
    })
}

/// A document as the store holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredDocument<B = Value> {
    /// Permanent identity.
    pub uuid: Uuid,
    /// Path in lower case, unique among documents that are not deleted.
    pub id: String,
    /// Kind of document.
    pub kind: String,
    /// Scope under which it is listed.
    pub parent: String,
    /// Version.
    pub etag: Etag,
    /// Number of changes of the desired state.
    pub generation: i64,
    /// Its JSON object.
    pub body: B,
    /// Time of creation.
    pub created: Timestamp,
    /// Time of the last change.
    pub changed: Timestamp,
}

impl StoredDocument<RawBody> {
    /// Parses the body.
    pub(crate) fn open(self) -> Result<StoredDocument, StoreError> {
        let StoredDocument { uuid, id, kind, parent, etag, generation, body, created, changed } = self;
        Ok(StoredDocument {
            uuid,
            id,
            kind,
            parent,
            etag,
            generation,
            body: body.into_value()?,
            created,
            changed,
        })
    }
}

/// Query for a list of documents.
#[derive(Debug, Clone, Default)]
pub struct DocumentQuery {
    /// Kind; required.
    pub kind: String,
    /// Scope; all scopes when absent.
    pub parent: Option<String>,
    /// Path prefix; the result is then sorted by path.
    pub prefix: Option<String>,
    /// Continue behind this document: scope and path of the last one.
    pub after: Option<(String, String)>,
    /// Most results, up to [`PAGE_MAX`].
    pub limit: usize,
}

/// Upper bound of all texts with this prefix, for a range scan.
pub(crate) fn behind(prefix: &str) -> String {
    // Both engines compare paths byte by byte; the highest character makes an upper bound that no path reaches.
    format!("{prefix}\u{10FFFF}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_etag_is_opaque_quoted_text() {
        assert_eq!(Etag(26).to_string(), "\"1a\"");
        for nonsense in [
            "",
            "1a",
            "\"\"",
            "\"-1\"",
            "\"0\"",
            "\"1A\"",
            "W/\"1\"",
            "\"01\"",
            "\"+1\"",
            "*",
            "\"ffffffffffffffffff\"",
        ] {
            let error = nonsense.parse::<Etag>().unwrap_err().to_string();
            assert!(error.contains("is not an etag"), "{error}");
        }
    }

    fn any_text() -> impl Strategy<Value = String> {
        proptest::collection::vec(
            prop_oneof![Just('\\'), Just('\0'), Just('u'), Just('0'), Just('"'), any::<char>()],
            0..12,
        )
        .prop_map(|letters| letters.into_iter().collect())
    }

    proptest! {
        #[test]
        fn nul_is_found_in_names_and_texts_and_nowhere_else(name in any_text(), text in any_text()) {
            let expect = name.contains('\0') || text.contains('\0');
            let value = serde_json::json!({ name: [{ "x": text }, 0, null] });
            prop_assert_eq!(Body::new(&value).has_nul(), expect);
        }

        #[test]
        fn an_etag_is_read_back_as_written(counter in 1..i64::MAX) {
            prop_assert_eq!(Etag(counter).to_string().parse::<Etag>().unwrap(), Etag(counter));
        }

        #[test]
        fn no_text_makes_the_etag_parser_panic(text in ".*") {
            let _ = text.parse::<Etag>();
        }
    }
}
