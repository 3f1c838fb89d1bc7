//! Live updates of pages.

use std::time::{Duration, Instant};

use axum::body::Body;
use http_body_util::BodyExt as _;
use portal::Role;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::fixture::TestPortal;

/// The next event with panels: its id, and the panels by their ids.
async fn next(body: &mut Body) -> (String, Vec<(String, String)>) {
    let mut text = String::new();
    loop {
        let frame = tokio::time::timeout(Duration::from_secs(20), body.frame()).await;
        let frame = frame.expect("something comes").expect("the stream goes on").unwrap();
        text += &String::from_utf8_lossy(frame.data_ref().unwrap());
        let Some(whole) = text.find("\n\n") else { continue };
        let event: String = text.drain(..whole + 2).collect();
        let line = |name: &str| {
            event.lines().find_map(|line| line.strip_prefix(name)).map(|it| it.trim().to_owned())
        };
        let Some(data) = line("data:") else { continue };
        let panels: Vec<Value> = serde_json::from_str(&data).unwrap();
        let panel =
            |it: &Value| (it["id"].as_str().unwrap().to_owned(), it["html"].as_str().unwrap().to_owned());
        return (line("id:").unwrap_or_default(), panels.iter().map(panel).collect());
    }
}

/// Waits until a panel contains a text.
async fn until(body: &mut Body, id: &str, word: &str) -> String {
    loop {
        let (_, panels) = next(body).await;
        if let Some((_, html)) = panels.iter().find(|(found, html)| found == id && html.contains(word)) {
            return html.clone();
        }
    }
}

/// Reads the event stream until it is dropped.
struct EventReader(
    CancellationToken,
    #[expect(dead_code, reason = "the task ends when it is dropped")] tokio::task::JoinSet<()>,
);

fn follow(site: &TestPortal) -> EventReader {
    let token = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(site.portal.clone().follow(token.clone()));
    EventReader(token, tasks)
}

#[tokio::test]
async fn a_manifest_is_followed_to_its_end_without_a_reload() {
    let site = TestPortal::open().await;
    let following = follow(&site);
    let id = site.import("harbour", &[]).await;
    site.task().await;
    let manifest = site.request_task(&id, None).await;
    let user = site.user("jo", Role::Operator).await;
    let mut body = user.listen(&format!("/manifest/{manifest}")).await;
    until(&mut body, "state", "Pending").await;
    let claimed = site.claim().await;
    site.step(&claimed, 1, "the node rests").await;
    until(&mut body, "steps", "the node rests").await;
    site.step(&claimed, 2, "nearly there").await;
    until(&mut body, "state", "nearly there").await;
    site.complete(&claimed).await;
    until(&mut body, "state", "the node had its rest").await;
    following.0.cancel();
    // Streams end with the portal.
    let ended = async { while let Some(Ok(_)) = body.frame().await {} };
    tokio::time::timeout(Duration::from_secs(5), ended).await.expect("the stream ends");
}

#[tokio::test]
async fn a_browser_that_reconnects_receives_the_changed_panels_with_its_own_token() {
    let site = TestPortal::open().await;
    let _following = follow(&site);
    site.task().await;
    let user = site.user("jo", Role::Operator).await;
    let mut body = user.listen("/budgets").await;
    let (seen, panels) = next(&mut body).await;
    assert_eq!(panels.len(), 2);
    let html = &panels[0].1;
    assert!(html.contains(&user.csrf), "forms carry the token of the session");
    drop(body);
    site.admin
        .set_budget("region/west", &api::admin::BudgetRequest { limit: Some(3), reason: None })
        .await
        .unwrap();
    let path = format!("/live?at=%2Fbudgets&seen={}", super::fixture::escaped(&seen));
    let mut body = user.listen_at(&path).await;
    let (_, panels) = next(&mut body).await;
    let places: Vec<&str> = panels.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(places, ["budgets"], "the browser shows the other panel already");
}

#[tokio::test]
async fn many_changes_are_sent_at_most_four_times_a_second() {
    let site = TestPortal::open().await;
    let _following = follow(&site);
    let id = site.import("harbour", &[]).await;
    site.task().await;
    site.request_task(&id, None).await;
    let claimed = site.claim().await;
    let user = site.user("jo", Role::Reader).await;
    let mut body = user.listen("/fleet").await;
    next(&mut body).await;
    let begun = Instant::now();
    let mut updates = 0;
    let changing = async {
        for number in 0..60 {
            site.step(&claimed, 1 + number % 2, &format!("message {number}")).await;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    };
    tokio::pin!(changing);
    loop {
        tokio::select! {
            () = &mut changing => break,
            _ = next(&mut body) => updates += 1,
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    assert!(updates >= 2, "changes are sent while they happen");
    assert!(f64::from(updates) <= seconds * 4.0 + 1.0, "{updates} in {seconds} s");
}

#[tokio::test]
async fn two_hundred_open_pages_share_one_rendering() {
    let site = TestPortal::open().await;
    let _following = follow(&site);
    site.fill(200).await;
    let user = site.user("jo", Role::Reader).await;
    let mut open = Vec::new();
    for _ in 0..200 {
        open.push(user.listen("/fleet").await);
    }
    for body in &mut open {
        next(body).await;
    }
    let begun = Instant::now();
    site.import("a-new-one", &[]).await;
    for body in &mut open {
        until(body, "clusters", "a-new-one").await;
    }
    println!("200 open pages received a new cluster within {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn signing_out_ends_the_stream() {
    let site = TestPortal::open().await;
    let _following = follow(&site);
    let user = site.user("jo", Role::Reader).await;
    let mut body = user.listen("/fleet").await;
    next(&mut body).await;
    user.post("/logout", &[]).await.expect(303);
    site.import("harbour", &[]).await;
    let ended = async { while let Some(Ok(_)) = body.frame().await {} };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the stream ends");
}
