//! Parts of a page: panels, each rendered and updated on its own, and the small elements that panels share.

use client::ClientError;
use http::StatusCode;
use jiff::Timestamp;
use maud::{Markup, PreEscaped, html};
use uuid::Uuid;

use crate::fields::{Fields, escaped};
use crate::session::Role;

/// A rendered page without its layout.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// Heading and window title.
    pub(crate) title: String,
    /// Entry of the menu that the page belongs to.
    pub(crate) section: Section,
    /// Names and paths of the parent pages.
    pub(crate) breadcrumbs: Vec<(String, String)>,
    /// Path of the same content in the Admin API.
    pub(crate) json: String,
    /// CLI command with the same content.
    pub(crate) command: String,
    /// Events after which the page is rendered again.
    pub(crate) events: PageEvents,
    /// Panels, in order.
    pub(crate) panels: Vec<Panel>,
}

/// An entry of the menu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Fleet,
    Work,
    Timeline,
    Plan,
    Schedules,
    Tasks,
    Budgets,
    Audit,
}

impl Section {
    pub(crate) const ALL: [Section; 8] = [
        Section::Fleet,
        Section::Work,
        Section::Timeline,
        Section::Plan,
        Section::Schedules,
        Section::Tasks,
        Section::Budgets,
        Section::Audit,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Section::Fleet => "Fleet",
            Section::Work => "Work",
            Section::Timeline => "Timeline",
            Section::Plan => "Plan",
            Section::Schedules => "Schedules",
            Section::Tasks => "Tasks",
            Section::Budgets => "Budgets",
            Section::Audit => "Audit",
        }
    }

    pub(crate) fn path(self) -> String {
        format!("/{}", self.name().to_lowercase())
    }
}

/// A part of a page.
#[derive(Debug, Clone)]
pub(crate) struct Panel {
    /// Id of the element in the page.
    pub(crate) id: &'static str,
    pub(crate) body: Markup,
    /// Whether the panel is updated when its content changes. Forms are not, so that input is not lost.
    pub(crate) is_live: bool,
}

impl Panel {
    pub(crate) fn live(id: &'static str, body: Markup) -> Panel {
        Panel { id, body, is_live: true }
    }

    pub(crate) fn fixed(id: &'static str, body: Markup) -> Panel {
        Panel { id, body, is_live: false }
    }
}

/// Events after which a page is rendered again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PageEvents {
    /// None: the page is rendered once.
    Nothing,
    /// Events of objects of these kinds.
    Kinds(&'static [&'static str]),
    /// Events of one cluster and of work on it.
    Cluster(String),
    /// Events of one manifest.
    Manifest(Uuid),
    /// Events of one schedule.
    Schedule(String),
}

/// Why a page cannot be shown.
#[derive(Debug, Clone)]
pub(crate) struct PageError {
    pub(crate) status: StatusCode,
    pub(crate) title: &'static str,
    pub(crate) message: String,
}

impl PageError {
    pub(crate) fn not_found(message: impl Into<String>) -> PageError {
        PageError { status: StatusCode::NOT_FOUND, title: "Not found", message: message.into() }
    }
}

impl From<ClientError> for PageError {
    fn from(error: ClientError) -> PageError {
        let (status, title) = match error.status() {
            Some(StatusCode::NOT_FOUND) => (StatusCode::NOT_FOUND, "Not found"),
            Some(status) if status.is_client_error() => (StatusCode::BAD_REQUEST, "Invalid request"),
            Some(_) | None => (StatusCode::BAD_GATEWAY, "The Admin API did not respond"),
        };
        PageError { status, title, message: sentence(&error.to_string()) }
    }
}

/// For whom and when a view is rendered; the role decides which actions it offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Viewer<'a> {
    pub(crate) role: Role,
    pub(crate) now: Timestamp,
    /// Placeholder for the CSRF token of the session.
    pub(crate) csrf_placeholder: &'a str,
}

impl Viewer<'_> {
    pub(crate) fn may_act(self) -> bool {
        self.role == Role::Operator
    }

    /// The form of an action, with its CSRF token.
    pub(crate) fn form(self, action: &str, class: &str, body: &Markup) -> Markup {
        html! {
            form method="post" action={ "/act/" (action) } class=(class) {
                input type="hidden" name="csrf" value=(self.csrf_placeholder);
                (body)
            }
        }
    }
}

/// Meaning of a badge, shown by its shape and colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadgeTone {
    Good,
    Bad,
    Busy,
    Waiting,
    Odd,
    Quiet,
}

/// A badge with a shape and a text.
pub(crate) fn badge(tone: BadgeTone, text: &str) -> Markup {
    let (class, shape) = match tone {
        BadgeTone::Good => ("good", "M2.5 6.5 5 9l4.5-6"),
        BadgeTone::Bad => ("bad", "M3 3l6 6M9 3 3 9"),
        BadgeTone::Busy => ("busy", "M4 2.5v7L9.5 6z"),
        BadgeTone::Waiting => ("waiting", "M6 3v3l2 1.5M6 1.2a4.8 4.8 0 1 0 .01 0z"),
        BadgeTone::Odd => ("odd", "M6 2v5M6 9.2v.6"),
        BadgeTone::Quiet => ("quiet", "M3 6h6"),
    };
    html! {
        span class={ "badge " (class) } {
            svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true" focusable="false" { path d=(shape); }
            span { (text) }
        }
    }
}

/// A time in UTC; the script adds the user's own time zone.
pub(crate) fn timestamp(at: Timestamp) -> Markup {
    html! { time datetime=(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()) { (at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()) } }
}

pub(crate) fn optional_timestamp(at: Option<Timestamp>) -> Markup {
    at.map_or_else(|| html! { span class="quiet" { "–" } }, timestamp)
}

