//! The pages, one file for each subject. A page is a function of its address, the content of the Admin API, the role of the user and
//! the time, so that it can be rendered again for all browsers that show it.

mod audit;
mod budgets;
mod cluster;
mod fleet;
mod health;
mod machines;
mod manifest;
mod plan;
pub(crate) mod schedules;
pub(crate) mod tasks;
mod timeline;
mod work;

use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, RawQuery, Request, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Extension, Router};
use client::Client;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, Uri, header};
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::json;
use tower::ServiceExt as _;

use crate::PortalState;
use crate::fields::{Fields, escaped};
use crate::layout;
use crate::session::{Role, SessionUser};
use crate::view::{PageError, PageEvents, Panel, Section, View, Viewer};

/// Input of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageContext<'a> {
    pub(crate) admin: &'a Client,
    pub(crate) viewer: Viewer<'a>,
    /// The query of the address.
    pub(crate) query: &'a Fields,
}

/// Every page. A handler returns its page as a [`View`] in the response's extensions: `show` adds the layout, `live` sends the
/// panels that changed.
static PAGES: LazyLock<Router<Arc<PortalState>>> = LazyLock::new(|| {
    Router::new()
        .route("/fleet", get(async |page: PageRequest| fleet::view(page.context()).await))
        .route("/cluster/{subscription}/{group}/{name}", get(cluster_page))
        .route("/work", get(async |page: PageRequest| work::view(page.context()).await))
        .route(
            "/manifest/{id}",
            get(async |page: PageRequest, Path(id): Path<String>| manifest::view(page.context(), &id).await),
        )
        .route("/timeline", get(async |page: PageRequest| timeline::view(page.context()).await))
        .route("/plan", get(async |page: PageRequest| plan::view(page.context()).await))
        .route("/schedules", get(async |page: PageRequest| schedules::list(page.context()).await))
        .route(
            "/schedules/new",
            get(async |page: PageRequest| schedules::editor(page.context(), None, None).await),
        )
        .route(
            "/schedule/{id}",
            get(async |page: PageRequest, Path(id): Path<String>| {
                schedules::editor(page.context(), Some(&id), None).await
            }),
        )
        .route("/tasks", get(async |page: PageRequest| tasks::list(page.context()).await))
        .route(
            "/task/{name}",
            get(async |page: PageRequest, Path(name): Path<String>| {
                tasks::details(page.context(), &name, None).await
            }),
        )
        .route("/budgets", get(async |page: PageRequest| budgets::view(page.context()).await))
        .route("/audit", get(async |page: PageRequest| audit::view(page.context()).await))
});

async fn cluster_page(
    page: PageRequest,
    Path((subscription, group, name)): Path<(String, String, String)>,
) -> Result<View, PageError> {
    cluster::view(page.context(), &subscription, &group, &name).await
}

/// A request for a page, with what its handler needs.
struct PageRequest {
    state: Arc<PortalState>,
    role: Role,
    now: Timestamp,
    query: Fields,
}

impl PageRequest {
    fn context(&self) -> PageContext<'_> {
        let viewer =
            Viewer { role: self.role, now: self.now, csrf_placeholder: &self.state.csrf_placeholder };
        PageContext { admin: &self.state.admin, viewer, query: &self.query }
    }
}

impl FromRequestParts<Arc<PortalState>> for PageRequest {
    type Rejection = PageError;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &Arc<PortalState>,
    ) -> Result<PageRequest, PageError> {
        // `view` sets the role; without one the reader's rights are enough.
        let role = parts.extensions.get().copied().unwrap_or(Role::Reader);
        let query = Fields::parse(parts.uri.query().unwrap_or_default());
        Ok(PageRequest { state: state.clone(), role, now: state.clock.now(), query })
    }
}

impl IntoResponse for View {
    fn into_response(self) -> Response {
        (Extension(self), StatusCode::OK).into_response()
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        (self.status, Extension(self)).into_response()
    }
}

/// Renders the page at an address for a role.
pub(crate) async fn view(state: &Arc<PortalState>, address: &str, role: Role) -> Result<View, PageError> {
    let unknown = || PageError::not_found("The address is not one of this portal.");
    let mut request = Request::get(address).body(Body::empty()).map_err(|_| unknown())?;
    request.extensions_mut().insert(role);
    let Ok(mut response) = PAGES.clone().with_state(state.clone()).oneshot(request).await;
    match response.extensions_mut().remove::<View>() {
        Some(view) => Ok(view),
        // No page has this path, or a part of it is not UTF-8.
        None => Err(response.extensions_mut().remove::<PageError>().unwrap_or_else(unknown)),
    }
}

