//! Query strings.

use crate::status::{ApiResult, StatusError};

/// The parameters of a request, in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Reads a query string.
    pub(super) fn parse(text: &str) -> Query {
        let pairs = text
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decode(key, true), decode(value, true))
            })
            .collect();
        Query { pairs }
    }

    /// The first value of a parameter; an empty one counts as missing.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(key, value)| key == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// Every value of a parameter.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of a boolean parameter.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.pairs
            .iter()
            .any(|(key, value)| key == name && !matches!(value.as_str(), "false" | "0" | "False" | "FALSE"))
    }

    /// The value of an integer parameter.
    pub(super) fn number(&self, name: &str) -> ApiResult<Option<i64>> {
        let Some(text) = self.get(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            StatusError::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"))
        })
    }
}

/// Decodes percent encoding; an invalid sequence stays unchanged.
pub(super) fn decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let hex = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (bytes[index], hex(index + 1), hex(index + 2)) {
            (b'%', Some(high), Some(low)) => {
                plain.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                index += 3;
            }
            (b'+', ..) if plus_is_space => {
                plain.push(b' ');
                index += 1;
            }
            (byte, ..) => {
                plain.push(byte);
                index += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded() {
        let query = Query::parse("labelSelector=app%3Dweb%2Ctier+in+%28a%29&watch&limit=5&empty=");
        assert_eq!(query.get("labelSelector"), Some("app=web,tier in (a)"));
        assert!(query.flag("watch"));
        assert_eq!(query.number("limit"), Ok(Some(5)));
        assert_eq!(query.get("empty"), None);
        assert!(Query::parse("limit=x").number("limit").is_err());
        assert_eq!(decode("%zz%4", false), "%zz%4");
    }
}
