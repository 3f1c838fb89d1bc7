//! A document as it is stored, before anyone gives it a type.

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

/// A body may not be larger than this: every reader of a page holds a page of them in memory.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;

/// A page of a list holds at most this many documents.
pub const PAGE_MAX: usize = 1000;

/// Paths, scopes and unique keys are index keys; PostgreSQL refuses index entries much beyond this.
pub const KEY_BYTES_MAX: usize = 2000;

/// A document's version: a counter that is raised by one at each change. Callers see it as opaque text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Etag(pub(crate) i64);

impl Etag {
    /// The version that every document begins with.
    pub(crate) const FIRST: Etag = Etag(1);

    pub(crate) fn next(self) -> Etag {
        Etag(self.0 + 1)
    }
}

impl fmt::Display for Etag {
    /// As in an HTTP header, quotes included.
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
                    "{text:?} is no etag of this store; give one as a read answered it"
                ))
            })
    }
}

/// A body as an engine has it. Text is taken apart once, into the type that the reader wants.
#[derive(Debug, Clone)]
pub(crate) enum RawBody {
    /// As it was stored.
    Text(Box<str>),
    /// Taken apart already.
    Value(Value),
}

impl RawBody {
    /// As the type that it was written from.
    pub(crate) fn read<T: serde::de::DeserializeOwned>(&self) -> serde_json::Result<T> {
        match self {
            RawBody::Text(text) => serde_json::from_str(text),
            RawBody::Value(value) => T::deserialize(value),
        }
    }

    /// As any JSON, with fields that the type does not know.
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

/// A body to be stored: JSON as text, its fields in the order of their names. It is made once, for whoever measures it, tells two
/// of them apart or writes it. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Body(Arc<str>);

impl Body {
    /// The text of a value. Objects are ordered by key in `serde_json` as we build it, so equal values give equal text.
    pub(crate) fn of(value: &Value) -> Body {
        Body(value.to_string().into())
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// By which two states of a thing are told apart without keeping either.
    pub(crate) fn digest(&self) -> String {
        format!("sha256:{}", hex(&Sha256::digest(self.0.as_bytes())))
    }

    /// Whether a text in it holds the character NUL, which not every engine can store.
    pub(crate) fn has_nul(&self) -> bool {
        // The character is written as this escape. A backslash in front of one is written as two: what looks like the escape
        // is one only behind an even number of them.
        self.0.match_indices("\\u0000").any(|(at, _)| {
            let before = self.0[..at].bytes().rev().take_while(|byte| *byte == b'\\').count();
            before % 2 == 0
        })
    }
}

/// JSON that the store has kept as text.
pub(crate) fn text_value(text: &str) -> Result<Value, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Broken {
        what: "a row holds text that is not JSON".to_owned(),
        source: Some(Box::new(error)),
    })
}

/// A document as the store holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredDocument<B = Value> {
    /// Its identity, for ever.
    pub uuid: Uuid,
    /// Its path, in lower case, unique among the living.
    pub id: String,
    /// What kind of noun it is.
    pub kind: String,
    /// The scope under which it is listed.
    pub parent: String,
    /// Its version.
    pub etag: Etag,
    /// How often what is wanted of it has changed.
    pub generation: i64,
    /// The JSON object itself.
    pub body: B,
    /// When it was created.
    pub created: Timestamp,
    /// When it was last changed.
    pub changed: Timestamp,
}

impl StoredDocument<RawBody> {
    /// With its body taken apart.
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

/// Which documents a list shows.
#[derive(Debug, Clone, Default)]
pub struct DocumentQuery {
    /// The kind; required.
    pub kind: String,
    /// Only those listed under this scope; all scopes when absent.
    pub parent: Option<String>,
    /// Only those whose path begins with this, in the order of their paths.
    pub prefix: Option<String>,
    /// Continue behind this document: the last one's scope and path.
    pub after: Option<(String, String)>,
    /// At most so many, up to [`PAGE_MAX`].
    pub limit: usize,
}

/// The first text behind all texts that begin with `prefix`, for a range scan.
pub(crate) fn behind(prefix: &str) -> String {
    // Every byte of a UTF-8 text is below 0xFF, and both engines compare paths byte by byte; the highest
    // character makes an upper bound that no path of ours reaches.
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
            let refusal = nonsense.parse::<Etag>().unwrap_err().to_string();
            assert!(refusal.contains("is no etag"), "{refusal}");
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
            prop_assert_eq!(Body::of(&value).has_nul(), expect);
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
