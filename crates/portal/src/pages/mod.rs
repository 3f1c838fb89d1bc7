//! The pages, one file for each subject. A page is a function of its address, of what the Admin API says, of the role of
//! whoever looks, and of the time; so that it can be rendered anew for all who have it open.

mod audit;
mod budgets;
mod cluster;
mod fleet;
mod manifest;
mod plan;
pub(crate) mod schedules;
pub(crate) mod tasks;
mod timeline;
mod work;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use client::Client;
use http::{HeaderValue, Method, StatusCode, Uri, header};
use maud::{Markup, html};
use serde_json::json;

use crate::House;
use crate::fields::{Fields, escaped, unescaped};
use crate::frame;
use crate::session::{Role, Visitor};
use crate::view::{Eyes, Fault, Listens, Panel, Section, View};

/// What a page is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Desk<'a> {
    pub(crate) admin: &'a Client,
    pub(crate) eyes: Eyes<'a>,
    /// What is behind the question mark.
    pub(crate) query: &'a Fields,
}

/// A page, by its address.
pub(crate) async fn view(house: &House, address: &str, role: Role) -> Result<View, Fault> {
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let query = Fields::parse(query);
    let eyes = Eyes { role, now: house.clock.now(), mark: &house.mark };
    let desk = Desk { admin: &house.admin, eyes, query: &query };
    let segments: Option<Vec<String>> = path.split('/').skip(1).map(unescaped).collect();
    let segments = segments.ok_or_else(|| Fault::not_found("The address is not one of this portal."))?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        ["fleet"] => fleet::view(desk).await,
        ["cluster", subscription, group, name] => cluster::view(desk, subscription, group, name).await,
        ["work"] => work::view(desk).await,
        ["manifest", id] => manifest::view(desk, id).await,
        ["timeline"] => timeline::view(desk).await,
        ["plan"] => plan::view(desk).await,
        ["schedules"] => schedules::list(desk).await,
        ["schedules", "new"] => schedules::editor(desk, None, None).await,
        ["schedule", id] => schedules::editor(desk, Some(id), None).await,
        ["tasks"] => tasks::list(desk).await,
        ["task", name] => tasks::one(desk, name, None).await,
        ["budgets"] => budgets::view(desk).await,
        ["audit"] => audit::view(desk).await,
        _ => Err(Fault::not_found("The address is not one of this portal.")),
    }
}

/// Shows a page.
pub(crate) async fn show(
    State(house): State<Arc<House>>,
    Extension(visitor): Extension<Visitor>,
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
    let made = view(&house, address, visitor.role).await;
    framed(&house, &visitor, address, made)
}

/// A page in its frame, or why there is none.
pub(crate) fn framed(house: &House, visitor: &Visitor, address: &str, made: Result<View, Fault>) -> Response {
    let told = house.sessions.told(visitor);
    let (status, view) = match made {
        Ok(view) => (StatusCode::OK, view),
        Err(fault) => (fault.status, of_fault(fault)),
    };
    let page = frame::page(&view, visitor, told.as_ref(), address, &house.mark);
    (status, Html(page.into_string().replace(&house.mark, &visitor.csrf))).into_response()
}

fn of_fault(fault: Fault) -> View {
    let body = html! {
        div class="note bad" role="alert" { p { (fault.message) } }
        p { a class="button" href="/fleet" { "To the fleet" } }
    };
    View {
        title: fault.title.to_owned(),
        section: Section::Fleet,
        above: Vec::new(),
        json: "/admin/fleet".to_owned(),
        command: "shipshape cluster list".to_owned(),
        listens: Listens::Nothing,
        panels: vec![Panel::still("fault", body)],
    }
}

/// What the Admin API says, for those who have no certificate of their own in their browser. It only reads.
pub(crate) async fn json(
    State(house): State<Arc<House>>,
    Extension(visitor): Extension<Visitor>,
    Path(path): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let Some(path) = document_path(&path) else {
        let message = "Only documents of the Admin API are shown here.";
        let error = json!({"error": {"code": "NotFound", "message": message}});
        return (StatusCode::NOT_FOUND, axum::Json(error)).into_response();
    };
    let query = Fields::parse(&query.unwrap_or_default()).with("api-version", "admin").query();
    match house.admin.speaking_for(&visitor.user).document(&format!("{path}{query}")).await {
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

/// The path of a document of the Admin API, spelled in the one way that is asked for; none for whatever is no document, such as the
/// event stream, and for other spellings of a path, which might be read differently there.
fn document_path(path: &str) -> Option<String> {
    let segments: Vec<&str> = path.split('/').collect();
    let is_odd = |letter: char| letter.is_control() || matches!(letter, '%' | '\\' | ';' | '?' | '#');
    let is_plain = |segment: &&str| !matches!(*segment, "" | "." | "..") && !segment.contains(is_odd);
    let ["admin", kind, ..] = segments.as_slice() else { return None };
    let is_document = !kind.eq_ignore_ascii_case("events") && segments.iter().all(is_plain);
    is_document.then(|| segments.iter().map(|segment| format!("/{}", escaped(segment))).collect())
}

/// A choice among some words, the first of which is no choice.
fn choice(name: &str, label: &str, none: &str, words: &[(String, String)], chosen: &str) -> Markup {
    html! {
        label {
            span { (label) }
            select name=(name) {
                option value="" { (none) }
                @for (value, text) in words {
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
    fn only_documents_in_their_one_spelling_have_a_twin() {
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
