//! Request bodies: limited in size and time, JSON (or YAML on some routes), without duplicate members.

use std::fmt;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{ApiError, Code, as_sentence};

/// Largest accepted body.
pub(crate) const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a body that is too long which are read and discarded, so that its sender gets the response instead of a broken connection.
const DISCARDED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Longest time for reading a body.
const READ_TIME_MAX: Duration = Duration::from_secs(10);

/// The whole body, if it is small enough. Bytes beyond the limit are never stored.
pub(super) async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, ApiError> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let expects = headers.get(header::EXPECT).is_some();
    if announced.is_some_and(|length: u64| length > BODY_BYTES_MAX as u64) && expects {
        return Err(too_long());
    }
    match tokio::time::timeout(READ_TIME_MAX, gather(body)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(unreadable("The body did not arrive in time.")),
    }
}

async fn gather(mut body: Body) -> Result<Bytes, ApiError> {
    let mut kept = BytesMut::new();
    let mut seen = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| unreadable("The body could not be read."))?;
        let Ok(data) = frame.into_data() else { continue };
        seen += data.len();
        if seen > DISCARDED_BYTES_MAX {
            break;
        }
        if seen > BODY_BYTES_MAX {
            kept = BytesMut::new();
        } else {
            kept.extend_from_slice(&data);
        }
    }
    if seen > BODY_BYTES_MAX { Err(too_long()) } else { Ok(kept.freeze()) }
}

fn too_long() -> ApiError {
    unreadable(&format!("The body is longer than {BODY_BYTES_MAX} bytes."))
}

fn unreadable(message: &str) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, Code::InvalidResource, message)
}

/// The format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Media {
    Json,
    Yaml,
}

/// The media type of a body; an unsupported one is an error. None when there is neither a type nor a body.
pub(super) fn media(headers: &HeaderMap, body: &[u8], yaml: bool) -> Result<Option<Media>, ApiError> {
    let accepted = if yaml { "application/json or application/yaml" } else { "application/json" };
    let refuse = || {
        let message = format!("The body must be {accepted}, and the header Content-Type must say so.");
        Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::UnsupportedMediaType, message))
    };
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return if body.is_empty() { Ok(None) } else { refuse() };
    };
    let Ok(text) = value.to_str() else { return refuse() };
    match text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/json" => Ok(Some(Media::Json)),
        "application/yaml" | "application/x-yaml" | "text/yaml" if yaml => Ok(Some(Media::Yaml)),
        _ => refuse(),
    }
}

/// Parses the body as a type.
pub(super) fn parse<T: DeserializeOwned>(media: Media, body: &[u8]) -> Result<T, ApiError> {
    let value = match media {
        Media::Json => json(body)?,
        Media::Yaml => yaml(body)?,
    };
    if !value.is_object() {
        return Err(ApiError::invalid_content("The body must be an object."));
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let message = as_sentence(error.inner());
        match path.as_str() {
            "." => ApiError::invalid_parameter(missing_member(&message).unwrap_or_default(), message),
            path => ApiError::invalid_parameter(path, message),
        }
    })
}

/// The name of the missing member in serde's message.
fn missing_member(sentence: &str) -> Option<String> {
    let rest = sentence.strip_prefix("Missing field `")?;
    rest.split('`').next().map(str::to_owned)
}

pub(super) fn json(body: &[u8]) -> Result<Value, ApiError> {
    if body.is_empty() {
        return Err(ApiError::invalid_content("The body is empty; it must be a JSON object."));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = Strict.deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|error| ApiError::invalid_content(format!("The body is not valid JSON: {error}.")))
}

/// The body as a JSON object.
pub(super) fn object(body: &[u8]) -> Result<Value, ApiError> {
    let value = json(body)?;
    if value.is_object() { Ok(value) } else { Err(ApiError::invalid_content("The body must be an object.")) }
}

fn yaml(body: &[u8]) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(body).map_err(|_| ApiError::invalid_content("The body is not UTF-8."))?;
    // The parser limits depth, anchors and aliases, and rejects duplicate keys.
    serde_saphyr::from_str(text).map_err(|error| {
        let place = error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
        ApiError::invalid_content(format!("The body is not valid YAML{}.", place.unwrap_or_default()))
    })
}

/// A JSON value without duplicate members, which would be ambiguous.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = elements.next_element_seed(Strict)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = members.next_value_seed(Strict)?;
            if map.contains_key(&name) {
                return Err(A::Error::custom(format!("duplicate member {name:?}")));
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use api::admin::{BudgetRequest, ManifestRequest};
    use proptest::prelude::*;

    use super::*;

    fn error<T: DeserializeOwned>(body: &[u8]) -> String {
        format!("{:?}", parse::<T>(Media::Json, body).err())
    }

    #[test]
    fn a_body_that_is_no_object_is_invalid_content_and_a_wrong_member_is_named() {
        for body in [
            &b""[..],
            b"null",
            b"[]",
            b"{",
            b"{\"a\":1,\"a\":2}",
            b"\xff",
            b"{\"a\":\"\xff\"}",
            b"{} x",
            b"1e999",
        ] {
            assert!(error::<ManifestRequest>(body).contains("InvalidRequestContent"), "{body:?}");
        }
        let nested = b"{\"parameters\":{\"x\":{\"y\":1,\"y\":2}}}";
        assert!(error::<ManifestRequest>(nested).contains("InvalidRequestContent"));
        let deep = "[".repeat(100_000);
        assert!(error::<ManifestRequest>(deep.as_bytes()).contains("InvalidRequestContent"));
        assert!(error::<ManifestRequest>(b"{\"priority\":99999999999}").contains("\"priority\""));
        assert!(error::<ManifestRequest>(b"{\"runAfter\":\"x\"}").contains("\"runAfter\""));
        assert!(error::<BudgetRequest>(b"{\"limit\":1,\"limti\":2}").contains("\"limti\""));
        assert!(error::<BudgetRequest>(b"{\"limit\":-1}").contains("\"limit\""));
    }

    #[test]
    fn yaml_is_parsed_within_limits() {
        let read = |text: &str| parse::<ManifestRequest>(Media::Yaml, text.as_bytes());
        assert_eq!(read("priority: 3\n").unwrap().priority, Some(3));
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                    d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n\
                    g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n";
        assert!(read(bomb).is_err());
        assert!(read("a: &a [*a]\n").is_err());
        assert!(read("priority: 1\npriority: 2\n").is_err());
    }

    proptest! {
        #[test]
        fn no_body_makes_the_parsers_panic(bytes: Vec<u8>) {
            let _ = parse::<ManifestRequest>(Media::Json, &bytes);
            let _ = parse::<ManifestRequest>(Media::Yaml, &bytes);
        }
    }
}
