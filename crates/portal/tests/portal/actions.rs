//! Actions on the pages, and their audit entries.

use portal::Role;

use super::fixture::{TASK, TestPortal, TestUser, escaped, last_audit, page_of};

/// Follows a redirect.
async fn followed(user: &TestUser, reply: super::fixture::Reply) -> super::fixture::Reply {
    let to = reply.expect(303).header("location").to_owned();
    user.get(&to).await.expect(200)
}

#[tokio::test]
async fn a_manifest_is_expedited_and_cancelled_in_the_name_of_the_user() {
    let site = TestPortal::open().await;
    let id = site.import("harbour", &[]).await;
    site.task().await;
    let manifest = site.request_task(&id, Some(4_000_000_000)).await;
    let user = site.user("jo", Role::Operator).await;
    let reply =
        user.post(&format!("/act/manifest/{manifest}/expedite"), &[("reason", "it cannot wait")]).await;
    followed(&user, reply).await.shows("Expedited: it is next on its cluster").shows("expedited");
    let reply = user.post(&format!("/act/manifest/{manifest}/cancel"), &[("reason", "another time")]).await;
    followed(&user, reply).await.shows("Manifest cancelled").shows("another time");
    let audited = last_audit(&site, "manifest.cancel").await;
    assert_eq!((audited["actor"].as_str(), audited["reason"].as_str()), (Some("jo"), Some("another time")));
    let reply = user.post(&format!("/act/manifest/{manifest}/cancel"), &[("reason", "again")]).await;
    followed(&user, reply).await.shows("The request failed: cannot cancel task in state Cancelled");
    let page = user.get("/audit?action=manifest.cancel").await.expect(200);
    page.shows("another time").shows("jo");
}

#[tokio::test]
async fn running_work_is_cancelled() {
    let site = TestPortal::open().await;
    let id = site.import("harbour", &[]).await;
    site.task().await;
    let manifest = site.request_task(&id, None).await;
    let claimed = site.claim().await;
    site.step(&claimed, 1, "").await;
    let user = site.user("jo", Role::Operator).await;
    let reply = user.post(&format!("/act/manifest/{manifest}/cancel"), &[("reason", "stop")]).await;
    followed(&user, reply).await.shows("Cancellation requested").shows("cancelling");
}

#[tokio::test]
async fn a_task_is_previewed_and_then_run_on_selected_clusters() {
    let site = TestPortal::open().await;
    let (one, two) = (site.import("harbour", &[]).await, site.import("quay", &[]).await);
    site.task().await;
    let user = site.user("jo", Role::Operator).await;
    let page =
        user.get(&format!("/tasks?cluster={}&cluster={}", escaped(&one), escaped(&two))).await.expect(200);
    page.shows("2 clusters").shows("/task/cordon-node?cluster=");
    let page = user.get(&format!("/task/cordon-node?cluster={}", escaped(&one))).await.expect(200);
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
    let page = user.post("/act/task/cordon-node/run", &fields).await.expect(200);
    page.shows("would be accepted")
        .shows("would be rejected")
        .shows("Run on 2 clusters")
        .shows("value=\"worker-1\"");
    let made = async |cluster: &str| site.admin.manifests(cluster).all().await.unwrap();
    assert!(made(&one).await.is_empty(), "a preview writes nothing");
    fields[4] = ("mode", "run");
    let reply = user.post("/act/task/cordon-node/run", &fields).await;
    followed(&user, reply).await.shows("Requested on 2 clusters; rejected on 1: nobody");
    let form = made(&two).await.remove(0);
    assert_eq!(
        serde_json::Value::Object(form.parameters),
        serde_json::json!({"node": "worker-1", "times": 3, "deep": true})
    );
    assert_eq!(form.created_by, "jo");
    let wrong = [("cluster", one.as_str()), ("p.times", "33"), ("mode", "preview")];
    user.post("/act/task/cordon-node/run", &wrong).await.expect(200).shows("would be rejected");
    let reply = user.post("/act/task/cordon-node/run", &[("mode", "run")]).await;
    followed(&user, reply).await.shows("Select at least one cluster");
}

