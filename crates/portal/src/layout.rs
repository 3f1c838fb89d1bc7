//! The layout around every page.

use axum::response::Html;
use maud::{DOCTYPE, Markup, html};

use crate::assets;
use crate::session::{FlashMessage, SessionUser};
use crate::view::{Section, View, command, digest};

fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="robots" content="noindex";
            title { (title) " · Shipshape" }
            link rel="icon" type="image/svg+xml" href=(assets::path("icon.svg"));
            link rel="stylesheet" href=(assets::path("portal.css"));
            script src=(assets::path("portal.js")) defer {}
        }
    }
}

fn brand() -> Markup {
    html! {
        a class="brand" href="/fleet" {
            img src=(assets::path("icon.svg")) alt="" width="22" height="22";
            span { "Shipshape" }
        }
    }
}

/// A complete page. `address` is its path and query, with which the script subscribes to changes.
pub(crate) fn page(
    view: &View,
    user: &SessionUser,
    message: Option<&FlashMessage>,
    address: &str,
    csrf_placeholder: &str,
) -> Markup {
    let seen: Vec<String> = view
        .panels
        .iter()
        .filter(|panel| panel.is_live)
        .map(|panel| format!("{}.{}", panel.id, digest(&panel.body)))
        .collect();
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(&view.title))
            body data-at=(address) data-seen=(seen.join(",")) {
                a class="skip" href="#main" { "Skip to the content" }
                header class="bar" {
                    (brand())
                    nav aria-label="Sections" {
                        @for section in Section::ALL {
                            @if section == view.section {
                                a href=(section.path()) aria-current="page" { (section.name()) }
                            } @else {
                                a href=(section.path()) { (section.name()) }
                            }
                        }
                    }
                    div class="who" {
                        span class="user" title=(user.user) { bdi { (user.user) } }
                        span class="quiet" { (user.role) }
                        form method="post" action="/logout" {
                            input type="hidden" name="csrf" value=(csrf_placeholder);
                            button type="submit" class="plain" { "Sign out" }
                        }
                    }
                }
                div class="lost" id="lost" role="status" hidden {}
                main id="main" tabindex="-1" {
                    @if !view.breadcrumbs.is_empty() {
                        nav class="above" aria-label="Breadcrumbs" {
                            @for (name, path) in &view.breadcrumbs { a href=(path) { bdi { (name) } } span aria-hidden="true" { " / " } }
                        }
                    }
                    h1 { bdi { (view.title) } }
                    @if let Some(message) = message {
                        div class={ "note " (if message.is_error { "bad" } else { "good" }) } role="status" { p { (message.text) } }
                    }
                    @for panel in &view.panels {
                        @if panel.is_live {
                            section id=(panel.id) data-live { (panel.body) }
                        } @else {
                            section id=(panel.id) { (panel.body) }
                        }
                    }
                }
                footer {
                    p { a href={ "/json" (view.json) } { "This page as JSON" } " " span class="quiet" { "GET " (view.json) } }
                    (command(&view.command))
                }
            }
        }
    }
}

/// A page for users who are not signed in.
pub(crate) fn signed_out_page(title: &str, body: &Markup) -> Html<String> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(title))
            body class="alone" {
                main id="main" {
                    (brand())
                    h1 { (title) }
                    (body)
                }
            }
        }
    };
    Html(page.into_string())
}

/// A page with a message only.
pub(crate) fn message_page(title: &str, message: &str) -> Html<String> {
    signed_out_page(title, &html! { p { (message) } p { a class="button" href="/fleet" { "Fleet" } } })
}
