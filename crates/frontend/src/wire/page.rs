//! Lists in pages: `limit`, `$skipToken`, and the link to the next one.

use api::admin::Page;
use http::{Uri, header};
use serde::Serialize;

use super::{ApiError, ApiRequest, ApiResponse, clean};

/// So many items are answered when the caller does not say.
pub(crate) const LIMIT_DEFAULT: usize = 100;

/// A page is never longer; who asks for more follows the link.
const LIMIT_MAX: usize = store::PAGE_MAX;

/// Which page is wanted.
#[derive(Debug, Clone)]
pub(crate) struct PageRequest<T> {
    /// At most so many items.
    pub(crate) limit: usize,
    /// Where to go on.
    pub(crate) from: Option<T>,
}

impl ApiRequest {
    /// Which page is wanted, of at most `default` items unless the caller says otherwise.
    pub(crate) fn page<T: std::str::FromStr>(&self, default: usize) -> Result<PageRequest<T>, ApiError> {
        self.page_within(default, LIMIT_MAX)
    }

    /// The same, of at most `most` items.
    pub(crate) fn page_within<T: std::str::FromStr>(
        &self,
        default: usize,
        most: usize,
    ) -> Result<PageRequest<T>, ApiError> {
        let limit = match self.query.get("limit")? {
            None => default,
            Some(text) => text.parse::<u32>().ok().filter(|limit| *limit > 0).map_or_else(
                || Err(ApiError::invalid_parameter("limit", "The limit must be a whole number from 1 on.")),
                |limit| Ok((limit as usize).min(most)),
            )?,
        };
        let from = self.query.get("$skipToken")?.map(|text| {
            text.parse().map_err(|_| {
                ApiError::invalid_parameter(
                    "$skipToken",
                    "The token is none that a list of this server answered.",
                )
            })
        });
        Ok(PageRequest { limit, from: from.transpose()? })
    }

    /// A page, with the link to the next one when there is one.
    pub(crate) fn page_response<T: Serialize>(
        &self,
        value: Vec<T>,
        next: Option<impl ToString>,
    ) -> ApiResponse {
        let next_link = next.map_or_else(String::new, |token| self.next_link(&token.to_string()));
        ApiResponse::ok(&Page { value, next_link })
    }

    /// Where the list goes on. A Referer that names this very path is the URL that the caller used, on the other side of
    /// whatever stands before us; any other is not about us.
    pub(crate) fn next_link(&self, token: &str) -> String {
        let query = self.query.with("$skipToken", token);
        let referer =
            self.headers().get(header::REFERER).and_then(|value| value.to_str().ok()?.parse::<Uri>().ok());
        let same = referer.filter(|uri| clean(uri.path()).eq_ignore_ascii_case(self.spelled()));
        match same.as_ref().and_then(|uri| Some((uri.scheme_str()?, uri.authority()?, uri.path()))) {
            Some((scheme, authority, path)) if scheme == "https" || scheme == "http" => {
                format!("{scheme}://{authority}{path}?{query}")
            }
            _ => format!("{}{}?{query}", self.origin(), self.spelled()),
        }
    }
}