#[tokio::test]
async fn a_schedule_is_previewed_stored_switched_and_deleted() {
    let site = TestPortal::open().await;
    site.import("harbour", &[("env", "test")]).await;
    site.import("quay", &[("env", "prod")]).await;
    site.task().await;
    let user = site.user("jo", Role::Operator).await;
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
    let ahead = user.post("/preview/schedule", &with("", "Sat *-*-* 03:00", "")).await.expect(200);
    ahead.shows("Matches 1 of 2 clusters").shows("harbour").shows("03:00:00 UTC");
    assert!(!ahead.text.contains("quay") && !ahead.text.contains("<html"));
    user.post("/preview/schedule", &with("", "Sat 25:00", ""))
        .await
        .expect(200)
        .shows("The schedule is not valid");
    let page = user.post("/act/schedule", &with("preview", "Sat *-*-* 03:00", "")).await.expect(200);
    page.shows("Matches 1 of 2 clusters").shows("value=\"weekly\"").shows("label.env");
    assert!(site.admin.schedules().all().await.unwrap().is_empty(), "a preview writes nothing");
    user.post("/act/schedule", &with("save", "Sat 25:00", ""))
        .await
        .expect(200)
        .shows("The schedule was not saved");
    let reply = user.post("/act/schedule", &with("save", "Sat *-*-* 03:00", "")).await;
    followed(&user, reply)
        .await
        .shows("Schedule saved")
        .shows("Sat *-*-* 03:00")
        .shows("Matches 1 of 2 clusters");
    user.post("/act/schedule", &with("save", "Sun *-*-* 03:00", ""))
        .await
        .expect(200)
        .shows("with this name already exists");
    user.post("/act/schedule", &with("save", "Sun *-*-* 03:00", "\"999\""))
        .await
        .expect(200)
        .shows("The schedule was not saved");
    // What the look ahead showed is what is stored, to the letter.
    let stored = site.admin.schedule("weekly").await.unwrap();
    let preview = site.admin.preview(&stored.value, 10, 20, None).await.unwrap();
    for period in &preview.periods {
        ahead.shows(&period.strftime("%Y-%m-%d %H:%M:%S UTC").to_string());
    }
    user.get("/schedules").await.expect(200).shows("weekly").shows("Enabled").shows("cordon-node");
    user.get("/plan").await.expect(200).shows("harbour").shows("weekly").shows("all start in time");
    let timeline = user.get("/timeline?span=30d").await.expect(200);
    timeline.shows("class=\"bar planned\"").shows("id=\"hatch\"").shows("class=\"now\"");
    let reply = user.post("/act/schedule/weekly/disable", &[("reason", "holidays")]).await;
    followed(&user, reply).await.shows("Schedule weekly is disabled").shows("Disabled");
    assert_eq!(last_audit(&site, "schedule.").await["reason"], "holidays");
    let reply = user.post("/act/schedule/weekly/delete", &[("confirm", "weakly")]).await;
    followed(&user, reply).await.shows("nothing was deleted");
    let reply = user.post("/act/schedule/weekly/delete", &[("confirm", "weekly")]).await;
    followed(&user, reply).await.shows("is deleted").shows("No schedules yet");
}

#[tokio::test]
async fn the_stop_button_stops_and_lets_go_on() {
    let site = TestPortal::open().await;
    let user = site.user("jo", Role::Operator).await;
    user.get("/budgets").await.expect(200).shows("Stop all new starts").shows("No limits are set");
    let stop = [("key", "fleet"), ("limit", "0"), ("reason", "smoke")];
    let reply = user.post("/act/budget", &stop).await;
    followed(&user, reply)
        .await
        .shows("All new starts are stopped")
        .shows("Resume maintenance")
        .shows("0: stopped");
    let audited = last_audit(&site, "budget.set").await;
    assert_eq!((audited["actor"].as_str(), audited["reason"].as_str()), (Some("jo"), Some("smoke")));
    let reply = user.post("/act/budget", &[("key", "fleet"), ("limit", "none"), ("reason", "clear")]).await;
    followed(&user, reply).await.shows("The limit of fleet is removed").shows("Stop all new starts");
    for (key, limit, word) in [("fleet", "many", "whole number"), ("flet", "3", "The request failed")] {
        let reply = user.post("/act/budget", &[("key", key), ("limit", limit), ("reason", "x")]).await;
        followed(&user, reply).await.shows(word);
    }
}

#[tokio::test]
async fn labels_are_replaced_and_what_is_none_is_refused() {
    let site = TestPortal::open().await;
    site.import("harbour", &[("env", "test")]).await;
    let user = site.user("jo", Role::Operator).await;
    let path = format!("/act{}", page_of("harbour"));
    let reply = user.post(&path, &[("labels", "env=prod\nring = 2\n"), ("reason", "promoted")]).await;
    followed(&user, reply).await.shows("the cluster has 2 labels").shows("env=prod").shows("ring=2");
    let reply = user.post(&path, &[("labels", "nonsense")]).await;
    followed(&user, reply).await.shows("is not a label");
    assert_eq!(last_audit(&site, "cluster.update").await["reason"], "promoted");
    user.post("/act/nothing/of/this", &[]).await.expect(303);
}
