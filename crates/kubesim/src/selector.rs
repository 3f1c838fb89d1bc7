//! Label and field selectors, with the strict grammar and the error texts of the real server.

mod label;

pub use label::LabelSelector;

/// A field selector; every term must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    field: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Parses `text`; `known` returns the canonical name of a field that the kind can be selected by, or an error.
    pub fn parse(
        text: &str,
        known: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<FieldSelector, String> {
        let mut terms = Vec::new();
        for part in split_terms(text) {
            if part.is_empty() {
                continue;
            }
            let Some((field, equal, value)) = split_term(part) else {
                return Err(format!("invalid selector: '{text}'; can't understand '{part}'"));
            };
            let value = unescape(value)?;
            terms.push(Term { field: known(field)?, value, equal });
        }
        Ok(FieldSelector { terms })
    }

    /// Whether the selector matches all objects.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether an object matches; `value_of` returns the value of a field.
    pub fn matches(&self, value_of: &dyn Fn(&str) -> String) -> bool {
        self.terms.iter().all(|term| (value_of(&term.field) == term.value) == term.equal)
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (index, _) in term.char_indices() {
        let rest = &term[index..];
        for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = rest.strip_prefix(operator) {
                return Some((&term[..index], equal, value));
            }
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(format!("invalid field selector: invalid escape sequence: {sequence}"));
                }
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(character)
                ));
            }
            other => plain.push(other),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn known(field: &str) -> Result<String, String> {
        if field == "unknown" {
            Err(format!("field label not supported: {field}"))
        } else {
            Ok(field.to_owned())
        }
    }

    fn check(text: &str, fields: &[(&str, &str)], expect: bool) {
        let selector = FieldSelector::parse(text, &known).unwrap();
        let value_of = |field: &str| {
            fields.iter().find(|(name, _)| *name == field).map_or(String::new(), |(_, v)| (*v).to_owned())
        };
        assert_eq!(selector.matches(&value_of), expect, "{text}");
    }

    #[test]
    fn a_field_selector_matches_when_every_term_matches() {
        check("", &[], true);
        check("metadata.name=a", &[("metadata.name", "a")], true);
        check(
            "metadata.name==a,status.phase!=Failed",
            &[("metadata.name", "a"), ("status.phase", "Running")],
            true,
        );
        check(
            "metadata.name=a,status.phase!=Failed",
            &[("metadata.name", "a"), ("status.phase", "Failed")],
            false,
        );
        check(r"metadata.name=a\,b", &[("metadata.name", "a,b")], true);
    }

    #[test]
    fn an_invalid_field_selector_is_rejected() {
        assert_eq!(
            FieldSelector::parse("abc", &known).unwrap_err(),
            "invalid selector: 'abc'; can't understand 'abc'"
        );
        assert!(FieldSelector::parse(r"a=\q", &known).unwrap_err().contains("invalid escape sequence"));
        assert!(FieldSelector::parse("a=b=c", &known).unwrap_err().contains("unescaped character"));
        assert_eq!(
            FieldSelector::parse("unknown=1", &known).unwrap_err(),
            "field label not supported: unknown"
        );
    }

    proptest! {
        #[test]
        fn no_field_selector_panics(text in ".*") {
            let _ = FieldSelector::parse(&text, &known);
        }
    }
}
