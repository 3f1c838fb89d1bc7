//! What a page is made of: panels, each rendered alone and sent again alone when it has changed; and the small parts that panels
//! share.

use client::ClientError;
use http::StatusCode;
use jiff::Timestamp;
use maud::{Markup, PreEscaped, html};
use uuid::Uuid;

use crate::fields::{Fields, escaped};
use crate::session::Role;

/// A page, rendered but for its frame.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// The heading, and the title of the window.
    pub(crate) title: String,
    /// Which entry of the menu it belongs to.
    pub(crate) section: Section,
    /// The way to it: names and addresses.
    pub(crate) above: Vec<(String, String)>,
    /// Where the Admin API says the same.
    pub(crate) json: String,
    /// The command that shows the same.
    pub(crate) command: String,
    /// Which news concern it.
    pub(crate) listens: PageEvents,
    /// Its parts, in order.
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
    /// Its place in the page.
    pub(crate) id: &'static str,
    /// What is in it.
    pub(crate) body: Markup,
    /// Whether it is sent again when it has changed. Forms that people fill in are not.
    pub(crate) is_live: bool,
}

impl Panel {
    pub(crate) fn live(id: &'static str, body: Markup) -> Panel {
        Panel { id, body, is_live: true }
    }

    pub(crate) fn still(id: &'static str, body: Markup) -> Panel {
        Panel { id, body, is_live: false }
    }
}

/// Which news concern a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PageEvents {
    /// None: it is as it was asked for.
    Nothing,
    /// Everything of these kinds, as events call them.
    Kinds(&'static [&'static str]),
    /// One cluster and what is done on it.
    Cluster(String),
    /// One manifest.
    Manifest(Uuid),
    /// One schedule.
    Schedule(String),
}

/// Why a page could not be made.
#[derive(Debug, Clone)]
pub(crate) struct PageError {
    pub(crate) status: StatusCode,
    pub(crate) title: &'static str,
    pub(crate) message: String,
}

impl PageError {
    pub(crate) fn not_found(message: impl Into<String>) -> PageError {
        PageError { status: StatusCode::NOT_FOUND, title: "There is nothing here", message: message.into() }
    }
}

impl From<ClientError> for PageError {
    fn from(error: ClientError) -> PageError {
        let (status, title) = match error.status() {
            Some(StatusCode::NOT_FOUND) => (StatusCode::NOT_FOUND, "There is nothing here"),
            Some(status) if status.is_client_error() => (StatusCode::BAD_REQUEST, "That cannot be shown"),
            Some(_) | None => (StatusCode::BAD_GATEWAY, "The Admin API did not answer"),
        };
        PageError { status, title, message: sentence(&error.to_string()) }
    }
}

/// What a view is made for: the role decides which buttons there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Viewer<'a> {
    pub(crate) role: Role,
    pub(crate) now: Timestamp,
    /// Stands where the session's token goes.
    pub(crate) mark: &'a str,
}

impl Viewer<'_> {
    pub(crate) fn may_act(self) -> bool {
        self.role == Role::Operator
    }

    /// A form that does something, with the token that it needs.
    pub(crate) fn form(self, action: &str, class: &str, body: &Markup) -> Markup {
        html! {
            form method="post" action={ "/act/" (action) } class=(class) {
                input type="hidden" name="csrf" value=(self.mark);
                (body)
            }
        }
    }
}

/// How something is, at a glance: a shape, and a colour besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadgeTone {
    Good,
    Bad,
    Busy,
    Waiting,
    Odd,
    Quiet,
}

/// A word about how something is.
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

/// A moment: in UTC as it is written, and by the script also in the reader's own zone.
pub(crate) fn moment(at: Timestamp) -> Markup {
    html! { time datetime=(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()) { (at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()) } }
}

pub(crate) fn maybe_moment(at: Option<Timestamp>) -> Markup {
    at.map_or_else(|| html! { span class="quiet" { "–" } }, moment)
}

/// A moment that is told in seconds.
pub(crate) fn second(at: i64) -> Markup {
    match Timestamp::from_second(at) {
        Ok(at) if at > Timestamp::UNIX_EPOCH => moment(at),
        _ => html! { "at once" },
    }
}

