//! What people do on the pages, and what is kept of it.

use portal::Role;

use super::fixture::{Guest, Site, TASK, escaped, last_audit, page_of};

/// The page that one is sent to.
async fn followed(guest: &Guest, reply: super::fixture::Reply) -> super::fixture::Reply {
    let to = reply.expect(303).header("location").to_owned();
    guest.get(&to).await.expect(200)
}

#[tokio::test]
async fn a_manifest_is_expedited_and_cancelled_in_the_name_of_who_does_it() {
    let site = Site::open().await;
    let id = site.import("harbour", &[]).await;
    site.task().await;
    let manifest = site.order(&id, Some(4_000_000_000)).await;
    let guest = site.guest("jo", Role::Operator).await;
    let reply =
        guest.post(&format!("/act/manifest/{manifest}/expedite"), &[("reason", "it cannot wait")]).await;
    followed(&guest, reply).await.shows("It is the next of its cluster").shows("expedited");
    let reply = guest.post(&format!("/act/manifest/{manifest}/cancel"), &[("reason", "another time")]).await;
    followed(&guest, reply).await.shows("It is cancelled").shows("another time");
    let audited = last_audit(&site, "manifest.cancel").await;
    assert_eq!((audited["actor"].as_str(), audited["reason"].as_str()), (Some("jo"), Some("another time")));
    let reply = guest.post(&format!("/act/manifest/{manifest}/cancel"), &[("reason", "again")]).await;
    followed(&guest, reply).await.shows("That was not done: cannot cancel task in state Cancelled");
    let page = guest.get("/audit?action=manifest.cancel").await.expect(200);
    page.shows("another time").shows("jo");
}

#[tokio::test]
async fn work_that_runs_is_asked_to_end() {
    let site = Site::open().await;
    let id = site.import("harbour", &[]).await;
    site.task().await;
    let manifest = site.order(&id, None).await;
    let claimed = site.claim().await;
    site.step(&claimed, 1, "").await;
    let guest = site.guest("jo", Role::Operator).await;
    let reply = guest.post(&format!("/act/manifest/{manifest}/cancel"), &[("reason", "stop")]).await;
    followed(&guest, reply).await.shows("It was asked to end").shows("is asked to end");
}

#[tokio::test]
async fn a_task_is_looked_at_first_and_then_run_on_chosen_clusters() {
    let site = Site::open().await;
    let (one, two) = (site.import("harbour", &[]).await, site.import("quay", &[]).await);
    site.task().await;
    let guest = site.guest("jo", Role::Operator).await;
    let page =
        guest.get(&format!("/tasks?cluster={}&cluster={}", escaped(&one), escaped(&two))).await.expect(200);
    page.shows("2 clusters").shows("/task/cordon-node?cluster=");
    let page = guest.get(&format!("/task/cordon-node?cluster={}", escaped(&one))).await.expect(200);
    page.shows("name=\"p.node\"")
        .shows("required")
        .shows("type=\"number\"")
        .shows("<option value=\"hard\"")
        .shows(&one);
    let clusters = format!("{one}\n{two}\n{}", one.replace("harbour", "nobody"));
    let mut fields = vec![
        ("cluster", clusters.as_str()),
        ("p.node", "worker-1"),
        ("p.times", "3"),
        ("p.deep", "true"),
        ("mode", "preview"),
    ];
    let page = guest.post("/act/task/cordon-node/run", &fields).await.expect(200);
    page.shows("would be accepted")
        .shows("would be refused")
        .shows("Run on 2 clusters")
        .shows("value=\"worker-1\"");
    let made = async |cluster: &str| site.admin.manifests(cluster).all().await.unwrap();
    assert!(made(&one).await.is_empty(), "a look writes nothing");
    fields[4] = ("mode", "run");
    let reply = guest.post("/act/task/cordon-node/run", &fields).await;
    followed(&guest, reply).await.shows("Asked for on 2 clusters; refused on 1: nobody");
    let form = made(&two).await.remove(0);
    assert_eq!(
        serde_json::Value::Object(form.parameters),
        serde_json::json!({"node": "worker-1", "times": 3, "deep": true})
    );
    assert_eq!(form.created_by, "jo");
    let wrong = [("cluster", one.as_str()), ("p.times", "33"), ("mode", "preview")];
    guest.post("/act/task/cordon-node/run", &wrong).await.expect(200).shows("would be refused");
    let reply = guest.post("/act/task/cordon-node/run", &[("mode", "run")]).await;
    followed(&guest, reply).await.shows("Choose at least one cluster");
}

