//! A cache of responses. Clients poll a cluster while they wait for it; as long as its version is the same, only the version is read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::rest::ApiVersion;
use store::Etag;
use uuid::Uuid;

use crate::wire::ApiResponse;

/// Maximum number of responses; the cache is cleared when it is full.
const KEPT_MAX: usize = 1000;
/// Longest response that is cached; most have a few kilobytes.
const KEPT_BYTES_MAX: usize = 16 * 1024;

/// The document of a response, and its version.
pub(super) type DocumentVersion = (Uuid, Etag);

/// Responses by api-version and path in lower case.
#[derive(Debug, Clone, Default)]
pub(super) struct ResponseCache(Arc<Mutex<HashMap<(ApiVersion, String), CachedResponse>>>);

#[derive(Debug, Clone)]
struct CachedResponse {
    of: DocumentVersion,
    response: ApiResponse,
}

impl ResponseCache {
    /// The cached response for a path and its document. The caller checks that it is current.
    pub(super) fn last(&self, version: ApiVersion, path: &str) -> Option<(DocumentVersion, ApiResponse)> {
        self.kept().get(&(version, path.to_owned())).map(|it| (it.of, it.response.clone()))
    }

    /// Caches a response.
    pub(super) fn keep(&self, version: ApiVersion, path: &str, of: DocumentVersion, response: &ApiResponse) {
        if response.body_len() > KEPT_BYTES_MAX {
            return;
        }
        let mut kept = self.kept();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert((version, path.to_owned()), CachedResponse { of, response: response.clone() });
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<(ApiVersion, String), CachedResponse>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_cached_by_path_and_api_version_within_the_limit() {
        let shown = ResponseCache::default();
        let response = ApiResponse::ok(&"x");
        let of = (Uuid::from_u128(1), "\"1\"".parse().unwrap());
        let [one, other] = [ApiVersion::ALL[0], ApiVersion::ALL[1]];
        shown.keep(one, "/a", of, &response);
        assert_eq!(shown.last(one, "/a").unwrap().0, of);
        assert!(shown.last(other, "/a").is_none() && shown.last(one, "/b").is_none());
        shown.keep(one, "/long", of, &ApiResponse::ok(&"x".repeat(KEPT_BYTES_MAX)));
        assert!(shown.last(one, "/long").is_none());
        for at in 0..3 * KEPT_MAX {
            shown.keep(one, &format!("/{at}"), of, &response);
            assert!(shown.kept().len() <= KEPT_MAX);
        }
    }
}
