//! Sessions, CSRF protection and security headers.

use axum::body::Body;
use http::Request;
use portal::Role;

use super::fixture::{ORIGIN, TestPortal};

#[tokio::test]
async fn an_anonymous_user_is_redirected_to_the_sign_in_page() {
    let site = TestPortal::open().await;
    let anonymous = site.anonymous();
    let redirect = anonymous.get("/fleet?state=Failed").await.expect(303);
    assert_eq!(redirect.header("location"), "/login?to=%2Ffleet%3Fstate%3DFailed");
    for path in ["/live?at=/fleet", "/json/admin/fleet"] {
        assert!(anonymous.get(path).await.expect(401).text.contains("Sign in first"));
    }
    anonymous.post("/act/budget", &[("key", "fleet"), ("limit", "0")]).await.expect(401);
    anonymous.get("/login?to=/plan").await.expect(200).shows("shipshape up");
    anonymous.get("/nowhere").await.expect(303);
}

#[tokio::test]
async fn a_path_that_does_not_exist_is_an_error_page() {
    let site = TestPortal::open().await;
    let user = site.user("jo", Role::Operator).await;
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
        for user in [&site.anonymous(), &user] {
            let reply = user.get(path).await;
            assert_eq!(reply.status, 404, "{path}");
            reply.shows("The address is not one of this portal.");
            assert_eq!(reply.header("x-frame-options"), "DENY", "{path}");
        }
    }
    user.get("/nowhere").await.expect(404).shows("The address is not one of this portal.");
    site.anonymous().post("/login/nothing", &[]).await.expect(405);
}

#[tokio::test]
async fn no_spelling_of_its_path_makes_the_event_stream_a_document() {
    let site = TestPortal::open().await;
    let user = site.user("jo", Role::Reader).await;
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
        let reply = tokio::time::timeout(std::time::Duration::from_secs(20), user.get(path));
        reply.await.unwrap_or_else(|_| panic!("{path} is a stream")).expect(404);
    }
    user.get("/json/admin/fleet?limit=1").await.expect(200);
}

