//! Paths and queries, with everything escaped that is not a plain letter: an id may be typed by anybody.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What stands in a segment or a value as it is.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What every maintenance route asks for.
const API_VERSION: &str = "api-version=admin";

/// The version of the resource manager's contract that this client speaks.
const ARM_API_VERSION: &str = "api-version=2025-07-25";

/// A path with its query, under construction.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    path: String,
    query: String,
}

impl Path {
    /// A path that is written in our own code.
    pub(crate) fn of(literal: &str) -> Path {
        Path { path: literal.to_owned(), query: API_VERSION.to_owned() }
    }

    /// The path of a cluster's resource id, below `prefix`. The id's own slashes separate; all else is escaped.
    pub(crate) fn of_cluster(prefix: &str, resource_id: &str) -> Path {
        let mut path = prefix.to_owned();
        for segment in resource_id.split('/').filter(|segment| !segment.is_empty()) {
            path.push('/');
            path += &escaped(segment);
        }
        Path { path, query: API_VERSION.to_owned() }
    }

    /// The same path, asked in the resource manager's contract instead of the operators'.
    pub(crate) fn for_customers(mut self) -> Path {
        self.query = self.query.replacen(API_VERSION, ARM_API_VERSION, 1);
        self
    }

    /// The same path, asked in the version of the contract that subscriptions have.
    pub(crate) fn for_subscriptions(mut self) -> Path {
        self.query = self.query.replacen(API_VERSION, "api-version=2.0", 1);
        self
    }

    /// The same with one more segment, escaped whole.
    pub(crate) fn segment(mut self, text: &str) -> Path {
        self.path.push('/');
        self.path += &escaped(text);
        self
    }

    /// The same with one more parameter.
    pub(crate) fn query(mut self, name: &str, value: impl AsRef<str>) -> Path {
        self.query += &format!("&{}={}", escaped(name), escaped(value.as_ref()));
        self
    }

    /// The same with one more parameter, if there is one.
    pub(crate) fn maybe(self, name: &str, value: Option<impl AsRef<str>>) -> Path {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// As it is asked for.
    pub(crate) fn text(&self) -> String {
        format!("{}?{}", self.path, self.query)
    }
}

fn escaped(text: &str) -> String {
    match text {
        // What browsers and servers take for "here" and "up".
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        text => utf8_percent_encode(text, KEPT).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_id_stays_in_its_place() {
        let path = Path::of_cluster("/admin", "/subscriptions/S/../x?y=1#z/N n").segment("a/b");
        assert_eq!(
            path.query("reason", "so & so").text(),
            "/admin/subscriptions/S/%2E%2E/x%3Fy%3D1%23z/N%20n/a%2Fb?api-version=admin&reason=so%20%26%20so"
        );
    }
}
