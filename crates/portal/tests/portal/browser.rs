//! The portal in a real browser: sign-in, accessibility of each page in light, dark and on a phone, live updates, actions, and a lost
//! connection.

use std::net::SocketAddr;
use std::sync::Arc;

use api::admin::BudgetRequest;
use api::clock::SystemClock;
use portal::{Login, Options, Portal, Role};
use serde_json::json;
use store::HealthSample;
use testkit::chromium;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::fixture::{TASK, TestPortal, page_of};
use super::webdriver::Window;

/// A browser, and a portal behind a proxy that can be cut.
struct Stage {
    site: TestPortal,
    portal: Portal,
    url: String,
    behind: SocketAddr,
    window: Window,
    shutdown: CancellationToken,
    wire: CancellationToken,
    serving: JoinSet<()>,
}

impl Stage {
    async fn start() -> Option<Stage> {
        let Some(found) = chromium::find() else {
            testkit::prerequisites::skip(testkit::prerequisites::CHROMIUM, chromium::MISSING);
            return None;
        };
        let site = TestPortal::open().await;
        let front = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", front.local_addr().unwrap());
        let mut stage = Stage {
            portal: portal(&site, &url),
            site,
            url,
            behind: listener.local_addr().unwrap(),
            window: Window::open(&found).await,
            shutdown: CancellationToken::new(),
            wire: CancellationToken::new(),
            serving: JoinSet::new(),
        };
        let (portal, shutdown) = (stage.portal.clone(), stage.shutdown.clone());
        let listener = serve::Listener::new(listener, Portal::limits(1024, 512)).unwrap();
        stage.serving.spawn(portal.serve(listener, shutdown));
        stage.serving.spawn(stage.portal.clone().follow(stage.shutdown.clone()));
        stage.connect(front);
        Some(stage)
    }

