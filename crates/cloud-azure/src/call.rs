//! A call of the resource manager and its successful response.

use std::fmt;

use azure_core::http::Method;
use azure_core::http::headers::{HeaderName, Headers};
use bytes::Bytes;
use cloud::CloudError;
use serde_json::Value;

use crate::error::ServiceError;

/// One call.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) version: &'a str,
    pub(crate) query: &'a [(&'a str, &'a str)],
    pub(crate) body: Option<&'a Value>,
    pub(crate) condition: Condition<'a>,
    /// A token of another principal than the service.
    pub(crate) token: Option<&'a str>,
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the token nor the body, which may hold a secret.
        f.debug_struct("Call").field("method", &self.method).field("path", &self.path).finish_non_exhaustive()
    }
}

/// A condition of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Condition<'a> {
    None,
    /// The resource still has this etag.
    Unchanged(&'a str),
    /// The resource does not exist.
    Absent,
}

impl<'a> Call<'a> {
    pub(crate) fn new(method: Method, path: &'a str, version: &'a str) -> Call<'a> {
        Call { method, path, version, query: &[], body: None, condition: Condition::None, token: None }
    }

    pub(crate) fn get(path: &'a str, version: &'a str) -> Call<'a> {
        Call::new(Method::Get, path, version)
    }

    /// Whether sending it twice has the effect of sending it once.
    pub(crate) fn is_idempotent(&self) -> bool {
        !matches!(self.method, Method::Post | Method::Patch)
    }
}

/// A successful response.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Bodies hold passwords that are returned once.
        f.debug_struct("Answer").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Answer {
    /// The body as JSON; `Null` when there is none.
    pub(crate) fn json(&self, what: &str) -> Result<Value, CloudError> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            let found = ServiceError::parse(self.status, &self.body).message;
            CloudError::UnexpectedResponse {
                what: format!("{what} ({}: {found})", self.status),
                source: Some(Box::new(error)),
            }
        })
    }

    pub(crate) fn header(&self, name: &'static str) -> Option<&str> {
        self.headers.get_optional_str(&HeaderName::from_static(name))
    }

    /// The URL of the operation that the call started.
    pub(crate) fn operation(&self) -> Option<&str> {
        self.header("azure-asyncoperation").or_else(|| self.header("location"))
    }
}

/// Refuses a path that would lead elsewhere than it says: ids are given by customers.
pub(crate) fn check_path(path: &str) -> Result<(), CloudError> {
    let is_strange = |segment: &str| {
        matches!(segment, "." | "..")
            || segment.contains(['\\', '?', '#', '%'])
            || segment.contains(char::is_control)
    };
    if path.starts_with('/') && !path.split('/').any(is_strange) {
        return Ok(());
    }
    let why = format!(
        "{path:?} is no path of a resource: a segment is '.', '..' or holds a character that ids cannot have"
    );
    Err(CloudError::Invalid { code: "InvalidResourceId".to_owned(), why })
}

/// The subject of a call: its path, without the provider of an extension.
pub(crate) fn subject(path: &str) -> &str {
    path.split("/providers/Microsoft.Authorization/permissions").next().unwrap_or(path)
}

pub(crate) fn subscription(path: &str) -> String {
    let mut segments = path.split('/').skip_while(|it| !it.eq_ignore_ascii_case("subscriptions"));
    segments.nth(1).unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests {
    use azure_core::http::Url;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_path_that_is_accepted_leads_where_it_says(path in "(/[ -~äß\\\\]{0,12}){1,12}") {
            if check_path(&path).is_ok() {
                let mut url = Url::parse("https://management.azure.com").unwrap();
                url.set_path(&path);
                let sent = percent_encoding::percent_decode_str(url.path()).decode_utf8().unwrap().into_owned();
                prop_assert_eq!(sent, path);
                prop_assert_eq!(url.host_str(), Some("management.azure.com"));
            }
        }

        #[test]
        fn paths_of_names_are_accepted(name in "[A-Za-z0-9_.()*-]{1,60}") {
            prop_assume!(name != "." && name != "..");
            let id = format!("/subscriptions/s/resourceGroups/{name}/providers/Microsoft.Network/dnsZones/{name}");
            prop_assert!(check_path(&id).is_ok());
            prop_assert_eq!(subscription(&id), "s");
        }

        #[test]
        fn dots_and_separators_never_pass(name in "[a-z]{0,3}(\\.\\.|%2e%2e|\\\\|\\?|#|\n)[a-z]{0,3}") {
            prop_assume!(!name.contains("..") || name == "..");
            let path = format!("/subscriptions/s/resourceGroups/{name}");
            prop_assert!(check_path(&path).is_err());
        }
    }
}
