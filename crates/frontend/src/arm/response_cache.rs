//! Answers that were given before. Clients ask for a cluster again and again while they wait for it; as long as it is in the
//! same version the answer is the same, and only that version is read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::rest::ApiVersion;
use store::Etag;
use uuid::Uuid;

use crate::wire::ApiResponse;

/// So many answers are kept; the next one begins anew with none.
const KEPT_MAX: usize = 1000;
/// They are a few kilobytes each; one that is longer than this is made anew whenever it is asked for.
const KEPT_BYTES_MAX: usize = 16 * 1024;

/// Which document an answer shows, in which version.
pub(super) type DocumentVersion = (Uuid, Etag);

/// Answers by the path in lower case and the api-version that was asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct ResponseCache(Arc<Mutex<HashMap<(ApiVersion, String), CachedResponse>>>);

#[derive(Debug, Clone)]
struct CachedResponse {
    of: DocumentVersion,
    response: ApiResponse,
}

impl ResponseCache {
    /// What was answered for that path, and what it shows. Whether that is still so is for the caller to find out.
    pub(super) fn last(&self, version: ApiVersion, path: &str) -> Option<(DocumentVersion, ApiResponse)> {
        self.kept().get(&(version, path.to_owned())).map(|it| (it.of, it.response.clone()))
    }

    /// Keeps an answer.
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
    fn an_answer_is_kept_for_its_path_and_api_version_and_never_more_than_so_many() {
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