#[tokio::test]
async fn one_session_cannot_open_all_streams() {
    let site = TestPortal::open().await;
    let (greedy, other) = (site.user("jo", Role::Reader).await, site.user("kim", Role::Reader).await);
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
    let site = TestPortal::with(portal::Login::Open, "http://portal.example:8444").await;
    let browser = site.anonymous();
    let ask = async |path: &str, host: &str, origin: Option<&str>| {
        let mut request = Request::get(path).header("host", host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        browser.send(request, Body::empty()).await.status.as_u16()
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
    let guarded = TestPortal::open().await;
    let asked = Request::get("/login").header("host", "anything.example");
    guarded.anonymous().send(asked, Body::empty()).await.expect(200);
}

#[tokio::test]
async fn a_link_signs_in_once_and_a_browser_that_looks_ahead_does_not_use_it_up() {
    let site = TestPortal::open().await;
    let link = site.portal.one_time_link("jo", Role::Operator).unwrap();
    let anonymous = site.anonymous();
    anonymous
        .send(Request::get(&link).header("sec-purpose", "prefetch;prerender"), Body::empty())
        .await
        .expect(204);
    anonymous.send(Request::head(&link), Body::empty()).await.expect(204);
    let signed_in = anonymous.get(&link).await.expect(303);
    let cookie = signed_in.header("set-cookie").to_owned();
    for part in ["__Host-shipshape=", "; Path=/", "; Secure", "; HttpOnly", "; SameSite=Lax"] {
        assert!(cookie.contains(part), "{part} in {cookie}");
    }
    assert!(!cookie.contains("Domain"));
    anonymous.get(&link).await.expect(403).shows("already used");
}

#[tokio::test]
async fn every_response_has_the_security_headers() {
    let site = TestPortal::open().await;
    let user = site.user("jo", Role::Operator).await;
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
        let reply = user.get(path).await;
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
        let cache = if path.ends_with(".css") { "public, max-age=31536000, immutable" } else { "no-store" };
        assert_eq!(reply.header("cache-control"), cache, "{path}");
        assert!(!reply.text.contains(" style=\"") && !reply.text.contains("<script>"), "{path}");
    }
    let secure = TestPortal::with(portal::Login::OneTimeLink, "https://portal.example").await;
    assert_eq!(
        secure.anonymous().get("/login").await.header("strict-transport-security"),
        "max-age=31536000"
    );
}

#[tokio::test]
async fn a_change_needs_the_portals_origin_the_csrf_token_and_the_role_operator() {
    let site = TestPortal::open().await;
    let user = site.user("jo", Role::Operator).await;
    let stop = [("key", "fleet"), ("limit", "0"), ("reason", "a test")];
    let with = |token: &'static str| [stop[0], stop[1], stop[2], ("csrf", token)];
    user.post_from(ORIGIN, "/act/budget", &stop).await.expect(403).shows("token");
    user.post_from(ORIGIN, "/act/budget", &with("wrong")).await.expect(403);
    let right = [stop[0], stop[1], stop[2], ("csrf", user.csrf.as_str())];
    for foreign in ["https://evil.example", "null", "http://127.0.0.1:1"] {
        user.post_from(foreign, "/act/budget", &right).await.expect(403).shows("did not come from");
    }
    let cross = Request::post("/act/budget").header("sec-fetch-site", "cross-site").header("origin", ORIGIN);
    user.send(cross, Body::from(format!("csrf={}", user.csrf))).await.expect(403);
    let silent = Request::post("/act/budget");
    user.send(silent, Body::from(format!("csrf={}", user.csrf))).await.expect(403);
    let other = site.user("sam", Role::Operator).await;
    let borrowed = [stop[0], stop[1], stop[2], ("csrf", other.csrf.as_str())];
    user.post_from(ORIGIN, "/act/budget", &borrowed).await.expect(403);
    let reader = site.user("kim", Role::Reader).await;
    reader.post("/act/budget", &stop).await.expect(403).shows("your role is reader");
    assert!(site.store.budgets().await.unwrap().is_empty(), "none of these changed a budget");
    // A form of the portal, as browsers send it from a page without a referrer.
    let own = Request::post("/act/budget").header("sec-fetch-site", "same-origin").header("origin", "null");
    let body = format!("key=fleet&limit=7&reason=x&csrf={}", user.csrf);
    user.send(own, Body::from(body)).await.expect(303);
    assert_eq!(site.store.budgets().await.unwrap()[0].limit, 7);
    user.post("/act/budget", &stop).await.expect(303);
    assert_eq!(site.store.budgets().await.unwrap()[0].limit, 0);
}

#[tokio::test]
async fn signing_out_ends_the_session_and_needs_the_csrf_token() {
    let site = TestPortal::open().await;
    let user = site.user("jo", Role::Reader).await;
    user.post_from(ORIGIN, "/logout", &[]).await.expect(403);
    user.get("/logout").await.expect(405);
    user.get("/fleet").await.expect(200);
    let out = user.post("/logout", &[]).await.expect(303);
    assert!(out.header("set-cookie").contains("Max-Age=0"));
    user.get("/fleet").await.expect(303);
}

#[tokio::test]
async fn a_reader_sees_every_page_without_actions() {
    let site = TestPortal::open().await;
    let id = site.import("harbour", &[]).await;
    site.task().await;
    let manifest = site.request_task(&id, None).await;
    let reader = site.user("kim", Role::Reader).await;
    for path in ["/fleet", "/budgets", "/schedules", "/task/cordon-node", &format!("/manifest/{manifest}")] {
        let page = reader.get(path).await.expect(200);
        assert!(!page.text.contains("action=\"/act/"), "{path}");
    }
}
