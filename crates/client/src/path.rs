//! Paths and queries. Ids come from user input, so each segment and value is percent-encoded.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that are escaped in a segment or a value.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Version of the Admin API.
const API_VERSION: &str = "api-version=admin";

/// Version of the ARM API that this client uses.
const ARM_API_VERSION: &str = "api-version=2025-07-25";

/// Builder of a path with its query.
#[derive(Debug, Clone)]
pub(crate) struct ApiPath {
    path: String,
    query: String,
}

impl ApiPath {
    /// Path from a literal, which is not escaped.
    pub(crate) fn new(path: &str) -> ApiPath {
        ApiPath { path: path.to_owned(), query: API_VERSION.to_owned() }
    }

    /// Path of a resource id below `prefix`. Slashes of the id separate segments, which are escaped.
    pub(crate) fn from_resource_id(prefix: &str, resource_id: &str) -> ApiPath {
        let mut path = prefix.to_owned();
        for segment in resource_id.split('/').filter(|segment| !segment.is_empty()) {
            path.push('/');
            path += &escape(segment);
        }
        ApiPath { path, query: API_VERSION.to_owned() }
    }

    /// Replaces the version of the Admin API with that of the ARM API.
    pub(crate) fn with_arm_version(mut self) -> ApiPath {
        self.query = self.query.replacen(API_VERSION, ARM_API_VERSION, 1);
        self
    }

    /// Replaces the version of the Admin API with that of the subscription lifecycle API.
    pub(crate) fn with_subscription_version(mut self) -> ApiPath {
        self.query = self.query.replacen(API_VERSION, "api-version=2.0", 1);
        self
    }

    /// Appends a segment; slashes in it are escaped.
    pub(crate) fn segment(mut self, text: &str) -> ApiPath {
        self.path.push('/');
        self.path += &escape(text);
        self
    }

    /// Appends a query parameter.
    pub(crate) fn query(mut self, name: &str, value: impl AsRef<str>) -> ApiPath {
        self.query += &format!("&{}={}", escape(name), escape(value.as_ref()));
        self
    }

    /// Appends a query parameter unless `value` is none.
    pub(crate) fn optional_query(self, name: &str, value: Option<impl AsRef<str>>) -> ApiPath {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// Path and query of the request.
    pub(crate) fn to_uri(&self) -> String {
        format!("{}?{}", self.path, self.query)
    }
}

fn escape(text: &str) -> String {
    match text {
        // Servers and proxies normalise dot segments.
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        text => utf8_percent_encode(text, ESCAPED).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_id_is_escaped() {
        let path = ApiPath::from_resource_id("/admin", "/subscriptions/S/../x?y=1#z/N n").segment("a/b");
        assert_eq!(
            path.query("reason", "so & so").to_uri(),
            "/admin/subscriptions/S/%2E%2E/x%3Fy%3D1%23z/N%20n/a%2Fb?api-version=admin&reason=so%20%26%20so"
        );
    }
}
