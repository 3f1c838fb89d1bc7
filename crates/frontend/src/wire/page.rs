//! Pages of lists: `limit`, `$skipToken` and `nextLink`.

use api::admin::Page;
use http::{Uri, header};
use serde::Serialize;

use super::{ApiError, ApiRequest, ApiResponse, clean};

/// Items of a page when the caller sets no limit.
pub(crate) const LIMIT_DEFAULT: usize = 100;

/// Largest page; callers follow `nextLink` for more.
const LIMIT_MAX: usize = store::PAGE_MAX;

/// The requested page.
#[derive(Debug, Clone)]
pub(crate) struct PageRequest<T> {
    /// Maximum number of items.
    pub(crate) limit: usize,
    /// The position from `$skipToken`.
    pub(crate) from: Option<T>,
}

impl ApiRequest {
    /// The requested page, of `default` items if the caller sets no limit.
    pub(crate) fn page<T: std::str::FromStr>(&self, default: usize) -> Result<PageRequest<T>, ApiError> {
        self.page_within(default, LIMIT_MAX)
    }

    /// The requested page, of at most `most` items.
    pub(crate) fn page_within<T: std::str::FromStr>(
        &self,
        default: usize,
        most: usize,
    ) -> Result<PageRequest<T>, ApiError> {
        let limit = match self.query.get("limit")? {
            None => default,
            Some(text) => text.parse::<u32>().ok().filter(|limit| *limit > 0).map_or_else(
                || Err(ApiError::invalid_parameter("limit", "The limit must be a positive whole number.")),
                |limit| Ok((limit as usize).min(most)),
            )?,
        };
        let from = self.query.get("$skipToken")?.map(|text| {
            text.parse().map_err(|_| {
                ApiError::invalid_parameter("$skipToken", "The token is not from a nextLink of this list.")
            })
        });
        Ok(PageRequest { limit, from: from.transpose()? })
    }

    /// A page with the link to the next one, if any.
    pub(crate) fn page_response<T: Serialize>(
        &self,
        value: Vec<T>,
        next: Option<impl ToString>,
    ) -> ApiResponse {
        let next_link = next.map_or_else(String::new, |token| self.next_link(&token.to_string()));
        ApiResponse::ok(&Page { value, next_link })
    }

    /// The URL of the next page. A `Referer` with the same path is the URL that the caller sent to a proxy before the API; any other
    /// is ignored.
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