/// Responds with a page in its layout.
pub(crate) async fn show(
    State(state): State<Arc<PortalState>>,
    Extension(user): Extension<SessionUser>,
    method: Method,
    uri: Uri,
) -> Response {
    if !matches!(method, Method::GET | Method::HEAD) {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    if uri.path() == "/" {
        return Redirect::to("/fleet").into_response();
    }
    let address = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let view = view(&state, address, user.role).await;
    render(&state, &user, address, view)
}

/// Responds with a page, or the error page, in its layout.
pub(crate) fn render(
    state: &PortalState,
    user: &SessionUser,
    address: &str,
    view: Result<View, PageError>,
) -> Response {
    let message = state.sessions.take_flash(user);
    let (status, view) = match view {
        Ok(view) => (StatusCode::OK, view),
        Err(error) => (error.status, error_view(error)),
    };
    let page = layout::page(&view, user, message.as_ref(), address, &state.csrf_placeholder);
    (status, Html(page.into_string().replace(&state.csrf_placeholder, &user.csrf))).into_response()
}

fn error_view(error: PageError) -> View {
    let body = html! {
        div class="note bad" role="alert" { p { (error.message) } }
        p { a class="button" href="/fleet" { "Fleet" } }
    };
    View {
        title: error.title.to_owned(),
        section: Section::Fleet,
        breadcrumbs: Vec::new(),
        json: "/admin/fleet".to_owned(),
        command: "shipshape cluster list".to_owned(),
        events: PageEvents::Nothing,
        panels: vec![Panel::fixed("error", body)],
    }
}

/// Responds with a document of the Admin API, for browsers without a client certificate. Read only.
pub(crate) async fn json(
    State(state): State<Arc<PortalState>>,
    Extension(user): Extension<SessionUser>,
    Path(path): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let Some(path) = document_path(&path) else {
        let message = "Only documents of the Admin API are available here.";
        let error = json!({"error": {"code": "NotFound", "message": message}});
        return (StatusCode::NOT_FOUND, axum::Json(error)).into_response();
    };
    let query = Fields::parse(&query.unwrap_or_default()).with("api-version", "admin").query();
    match state.admin.on_behalf_of(&user.user).get_json(&format!("{path}{query}")).await {
        Ok(document) => {
            let text = serde_json::to_string_pretty(&document).unwrap_or_default();
            let mut response = text.into_response();
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => {
            let status = error.status().unwrap_or(StatusCode::BAD_GATEWAY);
            let error = json!({"error": {"code": status.as_str(), "message": error.to_string()}});
            (status, axum::Json(error)).into_response()
        }
    }
}

/// The canonical path of a document of the Admin API. `None` for paths that are not documents, such as the event stream, and for
/// other spellings, which the Admin API might interpret differently.
fn document_path(path: &str) -> Option<String> {
    let segments: Vec<&str> = path.split('/').collect();
    let is_odd = |letter: char| letter.is_control() || matches!(letter, '%' | '\\' | ';' | '?' | '#');
    let is_plain = |segment: &&str| !matches!(*segment, "" | "." | "..") && !segment.contains(is_odd);
    let ["admin", kind, ..] = segments.as_slice() else { return None };
    let is_document = !kind.eq_ignore_ascii_case("events") && segments.iter().all(is_plain);
    is_document.then(|| segments.iter().map(|segment| format!("/{}", escaped(segment))).collect())
}

/// A select element; its first option is no choice.
fn choice(name: &str, label: &str, none: &str, options: &[(String, String)], chosen: &str) -> Markup {
    html! {
        label {
            span { (label) }
            select name=(name) {
                option value="" { (none) }
                @for (value, text) in options {
                    option value=(value) selected[value.eq_ignore_ascii_case(chosen)] { (text) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_paths_of_documents_are_accepted() {
        for path in
            ["admin/fleet", "admin/subscriptions/x/resourceGroups/My_Group.1/y", "admin/maintenancetasks"]
        {
            assert_eq!(document_path(path), Some(format!("/{path}")));
        }
        assert_eq!(document_path("admin/a b").as_deref(), Some("/admin/a%20b"));
        let others = [
            "admin",
            "admin/",
            "admin/events",
            "admin/Events",
            "admin/events/",
            "admin//events",
            "admin/./events",
            "admin/x/../events",
            "/admin/events",
            "admin/%65vents",
            "admin/%2e/events",
            "admin/events;x",
            "admin/events?x",
            "admin\\events",
            "Admin/fleet",
            "subscriptions/x",
            "",
            "admin/fleet/",
        ];
        for path in others {
            assert_eq!(document_path(path), None, "{path}");
        }
    }
}
