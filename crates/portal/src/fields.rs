//! Names and values of a query or a form body.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that are not percent-encoded.
const ENCODE_SET: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Highest number of pairs that are parsed; no form of the portal has more.
const PAIRS_MAX: usize = 2_000;

/// Names and values, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Parses a query or a form body. Pairs that are not UTF-8 are left out.
    pub(crate) fn parse(text: &str) -> Fields {
        let is_text = |text: &str| !text.contains(char::REPLACEMENT_CHARACTER);
        let pairs = form_urlencoded::parse(text.as_bytes()).take(PAIRS_MAX);
        let pairs = pairs.filter(|(name, value)| is_text(name) && is_text(value));
        Fields(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// The first non-empty value of this name, trimmed.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .filter(|(found, _)| found == name)
            .map(|(_, value)| value.trim())
            .find(|value| !value.is_empty())
    }

    /// As [`Fields::get`], or the empty string.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// All values of this name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// All pairs, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A copy with another value for one name, or without the name if the value is empty.
    pub(crate) fn with(&self, name: &str, value: &str) -> Fields {
        let mut pairs: Vec<_> = self.0.iter().filter(|(found, _)| found != name).cloned().collect();
        if !value.is_empty() {
            pairs.push((name.to_owned(), value.to_owned()));
        }
        Fields(pairs)
    }

    /// The query string with the question mark; empty without pairs.
    pub(crate) fn query(&self) -> String {
        let pairs: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value))).collect();
        if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
    }
}

/// Percent-encodes a text for a path or query.
pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ENCODE_SET).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_parsed_and_written_with_one_changed() {
        let fields = Fields::parse("q=a%2Bb+c&state=&sort=-name&x=%ff&q=d");
        assert_eq!((fields.get("q"), fields.get("state"), fields.get("x")), (Some("a+b c"), None, None));
        assert_eq!(fields.all("q").collect::<Vec<_>>(), ["a+b c", "d"]);
        assert_eq!(fields.with("q", "").with("state", "").query(), "?sort=-name");
        assert_eq!(fields.with("q", "ä&=").with("state", "").query(), "?sort=-name&q=%C3%A4%26%3D");
        assert_eq!(Fields::parse("").query(), "");
    }
}