    /// Forwards connections to the portal until the proxy is cut.
    fn connect(&mut self, front: TcpListener) {
        self.wire = self.shutdown.child_token();
        let (wire, behind) = (self.wire.clone(), self.behind);
        self.serving.spawn(async move {
            let mut carried = JoinSet::new();
            while let Some(Ok((mut near, _))) = wire.run_until_cancelled(front.accept()).await {
                carried.spawn(async move {
                    let mut far = TcpStream::connect(behind).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
    }

    async fn sign_in(&self, user: &str, role: Role) {
        let link = self.portal.one_time_link(user, role).unwrap();
        self.window.go(&format!("{}{link}", self.url)).await;
        self.window.shows("Fleet").await;
    }

    async fn go(&self, path: &str) {
        self.window.go(&format!("{}{path}", self.url)).await;
    }

    /// Asserts that the browser logged no error and sent no request to another host.
    async fn is_clean(&self) {
        let complaints = self.window.complaints().await;
        assert!(complaints.is_empty(), "{complaints:#?}");
        for address in self.window.requests().await {
            // The start page is the browser's own.
            let is_own = ["data:", "chrome:"].iter().any(|own| address.starts_with(own));
            let is_own = is_own || address.starts_with(&self.url);
            assert!(is_own, "a request to {address}");
        }
    }

    async fn end(mut self) {
        self.window.close().await;
        self.shutdown.cancel();
        while self.serving.join_next().await.is_some() {}
    }
}

fn portal(site: &TestPortal, url: &str) -> Portal {
    let options = Options {
        admin: site.admin.clone(),
        login: Login::OneTimeLink,
        clock: Arc::new(SystemClock),
        url: url.to_owned(),
    };
    Portal::new(options).unwrap()
}

/// Fills a fleet with an example of everything.
async fn fill(site: &TestPortal) -> (uuid::Uuid, uuid::Uuid) {
    site.task().await;
    site.fill(200).await;
    let harbour = site.import("harbour", &[("env", "test"), ("team", "<script>alert(1)</script>")]).await;
    let long = "a-cluster-with-a-very-long-name-that-goes-on-and-on-until-it-nearly-reaches-the-limit-of-9";
    site.import(long, &[("backwards", "\u{202e}txet"), ("long", &"x".repeat(255))]).await;
    let uuid = |name: &str| {
        let path = super::fixture::rid(name);
        async move { site.store.clusters().find(&path).await.unwrap().unwrap().uuid }
    };
    let sample = |cluster, reachable, details: serde_json::Value| HealthSample {
        cluster,
        at: jiff::Timestamp::UNIX_EPOCH,
        reachable,
        since: jiff::Timestamp::UNIX_EPOCH,
        details: details.into(),
    };
    let samples = vec![
        sample(uuid("harbour").await, true, json!({"version": "v1.37.1"})),
        sample(uuid(long).await, false, json!({"message": "nobody answers there"})),
    ];
    site.store.health_writer().put(samples).await.unwrap();
    let schedule = json!({
        "id": "weekly-rest", "state": "Enabled", "maintenanceTaskID": TASK, "schedule": "*-*-* *:30", "scheduleAcross": "20m",
        "selectors": [{"key": "label.env", "operator": "eq", "value": "test"}], "parameters": {"node": "worker-1"},
    });
    site.admin.put_schedule(&schedule, None).await.unwrap();
    site.admin.set_budget("fleet", &BudgetRequest { limit: Some(10), reason: None }).await.unwrap();
    site.admin.set_budget("region/west", &BudgetRequest { limit: Some(0), reason: None }).await.unwrap();
    let done = site.request_task(&harbour, None).await;
    let claimed = site.claim().await;
    assert_eq!(claimed.lease.work, done);
    site.step(&claimed, 1, "the node rests").await;
    site.complete(&claimed).await;
    let running = site.request_task(&harbour, None).await;
    let claimed = site.claim().await;
    site.step(&claimed, 1, "worker-1 is drained: 3 of 7 pods are gone").await;
    let later = site.request_task(&harbour, Some(4_000_000_000)).await;
    (running, later)
}

#[tokio::test]
async fn every_page_is_accessible_in_light_dark_and_on_a_phone() {
    let Some(stage) = Stage::start().await else { return };
    let (running, later) = fill(&stage.site).await;
    stage.go("/fleet").await;
    stage.window.shows("Sign in").await;
    assert_eq!(stage.window.breaches().await, Vec::<String>::new(), "the login page");
    stage.window.picture("login-light").await;
    stage.sign_in("jo", Role::Operator).await;
    let cluster = page_of("harbour");
    let pages = [
        ("fleet", "/fleet".to_owned()),
        ("fleet-unreachable", "/fleet?reachability=unreachable".to_owned()),
        ("cluster", cluster.clone()),
        ("cluster-nodes", format!("{cluster}?tab=nodes")),
        ("cluster-machines", format!("{cluster}?tab=machines")),
        ("cluster-manifests", format!("{cluster}?tab=manifests")),
        ("cluster-labels", format!("{cluster}?tab=labels")),
        ("cluster-objects", format!("{cluster}?tab=objects")),
        ("manifest-running", format!("/manifest/{running}")),
        ("manifest-waiting", format!("/manifest/{later}")),
        ("work", "/work".to_owned()),
        ("timeline", "/timeline?span=6h".to_owned()),
        ("plan", "/plan?for=24h".to_owned()),
        ("schedules", "/schedules".to_owned()),
        ("schedule", "/schedule/weekly-rest".to_owned()),
        ("tasks", "/tasks".to_owned()),
        ("task", "/task/cordon-node".to_owned()),
        ("budgets", "/budgets".to_owned()),
        ("audit", "/audit".to_owned()),
    ];
    let mut breaches = Vec::new();
    for (scheme, width) in [("light", 1360), ("dark", 1360), ("light", 390), ("dark", 390)] {
        stage.window.colours(scheme).await;
        stage.window.size(width, if width < 600 { 844 } else { 900 }).await;
        for (name, path) in &pages {
            stage.go(path).await;
            stage.window.until("document.querySelector('h1')").await;
            let place = format!("{name}-{scheme}{}", if width < 600 { "-phone" } else { "" });
            stage.window.picture(&place).await;
            // The page must not scroll horizontally; elements with their own scroll bar may.
            let too_wide =
                stage.window.run("return document.documentElement.scrollWidth > window.innerWidth + 1").await;
            if too_wide == true {
                breaches.push(format!("{place}: wider than the window"));
            }
            // Colours and names do not depend on the width.
            if width > 600 || scheme == "light" {
                breaches.extend(stage.window.breaches().await.into_iter().map(|it| format!("{place}: {it}")));
            }
        }
    }
    assert!(breaches.is_empty(), "{breaches:#?}");
    stage.is_clean().await;
    stage.end().await;
}

#[tokio::test]
async fn a_live_update_keeps_what_the_user_typed() {
    let Some(stage) = Stage::start().await else { return };
    stage.site.task().await;
    let id = stage.site.import("harbour", &[]).await;
    let manifest = stage.site.request_task(&id, None).await;
    stage.sign_in("jo", Role::Operator).await;
    stage.go(&format!("/manifest/{manifest}")).await;
    stage.window.shows("Pending").await;
    stage.window.type_into("#actions input[name=reason]", "half a sent").await;
    let claimed = stage.site.claim().await;
    stage.site.step(&claimed, 1, "worker-1 is cordoned").await;
    stage.window.shows("worker-1 is cordoned").await;
    let typed = stage.window.run("return document.querySelector('#actions input[name=reason]').value").await;
    assert_eq!(typed, "half a sent", "what was typed stays");
    let focused = stage.window.run("return document.activeElement.name").await;
    assert_eq!(focused, "reason", "and so does the focus");
    stage.window.type_into("#actions input[name=reason]", "enough of it").await;
    stage.window.click("#actions button.danger").await;
    stage.window.shows("Cancellation requested").await;
    stage.window.shows("cancelling").await;
    stage.window.picture("manifest-cancelling").await;
    stage.site.complete(&claimed).await;
    stage.window.shows("Completed").await;
    // A new cluster appears on the fleet page by itself.
    stage.go("/fleet").await;
    stage.window.shows("harbour").await;
    stage.site.import("quay", &[]).await;
    stage.window.shows("quay").await;
    stage.is_clean().await;
    stage.end().await;
}

/// Key codes of Tab and Enter in WebDriver.
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

#[tokio::test]
async fn every_page_works_with_the_keyboard_and_announces_the_state_of_work() {
    let Some(stage) = Stage::start().await else { return };
    stage.site.task().await;
    let id = stage.site.import("harbour", &[]).await;
    let manifest = stage.site.request_task(&id, None).await;
    stage.sign_in("jo", Role::Operator).await;
    // The first tab stop skips the navigation.
    stage.go("/fleet").await;
    stage.window.press(TAB).await;
    stage.window.until("document.activeElement.className === 'skip' && document.activeElement.getBoundingClientRect().left >= 0").await;
    stage.window.press(ENTER).await;
    stage.window.until("document.activeElement.id === 'main'").await;
    // Each tab stop is different and visible.
    stage.go(&format!("/manifest/{manifest}")).await;
    stage.window.run("window.stops = []; window.blind = [];
        document.addEventListener('focusin', (event) => {
            const style = getComputedStyle(event.target);
            window.stops.push(event.target);
            if (style.outlineStyle === 'none' && style.boxShadow === 'none') window.blind.push(event.target.outerHTML);
        });").await;
    let mut at_reason = false;
    for _ in 0..60 {
        stage.window.press(TAB).await;
        let at =
            "return document.activeElement.name === 'reason' && !!document.activeElement.closest('#actions')";
        if stage.window.run(at).await == true {
            at_reason = true;
            break;
        }
    }
    assert!(at_reason, "the reason was not reached");
    let blind = stage.window.run("return window.blind").await;
    assert_eq!(blind, json!([]), "invisible tab stops");
    assert_eq!(stage.window.run("return new Set(window.stops).size === window.stops.length").await, true);
    // An action without a mouse is carried out and announced.
    stage.window.press("enough").await;
    stage.window.press(ENTER).await;
    stage.window.until("document.querySelector('[role=status] p')?.innerText.length > 0").await;
    stage.window.until("document.querySelector('[aria-live=polite]').innerText.includes('Cancelled')").await;
    let record = stage.site.admin.manifest(&id, manifest).await.unwrap().value;
    assert_eq!(record.state, api::work::WorkState::Cancelled);
    // Every image and field has a name, and pages have a language and one h1.
    for path in ["/fleet", "/timeline", "/schedules/new", "/tasks", "/budgets", "/audit"] {
        stage.go(path).await;
        let nameless = "return [...document.querySelectorAll('input:not([type=hidden]), select, textarea, svg[role=img]')]
            .filter((it) => !(it.labels && it.labels.length) && !it.getAttribute('aria-label') && !it.getAttribute('aria-labelledby') && !it.querySelector?.('title'))
            .map((it) => it.outerHTML.slice(0, 200))";
        assert_eq!(stage.window.run(nameless).await, json!([]), "{path}");
        let heading = "return [document.documentElement.lang, document.querySelectorAll('h1').length, document.querySelectorAll('main').length]";
        assert_eq!(stage.window.run(heading).await, json!(["en", 1, 1]), "{path}");
    }
    stage.is_clean().await;
    stage.end().await;
}

#[tokio::test]
async fn a_schedule_is_edited_with_a_preview_and_a_task_is_run_on_selected_clusters() {
    let Some(stage) = Stage::start().await else { return };
    stage.site.task().await;
    stage.site.import("harbour", &[("env", "test")]).await;
    stage.site.import("quay", &[("env", "prod")]).await;
    stage.sign_in("jo", Role::Operator).await;
    stage.go("/schedules").await;
    stage.window.click("a[href='/schedules/new']").await;
    stage.window.type_into("input[name=id]", "nightly").await;
    stage.window.run(&format!("const it = document.querySelector('select[name=task]'); it.value = '{TASK}'; it.dispatchEvent(new Event('input', {{bubbles: true}}));")).await;
    stage.window.type_into("textarea[name=parameters]", "{\"node\": \"worker-1\"}").await;
    stage.window.type_into("textarea[name=calendars]", "*-*-* 03:00").await;
    stage.window.shows("There must be at least one selector").await;
    stage.window.type_into("input[name='s.key']", "label.env").await;
    stage.window.type_into("input[name='s.value']", "nobody").await;
    stage.window.shows("Matches 0 of 2 clusters").await;
    stage.window.type_into("input[name='s.value']", "prod").await;
    stage.window.shows("Matches 1 of 2 clusters").await;
    stage.window.picture("schedule-editor-preview").await;
    stage.window.click("button[value=save]").await;
    stage.window.shows("Schedule saved").await;
    stage.go("/fleet").await;
    stage.window.click("input[type=checkbox][aria-label='Select harbour']").await;
    stage.window.click(".bulk button").await;
    stage.window.click("a[href^='/task/cordon-node']").await;
    stage.window.type_into("input[name='p.node']", "worker-2").await;
    stage.window.click("#run button[value=preview]").await;
    stage.window.shows("would be accepted").await;
    stage.window.picture("task-preview").await;
    stage.window.click("#outcome button[value=run]").await;
    stage.window.shows("Requested cordon-node").await;
    stage.window.shows("worker-2").await;
    stage.is_clean().await;
    stage.end().await;
}

#[tokio::test]
async fn a_reader_has_no_actions_and_forged_forms_are_rejected() {
    let Some(stage) = Stage::start().await else { return };
    stage.sign_in("kim", Role::Reader).await;
    stage.go("/budgets").await;
    let buttons =
        stage.window.run("return document.querySelectorAll('form[action^=\"/act/\"]').length").await;
    assert_eq!(buttons, 0);
    let forged = "const token = document.querySelector('input[name=csrf]').value;
        return fetch('/act/budget', {method: 'POST', body: new URLSearchParams({key: 'fleet', limit: '0', csrf: TOKEN})}).then((answer) => answer.status)";
    assert_eq!(stage.window.run(&forged.replace("TOKEN", "token")).await, 403);
    stage.sign_in("jo", Role::Operator).await;
    assert_eq!(stage.window.run(&forged.replace("TOKEN", "'forged'")).await, 403);
    assert!(stage.site.store.budgets().await.unwrap().is_empty());
    stage.end().await;
}

#[tokio::test]
async fn a_lost_connection_is_shown_and_resumed_without_a_reload() {
    let Some(mut stage) = Stage::start().await else { return };
    stage.site.import("harbour", &[]).await;
    stage.sign_in("jo", Role::Operator).await;
    stage.window.run("window.notReloaded = true").await;
    stage.window.shows("harbour").await;
    let address = stage.url.trim_start_matches("http://").to_owned();
    stage.wire.cancel();
    stage.window.until("!document.getElementById('lost').hidden").await;
    stage.window.shows("The connection is lost").await;
    stage.window.picture("connection-lost").await;
    stage.site.import("quay", &[]).await;
    let front = TcpListener::bind(&address).await.unwrap();
    stage.connect(front);
    stage.window.shows("quay").await;
    stage.window.until("document.getElementById('lost').hidden").await;
    assert_eq!(stage.window.run("return window.notReloaded").await, true);
    stage.end().await;
}

#[tokio::test]
async fn an_empty_fleet_shows_the_next_action() {
    let Some(stage) = Stage::start().await else { return };
    stage.sign_in("jo", Role::Operator).await;
    stage.window.shows("No clusters yet").await;
    stage.window.picture("empty-fleet").await;
    for (name, path) in [
        ("schedules", "/schedules"),
        ("work", "/work"),
        ("timeline", "/timeline"),
        ("plan", "/plan"),
        ("budgets", "/budgets"),
    ] {
        stage.go(path).await;
        stage.window.picture(&format!("empty-{name}")).await;
        assert_eq!(stage.window.breaches().await, Vec::<String>::new(), "{path}");
    }
    stage.is_clean().await;
    stage.end().await;
}