/// How long something took.
pub(crate) fn span(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0 => format!("{milliseconds} ms"),
        1..60 => format!("{seconds}.{} s", milliseconds % 1000 / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// The command that does the same.
pub(crate) fn command(line: &str) -> Markup {
    html! {
        div class="command" {
            span class="label" { "CLI" }
            code { (line) }
            button type="button" class="copy" data-copy=(line) aria-label={ "Copy the command " (line) } hidden { "Copy" }
        }
    }
}

/// There is nothing to show; what to do next.
pub(crate) fn nothing(title: &str, what_next: &Markup) -> Markup {
    html! { div class="nothing" { p class="headline" { (title) } (what_next) } }
}

/// A panel whose content could not be had.
pub(crate) fn trouble(title: &str, error: &ClientError) -> Markup {
    // The code of a refusal is for programs.
    let said = match error {
        ClientError::Response(response) => response.message.clone(),
        other => other.to_string(),
    };
    html! {
        div class="note bad" role="group" aria-label=(title) {
            p class="headline" { (title) }
            p { (sentence(&said)) }
        }
    }
}

/// With a point at its end.
fn sentence(text: &str) -> String {
    let text = text.trim_end_matches('.');
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
        None => String::new(),
    }
}

/// A link to a cluster by its resource id, under its name.
pub(crate) fn cluster_link(id: &str) -> Markup {
    html! { a href=(cluster_path(id)) { bdi { (short_name(id)) } } }
}

/// The page of a cluster.
pub(crate) fn cluster_path(id: &str) -> String {
    let segments: Vec<&str> = id.split('/').filter(|segment| !segment.is_empty()).collect();
    match segments.as_slice() {
        [_, subscription, _, group, _, _, _, name] => {
            format!("/cluster/{}/{}/{}", escaped(subscription), escaped(group), escaped(name))
        }
        _ => "/fleet".to_owned(),
    }
}

/// The resource id of the cluster on such a page.
pub(crate) fn resource_id(subscription: &str, group: &str, name: &str) -> String {
    format!(
        "/subscriptions/{subscription}/resourcegroups/{group}/providers/Microsoft.RedHatOpenShift/openShiftClusters/{name}"
    )
}

/// The last segment of a resource id.
pub(crate) fn short_name(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

/// The first eight characters of an id, by which commands know it too.
pub(crate) fn short_id(id: Uuid) -> String {
    id.to_string().chars().take(8).collect()
}

pub(crate) fn manifest_link(id: Uuid, text: &str) -> Markup {
    html! { a href={ "/manifest/" (id) } { (text) } }
}

/// A column by which a list can be sorted: a link that sorts by it, or the other way round.
pub(crate) fn sorted_by(path: &str, query: &Fields, key: &str, title: &str) -> Markup {
    let now = query.one("sort").unwrap_or("name");
    let (is_up, is_down) = (now == key, now.strip_prefix('-') == Some(key));
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

/// Links to the pages before and behind.
pub(crate) fn pager(path: &str, query: &Fields, skip: u64, shown: u64, of: u64, page: u64) -> Markup {
    let at = |skip: u64| {
        let skip = if skip == 0 { String::new() } else { skip.to_string() };
        format!("{path}{}", query.with("skip", &skip).query())
    };
    html! {
        nav class="pager" aria-label="Pages" {
            span { @if of == 0 { "None" } @else { (skip + 1) "–" (skip + shown) " of " (of) } }
            @if skip > 0 { a rel="prev" href=(at(skip.saturating_sub(page))) { "← Before" } }
            @if skip + shown < of { a rel="next" href=(at(skip + page)) { "Next →" } }
        }
    }
}

/// Space that is kept as it is, such as a log.
pub(crate) fn raw(text: &str) -> Markup {
    html! { pre tabindex="0" { (text) } }
}

/// A mark of what is in a panel.
pub(crate) fn digest(markup: &PreEscaped<String>) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(markup.0.as_bytes()).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_told_as_people_do() {
        let told: Vec<String> = [7, 1_250, 61_000, 3_660_000, 90_000_000].into_iter().map(span).collect();
        assert_eq!(told, ["7 ms", "1.2 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn a_clusters_page_and_its_resource_id_lead_to_each_other() {
        let id = resource_id("s", "g", "n");
        assert_eq!(cluster_path(&id), "/cluster/s/g/n");
        assert_eq!(short_name(&id), "n");
        assert_eq!(cluster_path("nonsense"), "/fleet");
    }

    #[test]
    fn what_others_wrote_is_text() {
        let page = html! { (badge(BadgeTone::Bad, "<script>alert(1)</script>")) (command("\"><img src=x>")) }
            .into_string();
        assert!(!page.contains("<script>") && !page.contains("<img"), "{page}");
    }
}
