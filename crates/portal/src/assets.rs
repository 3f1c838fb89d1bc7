//! Static files of the pages: a style sheet, a script and an icon. Their paths contain a digest of their content, so that browsers
//! may cache them forever.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, header};
use sha2::{Digest as _, Sha256};

const STYLE: &str = include_str!("../assets/portal.css");
const SCRIPT: &str = include_str!("../assets/portal.js");
const ICON: &str = include_str!("../assets/icon.svg");

static DIGEST: LazyLock<String> = LazyLock::new(|| {
    let mut digest = Sha256::new();
    for part in [STYLE, SCRIPT, ICON] {
        digest.update(part.as_bytes());
    }
    digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
});

/// The path of an asset.
pub(crate) fn path(name: &str) -> String {
    format!("/assets/{}/{name}", *DIGEST)
}

/// Responds with an asset.
pub(crate) async fn asset(Path((_, name)): Path<(String, String)>) -> Response {
    let (kind, text) = match name.as_str() {
        "portal.css" => ("text/css; charset=utf-8", STYLE),
        "portal.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "icon.svg" => ("image/svg+xml", ICON),
        _ => return crate::middleware::not_found().await,
    };
    let mut response = text.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let immutable = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(header::CACHE_CONTROL, immutable);
    response
}
