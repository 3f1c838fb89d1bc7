//! Who comes in, and what a browser is told about it.

use axum::body::Body;
use http::Request;
use portal::Role;

use super::fixture::{ORIGIN, Site};

#[tokio::test]
async fn a_stranger_is_asked_to_sign_in_and_sees_nothing() {
    let site = Site::open().await;
    let stranger = site.stranger();
    let asked = stranger.get("/fleet?state=Failed").await.expect(303);
    assert_eq!(asked.header("location"), "/login?to=%2Ffleet%3Fstate%3DFailed");
    for path in ["/live?at=/fleet", "/json/admin/fleet"] {
        assert!(stranger.get(path).await.expect(401).text.contains("Sign in first"));
    }
    stranger.post("/act/budget", &[("key", "fleet"), ("limit", "0")]).await.expect(401);
    stranger.get("/login?to=/plan").await.expect(200).shows("shipshape up");
    stranger.get("/nowhere").await.expect(303);
}

#[tokio::test]
async fn an_address_of_nothing_is_a_page_that_says_so() {
    let site = Site::open().await;
    let guest = site.guest("jo", Role::Operator).await;
    let nothing = [
        "/login/nothing",
        "/login/",
        "/login/link",
        "/assets/x",
        "/assets/",
        "/assets/x/y/z",
        "/assets/x/nothing",
    ];
    for path in nothing {
        for somebody in [&site.stranger(), &guest] {
            let reply = somebody.get(path).await;
            assert_eq!(reply.status, 404, "{path}");
            reply.shows("The address is not one of this portal.");
            assert_eq!(reply.header("x-frame-options"), "DENY", "{path}");
        }
    }
    guest.get("/nowhere").await.expect(404).shows("The address is not one of this portal.");
    site.stranger().post("/login/nothing", &[]).await.expect(405);
}

#[tokio::test]
async fn no_spelling_of_its_path_makes_a_document_of_the_event_stream() {
    let site = Site::open().await;
    let guest = site.guest("jo", Role::Reader).await;
    let paths = [
        "/json/admin/events",
        "/json/admin//events",
        "/json//admin/events",
        "/json/admin/./events",
        "/json/admin/%2e/events",
        "/json/admin/x/../events",
        "/json/admin/x/%2E%2e/events",
        "/json/admin/%65vents",
        "/json/admin/EVENTS",
        "/json/admin%2fevents",
        "/json/admin/%2fevents",
        "/json/admin/events/",
        "/json/admin/events%3f",
    ];
    for path in paths {
        let reply = tokio::time::timeout(std::time::Duration::from_secs(20), guest.get(path));
        reply.await.unwrap_or_else(|_| panic!("{path} is a stream")).expect(404);
    }
    guest.get("/json/admin/fleet?limit=1").await.expect(200);
}

#[tokio::test]
async fn one_session_cannot_open_all_streams() {
    let site = Site::open().await;
    let (greedy, other) = (site.guest("jo", Role::Reader).await, site.guest("kim", Role::Reader).await);
    let mut streams = Vec::new();
    for count in 0..250 {
        streams.push(greedy.listen(&format!("/fleet?x={count}")).await);
    }
    greedy.get("/live?at=/fleet").await.expect(429).shows("Too many pages are open");
    let _heard = other.listen("/fleet").await;
    streams.pop();
    let _again = greedy.listen("/fleet").await;
}

