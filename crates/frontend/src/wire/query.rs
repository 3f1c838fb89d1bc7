//! Query parameters. Names are matched without regard to case, as in the resource manager.

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::ApiError;

/// Largest number of parameters.
const PAIRS_MAX: usize = 100;

/// The parameters of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Parses a query; parameters that are not UTF-8 after decoding are an error.
    pub(crate) fn parse(text: Option<&str>) -> Result<Query, ApiError> {
        let text = text.unwrap_or_default();
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            if pairs.len() == PAIRS_MAX {
                return Err(ApiError::invalid_parameter(
                    "",
                    format!("A query has at most {PAIRS_MAX} parameters."),
                ));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name).ok_or_else(|| {
                ApiError::invalid_parameter("", "The name of a query parameter is not UTF-8.")
            })?;
            let value = decode(value).ok_or_else(|| {
                ApiError::invalid_parameter(&*name, "The value of the query parameter is not UTF-8.")
            })?;
            pairs.push((name, value));
        }
        Ok(Query { pairs })
    }

    /// The values of a parameter.
    pub(crate) fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let wanted = move |(found, _): &&(String, String)| found.eq_ignore_ascii_case(name);
        self.pairs.iter().filter(wanted).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter that may be given once; an empty one counts as absent.
    pub(crate) fn get<'a>(&'a self, name: &'a str) -> Result<Option<&'a str>, ApiError> {
        let mut values = self.get_all(name);
        let first = values.next();
        if values.next().is_some() {
            return Err(ApiError::invalid_parameter(name, "The query parameter is given more than once."));
        }
        Ok(first.filter(|value| !value.is_empty()))
    }

    /// A boolean parameter: `true` or `false`; false when absent.
    pub(crate) fn get_bool(&self, name: &str) -> Result<bool, ApiError> {
        match self.get(name)? {
            None => Ok(false),
            Some(word) if word.eq_ignore_ascii_case("true") => Ok(true),
            Some(word) if word.eq_ignore_ascii_case("false") => Ok(false),
            Some(_) => Err(ApiError::invalid_parameter(name, "The query parameter must be true or false.")),
        }
    }

    /// The encoded query.
    pub(crate) fn text(&self) -> String {
        let pairs = self.pairs.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)));
        pairs.collect::<Vec<_>>().join("&")
    }

    /// The encoded query with another value for one parameter.
    pub(crate) fn with(&self, name: &str, value: &str) -> String {
        let kept = self.pairs.iter().filter(|(found, _)| !found.eq_ignore_ascii_case(name));
        let kept = kept.map(|(name, value)| (name.as_str(), value.as_str()));
        let pairs =
            kept.chain([(name, value)]).map(|(name, value)| format!("{}={}", encode(name), encode(value)));
        pairs.collect::<Vec<_>>().join("&")
    }
}

fn decode(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

fn encode(text: &str) -> String {
    const KEPT: &percent_encoding::AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'$');
    utf8_percent_encode(text, KEPT).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_matched_in_any_case_and_values_are_unescaped() {
        let query = Query::parse(Some("Limit=3&%24skipToken=a%2Bb+c&empty=&x")).unwrap();
        assert_eq!(query.get("limit").unwrap(), Some("3"));
        assert_eq!(query.get("$skiptoken").unwrap(), Some("a+b c"));
        assert_eq!(query.get("empty").unwrap(), None);
        assert_eq!(query.get("absent").unwrap(), None);
        assert!(Query::parse(Some("a=1&A=2")).unwrap().get("a").is_err());
        assert!(Query::parse(Some("a=%ff")).is_err());
        assert!(Query::parse(Some("dryRun=yes")).unwrap().get_bool("dryRun").is_err());
        assert!(Query::parse(Some("dryrun=TRUE")).unwrap().get_bool("dryRun").unwrap());
    }

    #[test]
    fn a_query_is_written_again_with_one_value_changed() {
        let query = Query::parse(Some("api-version=admin&$skipToken=old&limit=2")).unwrap();
        assert_eq!(query.with("$skipToken", "a b"), "api-version=admin&limit=2&$skipToken=a%20b");
    }

    proptest! {
        #[test]
        fn no_query_makes_the_reader_panic(text in ".*") {
            let _ = Query::parse(Some(&text));
        }
    }
}
