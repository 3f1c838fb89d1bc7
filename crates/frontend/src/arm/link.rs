//! Absolute URLs in answers. The resource manager puts the URL that its caller used into `Referer`: scheme, host and query are
//! kept, for the caller polls what it is given, verbatim. A `Referer` that names another server does not come this far (`names`).

use http::{Uri, header};

use crate::wire::{ApiRequest, Query, clean};

/// The URL by which the caller reached us: origin, path and query.
struct CallerUrl {
    origin: String,
    path: String,
    query: Query,
}

fn came(request: &ApiRequest) -> CallerUrl {
    let referer =
        request.headers().get(header::REFERER).and_then(|value| value.to_str().ok()?.parse::<Uri>().ok());
    let said = referer.as_ref().and_then(|uri| Some((uri.scheme_str()?, uri.authority()?, uri)));
    if let Some((scheme @ ("https" | "http"), authority, uri)) = said
        && let Ok(query) = Query::parse(uri.query())
    {
        return CallerUrl { origin: format!("{scheme}://{authority}"), path: uri.path().to_owned(), query };
    }
    CallerUrl {
        origin: request.origin().to_owned(),
        path: request.spelled().to_owned(),
        query: request.query.clone(),
    }
}

/// The URL of another resource of ours, with the query that the caller used.
pub(super) fn to(request: &ApiRequest, path: &str) -> String {
    let came = came(request);
    // Whoever polls without a version is refused, whatever the caller's own URL had.
    let query = match came.query.get_all("api-version").next() {
        Some(_) => came.query.text(),
        None => match request.query.get_all("api-version").next() {
            Some(version) => came.query.with("api-version", version),
            None => came.query.text(),
        },
    };
    if query.is_empty() { format!("{}{path}", came.origin) } else { format!("{}{path}?{query}", came.origin) }
}

/// The next page of this list.
pub(super) fn next_page(request: &ApiRequest, token: &str) -> String {
    let came = came(request);
    let own = request.spelled().to_ascii_lowercase();
    // Something may stand before us under a longer path.
    let path = if clean(&came.path).to_ascii_lowercase().ends_with(&own) {
        came.path
    } else {
        request.spelled().to_owned()
    };
    let has_version = came.query.get_all("api-version").next().is_some();
    let query = if has_version { came.query } else { request.query.clone() };
    format!("{}{path}?{}", came.origin, query.with("$skipToken", token))
}