/// A time in seconds since the epoch; "at once" for zero.
pub(crate) fn unix_timestamp(at: i64) -> Markup {
    match Timestamp::from_second(at) {
        Ok(at) if at > Timestamp::UNIX_EPOCH => timestamp(at),
        _ => html! { "at once" },
    }
}

/// A duration in the two largest units.
pub(crate) fn duration_text(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0 => format!("{milliseconds} ms"),
        1..60 => format!("{seconds}.{} s", milliseconds % 1000 / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// The CLI command that does the same.
pub(crate) fn command(line: &str) -> Markup {
    html! {
        div class="command" {
            span class="label" { "CLI" }
            code { (line) }
            button type="button" class="copy" data-copy=(line) aria-label={ "Copy the command " (line) } hidden { "Copy" }
        }
    }
}

/// Content of an empty list, with the next action.
pub(crate) fn empty_state(title: &str, next: &Markup) -> Markup {
    html! { div class="nothing" { p class="headline" { (title) } (next) } }
}

/// Content of a panel that cannot be read.
pub(crate) fn error_note(title: &str, error: &ClientError) -> Markup {
    // The code of an error response is for programs.
    let message = match error {
        ClientError::Response(response) => response.message.clone(),
        other => other.to_string(),
    };
    html! {
        div class="note bad" role="group" aria-label=(title) {
            p class="headline" { (title) }
            p { (sentence(&message)) }
        }
    }
}

/// Capitalizes a text and ends it with a full stop.
fn sentence(text: &str) -> String {
    let text = text.trim_end_matches('.');
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
        None => String::new(),
    }
}

/// A link to a cluster's page with its name.
pub(crate) fn cluster_link(id: &str) -> Markup {
    html! { a href=(cluster_path(id)) { bdi { (short_name(id)) } } }
}

/// The path of a cluster's page.
pub(crate) fn cluster_path(id: &str) -> String {
    let segments: Vec<&str> = id.split('/').filter(|segment| !segment.is_empty()).collect();
    match segments.as_slice() {
        [_, subscription, _, group, _, _, _, name] => {
            format!("/cluster/{}/{}/{}", escaped(subscription), escaped(group), escaped(name))
        }
        _ => "/fleet".to_owned(),
    }
}

/// The resource id of a cluster from the parts of its page's path.
pub(crate) fn resource_id(subscription: &str, group: &str, name: &str) -> String {
    format!(
        "/subscriptions/{subscription}/resourcegroups/{group}/providers/Microsoft.RedHatOpenShift/openShiftClusters/{name}"
    )
}

/// The last segment of a resource id.
pub(crate) fn short_name(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

/// The first eight characters of an id, which CLI commands accept.
pub(crate) fn short_id(id: Uuid) -> String {
    id.to_string().chars().take(8).collect()
}

pub(crate) fn manifest_link(id: Uuid, text: &str) -> Markup {
    html! { a href={ "/manifest/" (id) } { (text) } }
}

/// The header of a sortable column, with a link that sorts by it or reverses the order.
pub(crate) fn sortable_column(path: &str, query: &Fields, key: &str, title: &str) -> Markup {
    let current = query.get("sort").unwrap_or("name");
    let (is_up, is_down) = (current == key, current.strip_prefix('-') == Some(key));
    let wanted = if is_up { format!("-{key}") } else { key.to_owned() };
    let href = format!("{path}{}", query.with("sort", &wanted).with("skip", "").query());
    let order = if is_up {
        "ascending"
    } else if is_down {
        "descending"
    } else {
        "none"
    };
    html! {
        th scope="col" aria-sort=(order) {
            a href=(href) { (title) span aria-hidden="true" { @if is_up { " ▲" } @else if is_down { " ▼" } } }
        }
    }
}

/// Links to the previous and the next page.
pub(crate) fn pager(path: &str, query: &Fields, skip: u64, shown: u64, of: u64, page: u64) -> Markup {
    let at = |skip: u64| {
        let skip = if skip == 0 { String::new() } else { skip.to_string() };
        format!("{path}{}", query.with("skip", &skip).query())
    };
    html! {
        nav class="pager" aria-label="Pages" {
            span { @if of == 0 { "None" } @else { (skip + 1) "–" (skip + shown) " of " (of) } }
            @if skip > 0 { a rel="prev" href=(at(skip.saturating_sub(page))) { "← Previous" } }
            @if skip + shown < of { a rel="next" href=(at(skip + page)) { "Next →" } }
        }
    }
}

/// Preformatted text, such as a log.
pub(crate) fn preformatted(text: &str) -> Markup {
    html! { pre tabindex="0" { (text) } }
}

/// A digest of the content of a panel.
pub(crate) fn digest(markup: &PreEscaped<String>) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(markup.0.as_bytes()).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_two_largest_units() {
        let texts: Vec<String> =
            [7, 1_250, 61_000, 3_660_000, 90_000_000].into_iter().map(duration_text).collect();
        assert_eq!(texts, ["7 ms", "1.2 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn the_path_of_a_cluster_and_its_resource_id_convert_into_each_other() {
        let id = resource_id("s", "g", "n");
        assert_eq!(cluster_path(&id), "/cluster/s/g/n");
        assert_eq!(short_name(&id), "n");
        assert_eq!(cluster_path("nonsense"), "/fleet");
    }

    #[test]
    fn content_of_others_is_escaped() {
        let page = html! { (badge(BadgeTone::Bad, "<script>alert(1)</script>")) (command("\"><img src=x>")) }
            .into_string();
        assert!(!page.contains("<script>") && !page.contains("<img"), "{page}");
    }
}