#[tokio::test]
async fn a_portal_that_lets_everybody_in_answers_to_its_own_names_only() {
    let site = Site::with(portal::Login::Open, "http://portal.example:8444").await;
    let browser = site.stranger();
    let ask = async |path: &str, host: &str, origin: Option<&str>| {
        let mut request = Request::get(path).header("host", host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        browser.ask(request, Body::empty()).await.status.as_u16()
    };
    for host in ["localhost:8444", "127.0.0.1", "[::1]:8444", "portal.example"] {
        assert_eq!(ask("/fleet", host, None).await, 200, "{host}");
    }
    for path in ["/fleet", "/json/admin/fleet", "/login", "/assets/x/portal.css"] {
        for host in ["evil.example:8444", "localhost.evil.example", "", "127.0.0.1@evil.example"] {
            assert_eq!(ask(path, host, None).await, 403, "{path} {host}");
        }
    }
    assert_eq!(ask("/fleet", "localhost", Some("http://localhost:8444")).await, 200);
    for origin in ["https://evil.example", "null", ""] {
        assert_eq!(ask("/fleet", "localhost", Some(origin)).await, 403, "{origin}");
    }
    // Nobody can reach another portal by sending a name: who comes in there is known.
    let guarded = Site::open().await;
    let asked = Request::get("/login").header("host", "anything.example");
    guarded.stranger().ask(asked, Body::empty()).await.expect(200);
}

#[tokio::test]
async fn a_link_signs_in_once_and_a_browser_that_looks_ahead_does_not_use_it_up() {
    let site = Site::open().await;
    let link = site.portal.one_time_link("jo", Role::Operator).unwrap();
    let stranger = site.stranger();
    stranger
        .ask(Request::get(&link).header("sec-purpose", "prefetch;prerender"), Body::empty())
        .await
        .expect(204);
    stranger.ask(Request::head(&link), Body::empty()).await.expect(204);
    let entered = stranger.get(&link).await.expect(303);
    let cookie = entered.header("set-cookie").to_owned();
    for part in ["__Host-shipshape=", "; Path=/", "; Secure", "; HttpOnly", "; SameSite=Lax"] {
        assert!(cookie.contains(part), "{part} in {cookie}");
    }
    assert!(!cookie.contains("Domain"));
    stranger.get(&link).await.expect(403).shows("was used already");
}

#[tokio::test]
async fn every_answer_carries_the_headers_that_keep_browsers_from_doing_anything_else() {
    let site = Site::open().await;
    let guest = site.guest("jo", Role::Operator).await;
    let paths = [
        "/fleet",
        "/login",
        "/nowhere",
        "/assets/x/portal.css",
        "/assets/x/nothing",
        "/json/admin/fleet",
        "/json/else",
    ];
    for path in paths {
        let reply = guest.get(path).await;
        let policy = reply.header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "frame-ancestors 'none'",
            "form-action 'self'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{path}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(reply.header("referrer-policy"), "no-referrer", "{path}");
        assert_eq!(reply.header("cross-origin-opener-policy"), "same-origin", "{path}");
        let kept = if path.ends_with(".css") { "public, max-age=31536000, immutable" } else { "no-store" };
        assert_eq!(reply.header("cache-control"), kept, "{path}");
        assert!(!reply.text.contains(" style=\"") && !reply.text.contains("<script>"), "{path}");
    }
    let secure = Site::with(portal::Login::OneTimeLink, "https://portal.example").await;
    assert_eq!(secure.stranger().get("/login").await.header("strict-transport-security"), "max-age=31536000");
}

#[tokio::test]
async fn what_changes_something_comes_from_our_pages_with_the_token_by_somebody_who_may() {
    let site = Site::open().await;
    let guest = site.guest("jo", Role::Operator).await;
    let stop = [("key", "fleet"), ("limit", "0"), ("reason", "a test")];
    let with = |token: &'static str| [stop[0], stop[1], stop[2], ("csrf", token)];
    guest.post_from(ORIGIN, "/act/budget", &stop).await.expect(403).shows("token");
    guest.post_from(ORIGIN, "/act/budget", &with("wrong")).await.expect(403);
    let right = [stop[0], stop[1], stop[2], ("csrf", guest.csrf.as_str())];
    for foreign in ["https://evil.example", "null", "http://127.0.0.1:1"] {
        guest.post_from(foreign, "/act/budget", &right).await.expect(403).shows("did not come from");
    }
    let cross = Request::post("/act/budget").header("sec-fetch-site", "cross-site").header("origin", ORIGIN);
    guest.ask(cross, Body::from(format!("csrf={}", guest.csrf))).await.expect(403);
    let silent = Request::post("/act/budget");
    guest.ask(silent, Body::from(format!("csrf={}", guest.csrf))).await.expect(403);
    let other = site.guest("sam", Role::Operator).await;
    let borrowed = [stop[0], stop[1], stop[2], ("csrf", other.csrf.as_str())];
    guest.post_from(ORIGIN, "/act/budget", &borrowed).await.expect(403);
    let reader = site.guest("kim", Role::Reader).await;
    reader.post("/act/budget", &stop).await.expect(403).shows("your role is reader");
    assert!(site.store.budgets().await.unwrap().is_empty(), "nothing of this was done");
    // A form of ours, as browsers send it from a page that names no referrer.
    let own = Request::post("/act/budget").header("sec-fetch-site", "same-origin").header("origin", "null");
    let body = format!("key=fleet&limit=7&reason=x&csrf={}", guest.csrf);
    guest.ask(own, Body::from(body)).await.expect(303);
    assert_eq!(site.store.budgets().await.unwrap()[0].limit, 7);
    guest.post("/act/budget", &stop).await.expect(303);
    assert_eq!(site.store.budgets().await.unwrap()[0].limit, 0);
}

#[tokio::test]
async fn who_signs_out_is_out_and_only_by_their_own_wish() {
    let site = Site::open().await;
    let guest = site.guest("jo", Role::Reader).await;
    guest.post_from(ORIGIN, "/logout", &[]).await.expect(403);
    guest.get("/logout").await.expect(405);
    guest.get("/fleet").await.expect(200);
    let out = guest.post("/logout", &[]).await.expect(303);
    assert!(out.header("set-cookie").contains("Max-Age=0"));
    guest.get("/fleet").await.expect(303);
}

#[tokio::test]
async fn a_reader_sees_everything_and_no_button_that_acts() {
    let site = Site::open().await;
    let id = site.import("harbour", &[]).await;
    site.task().await;
    let manifest = site.order(&id, None).await;
    let reader = site.guest("kim", Role::Reader).await;
    for path in ["/fleet", "/budgets", "/schedules", "/task/cordon-node", &format!("/manifest/{manifest}")] {
        let page = reader.get(path).await.expect(200);
        assert!(!page.text.contains("action=\"/act/"), "{path}");
    }
}
