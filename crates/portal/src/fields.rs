//! Names and values as they stand in a query or in the body of a form; read, and written again with something changed.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What stands in a query as it is.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// More than this is no form of ours.
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

    /// The first value of that name, without space around it; none when it is absent or empty.
    pub(crate) fn one(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .filter(|(found, _)| found == name)
            .map(|(_, value)| value.trim())
            .find(|value| !value.is_empty())
    }

    /// The value, or the empty text.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.one(name).unwrap_or_default()
    }

    /// Every value of that name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The same with another value for one name; without it when the value is empty.
    pub(crate) fn with(&self, name: &str, value: &str) -> Fields {
        let mut pairs: Vec<_> = self.0.iter().filter(|(found, _)| found != name).cloned().collect();
        if !value.is_empty() {
            pairs.push((name.to_owned(), value.to_owned()));
        }
        Fields(pairs)
    }

    /// As a query, with the question mark; empty when there is nothing.
    pub(crate) fn query(&self) -> String {
        let pairs: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value))).collect();
        if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
    }
}

/// A text as it stands in a path or query.
pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, KEPT).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_written_again_with_one_changed() {
        let fields = Fields::parse("q=a%2Bb+c&state=&sort=-name&x=%ff&q=d");
        assert_eq!((fields.one("q"), fields.one("state"), fields.one("x")), (Some("a+b c"), None, None));
        assert_eq!(fields.all("q").collect::<Vec<_>>(), ["a+b c", "d"]);
        assert_eq!(fields.with("q", "").with("state", "").query(), "?sort=-name");
        assert_eq!(fields.with("q", "ä&=").with("state", "").query(), "?sort=-name&q=%C3%A4%26%3D");
        assert_eq!(Fields::parse("").query(), "");
    }
}