#[tokio::test]
async fn a_schedule_is_previewed_stored_switched_and_deleted() {
    let site = Site::open().await;
    site.import("harbour", &[("env", "test")]).await;
    site.import("quay", &[("env", "prod")]).await;
    site.task().await;
    let guest = site.guest("jo", Role::Operator).await;
    let with = |mode: &'static str, when: &'static str, etag: &'static str| {
        [
            ("id", "weekly"),
            ("task", TASK),
            ("state", "Enabled"),
            ("calendars", when),
            ("time-zone", "UTC"),
            ("look-forward", "1"),
            ("start-within", "4h"),
            ("parameters", "{\"node\": \"worker-1\"}"),
            ("s.key", "label.env"),
            ("s.operator", "eq"),
            ("s.value", "test"),
            ("mode", mode),
            ("etag", etag),
        ]
    };
    let ahead = guest.post("/preview/schedule", &with("", "Sat *-*-* 03:00", "")).await.expect(200);
    ahead.shows("Matches 1 of 2 clusters").shows("harbour").shows("03:00:00 UTC");
    assert!(!ahead.text.contains("quay") && !ahead.text.contains("<html"));
    guest
        .post("/preview/schedule", &with("", "Sat 25:00", ""))
        .await
        .expect(200)
        .shows("It could not be stored like this");
    let page = guest.post("/act/schedule", &with("preview", "Sat *-*-* 03:00", "")).await.expect(200);
    page.shows("Matches 1 of 2 clusters").shows("value=\"weekly\"").shows("label.env");
    assert!(site.admin.schedules().all().await.unwrap().is_empty(), "a look writes nothing");
    guest.post("/act/schedule", &with("save", "Sat 25:00", "")).await.expect(200).shows("It was not stored");
    let reply = guest.post("/act/schedule", &with("save", "Sat *-*-* 03:00", "")).await;
    followed(&guest, reply)
        .await
        .shows("It is stored")
        .shows("Sat *-*-* 03:00")
        .shows("Matches 1 of 2 clusters");
    guest
        .post("/act/schedule", &with("save", "Sun *-*-* 03:00", ""))
        .await
        .expect(200)
        .shows("of that name already");
    guest
        .post("/act/schedule", &with("save", "Sun *-*-* 03:00", "\"999\""))
        .await
        .expect(200)
        .shows("It was not stored");
    // What the look ahead showed is what is stored, to the letter.
    let stored = site.admin.schedule("weekly").await.unwrap();
    let preview = site.admin.preview(&stored.value, 10, 20, None).await.unwrap();
    for period in &preview.periods {
        ahead.shows(&period.strftime("%Y-%m-%d %H:%M:%S UTC").to_string());
    }
    guest.get("/schedules").await.expect(200).shows("weekly").shows("Enabled").shows("cordon-node");
    guest.get("/plan").await.expect(200).shows("harbour").shows("weekly").shows("all begin in time");
    let timeline = guest.get("/timeline?span=30d").await.expect(200);
    timeline.shows("class=\"bar planned\"").shows("id=\"hatch\"").shows("class=\"now\"");
    let reply = guest.post("/act/schedule/weekly/disable", &[("reason", "holidays")]).await;
    followed(&guest, reply).await.shows("The schedule weekly is disabled").shows("Disabled");
    assert_eq!(last_audit(&site, "schedule.").await["reason"], "holidays");
    let reply = guest.post("/act/schedule/weekly/delete", &[("confirm", "weakly")]).await;
    followed(&guest, reply).await.shows("nothing was done");
    let reply = guest.post("/act/schedule/weekly/delete", &[("confirm", "weekly")]).await;
    followed(&guest, reply).await.shows("is deleted").shows("There are no schedules yet");
}

#[tokio::test]
async fn the_stop_button_stops_and_lets_go_on() {
    let site = Site::open().await;
    let guest = site.guest("jo", Role::Operator).await;
    guest.get("/budgets").await.expect(200).shows("Stop all new starts").shows("No limits are set");
    let stop = [("key", "fleet"), ("limit", "0"), ("reason", "smoke")];
    let reply = guest.post("/act/budget", &stop).await;
    followed(&guest, reply)
        .await
        .shows("All new starts are stopped")
        .shows("Let maintenance go on")
        .shows("0: stopped");
    let audited = last_audit(&site, "budget.set").await;
    assert_eq!((audited["actor"].as_str(), audited["reason"].as_str()), (Some("jo"), Some("smoke")));
    let reply = guest.post("/act/budget", &[("key", "fleet"), ("limit", "none"), ("reason", "clear")]).await;
    followed(&guest, reply).await.shows("The limit of fleet is removed").shows("Stop all new starts");
    for (key, limit, word) in [("fleet", "many", "whole number"), ("flet", "3", "That was not done")] {
        let reply = guest.post("/act/budget", &[("key", key), ("limit", limit), ("reason", "x")]).await;
        followed(&guest, reply).await.shows(word);
    }
}

#[tokio::test]
async fn labels_are_replaced_and_what_is_none_is_refused() {
    let site = Site::open().await;
    site.import("harbour", &[("env", "test")]).await;
    let guest = site.guest("jo", Role::Operator).await;
    let path = format!("/act{}", page_of("harbour"));
    let reply = guest.post(&path, &[("labels", "env=prod\nring = 2\n"), ("reason", "promoted")]).await;
    followed(&guest, reply).await.shows("The cluster has 2 labels now").shows("env=prod").shows("ring=2");
    let reply = guest.post(&path, &[("labels", "nonsense")]).await;
    followed(&guest, reply).await.shows("is no label");
    assert_eq!(last_audit(&site, "cluster.update").await["reason"], "promoted");
    guest.post("/act/nothing/of/this", &[]).await.expect(303);
}
