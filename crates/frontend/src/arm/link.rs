//! Absolute URLs in responses. The resource manager puts the URL of its caller into `Referer`: its scheme, host and query are used,
//! because the caller polls the URL of the response verbatim. `names` has removed a `Referer` of another server before.

use http::{Uri, header};

use crate::wire::{ApiRequest, Query, clean};

/// The URL that the caller used: origin, path and query.
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

/// The URL of another path of this API, with the query of the caller.
pub(super) fn to(request: &ApiRequest, path: &str) -> String {
    let came = came(request);
    // Polling needs an api-version, also when the caller's URL has none.
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
    // A proxy may have a longer path.
    let path = if clean(&came.path).to_ascii_lowercase().ends_with(&own) {
        came.path
    } else {
        request.spelled().to_owned()
    };
    let has_version = came.query.get_all("api-version").next().is_some();
    let query = if has_version { came.query } else { request.query.clone() };
    format!("{}{path}?{}", came.origin, query.with("$skipToken", token))
}
