//! Each page, empty and with content.

use api::doc::{Operation, ProvisioningState, Verb};
use portal::Role;

use super::fixture::{TestPortal, page_of};

const PAGES: [&str; 9] =
    ["/fleet", "/work", "/timeline", "/plan", "/schedules", "/schedules/new", "/tasks", "/budgets", "/audit"];

#[tokio::test]
async fn every_empty_page_shows_the_next_action_and_links_to_its_json() {
    let site = TestPortal::open().await;
    let user = site.user("jo", Role::Operator).await;
    for path in PAGES {
        let page = user.get(path).await.expect(200);
        page.shows("<h1>").shows("CLI").shows("shipshape ").shows("Skip to the content");
        let (_, rest) = page.text.split_once("href=\"/json").expect("a link to the JSON");
        let json = format!("/json{}", rest.split('"').next().unwrap().replace("&amp;", "&"));
        let twin = user.get(&json).await.expect(200);
        assert_eq!(twin.header("content-type"), "application/json", "{path}");
        assert!(serde_json::from_str::<serde_json::Value>(&twin.text).is_ok(), "{path}");
    }
    user.get("/fleet").await.shows("No clusters yet").shows("shipshape cluster create");
    user.get("/schedules").await.shows("No schedules yet");
    user.get("/nowhere").await.expect(404).shows("Not found");
    user.get("/manifest/01234567").await.expect(404);
    user.get(&page_of("nobody")).await.expect(404);
    user.get("/fleet?sort=colour").await.expect(400).shows("sorted by");
    assert_eq!(user.get("/").await.expect(303).header("location"), "/fleet");
    user.get("/json/subscriptions/x").await.expect(404);
    user.get("/json/admin/events").await.expect(404);
}

#[tokio::test]
async fn the_fleet_is_filtered_sorted_and_paged_by_its_address() {
    let site = TestPortal::open().await;
    site.fill(120).await;
    let user = site.user("jo", Role::Operator).await;
    let first = user.get("/fleet").await.expect(200);
    first.shows("cluster-0000").shows("1–50 of 120").shows("rel=\"next\"");
    assert!(!first.text.contains("cluster-0050"));
    user.get("/fleet?skip=100").await.expect(200).shows("101–120 of 120").shows("cluster-0119");
    let failed = user.get("/fleet?state=failed").await.expect(200);
    failed.shows("1–3 of 3").shows("cluster-0007").shows("cluster-0047");
    user.get("/fleet?q=cluster-0042").await.expect(200).shows("1–1 of 1");
    user.get("/fleet?q=ENV%3Dprod&location=west").await.expect(200).shows("of 20");
    user.get("/fleet?label=env%3Dtest").await.expect(200).shows("of 60");
    let reversed = user.get("/fleet?sort=-name").await.expect(200);
    reversed.shows("cluster-0119").shows("aria-sort=\"descending\"");
    user.get("/fleet?q=nobody").await.expect(200).shows("No cluster matches");
    user.get("/fleet?work=idle&sort=next").await.expect(200).shows("of 120");
}

#[tokio::test]
async fn a_page_shows_changes_and_deletions_at_once() {
    let site = TestPortal::open().await;
    let id = site.import("harbour", &[("env", "test")]).await;
    let user = site.user("jo", Role::Operator).await;
    user.get("/fleet").await.shows("env=test");
    site.admin.label_cluster(&id, &[("env".to_owned(), "prod".to_owned())].into(), None).await.unwrap();
    user.get("/fleet").await.shows("env=prod");
    site.admin.forget_cluster(&id, None).await.unwrap();
    user.get("/fleet").await.shows("No clusters yet");
}

#[tokio::test]
async fn a_fleet_of_5000_is_a_small_page() {
    let site = TestPortal::open().await;
    site.fill(5_000).await;
    let user = site.user("jo", Role::Operator).await;
    let begun = std::time::Instant::now();
    let page = user.get("/fleet").await.expect(200);
    let took = begun.elapsed();
    page.shows("1–50 of 5000");
    println!("the fleet page of 5,000 clusters: {} bytes in {took:?}", page.text.len());
    assert!(page.text.len() < 300_000, "{} bytes", page.text.len());
    user.get("/fleet?sort=next&work=idle").await.expect(200).shows("of 5000");
}

#[tokio::test]
async fn names_written_by_others_are_escaped() {
    let site = TestPortal::open().await;
    let hostile = "</script><script>alert(1)</script>";
    let backwards = "\u{202e}gnp.exe\u{2066}";
    let long = "x".repeat(255);
    let id = site.import("harbour", &[("markup", hostile), ("backwards", backwards), ("long", &long)]).await;
    site.task().await;
    let manifest = site.request_task(&id, None).await;
    site.admin.cancel_manifest(&id, manifest, Some("<img src=x onerror=alert(2)>")).await.unwrap();
    let user = site.user("<b>jo</b>", Role::Operator).await;
    let paths = [
        "/fleet".to_owned(),
        page_of("harbour"),
        format!("{}?tab=labels", page_of("harbour")),
        format!("{}?tab=manifests", page_of("harbour")),
        format!("/manifest/{manifest}"),
        "/audit".to_owned(),
        "/tasks".to_owned(),
        "/work".to_owned(),
        format!("/fleet?q={}", super::fixture::escaped(hostile)),
    ];
    for path in paths {
        let page = user.get(&path).await.expect(200);
        for markup in ["<script>alert", "<img src=x", "<b>jo", "<b>for a while"] {
            assert!(!page.text.contains(markup), "{markup} in {path}");
        }
    }
    user.get("/fleet").await.shows("&lt;/script&gt;&lt;script&gt;alert(1)").shows(&long).shows("<bdi>");
}

#[tokio::test]
async fn an_unreachable_cluster_is_an_error_of_a_panel_and_not_of_the_page() {
    let site = TestPortal::open().await;
    site.import("harbour", &[("env", "test")]).await;
    let user = site.user("jo", Role::Operator).await;
    let page = page_of("harbour");
    user.get(&page)
        .await
        .expect(200)
        .shows("harbour")
        .shows("env=test")
        .shows("No work is running or waiting");
    for (tab, title) in [
        ("nodes", "The nodes cannot be read now"),
        ("machines", "The machines cannot be read now"),
        ("machinesets", "The MachineSets cannot be read now"),
        ("operators", "The ClusterOperators cannot be read now"),
        ("events", "The events cannot be read now"),
        ("objects&kind=Pod&unrestricted=true", "The objects cannot be read now"),
    ] {
        let shown = user.get(&format!("{page}?tab={tab}")).await.expect(200);
        shown.shows(title).shows("The request to the cluster failed").shows("Overview");
    }
    for (tab, word) in [
        ("operations", "No operations"),
        ("manifests", "No manifests"),
        ("labels", "label.env"),
        ("objects", "Select a kind"),
    ] {
        user.get(&format!("{page}?tab={tab}")).await.expect(200).shows(word);
    }
    user.get(&format!("{page}?tab=nothing")).await.expect(404);
}

#[tokio::test]
async fn every_operation_of_a_cluster_shows_its_steps_the_newest_by_default() {
    let site = TestPortal::open().await;
    let id = site.import("harbour", &[]).await;
    let by = store::AuditContext::service("test");
    let mut ids = Vec::new();
    for (verb, at) in [(Verb::Update, 1_000), (Verb::Delete, 2_000)] {
        let read = site.store.clusters().find(&id).await.unwrap().unwrap();
        let operation = Operation {
            id: uuid::Uuid::now_v7(),
            cluster: read.uuid,
            cluster_path: id.to_lowercase(),
            verb,
            initial_status: ProvisioningState::Updating,
            status: ProvisioningState::Updating,
            start_time: jiff::Timestamp::from_second(at).unwrap(),
            end_time: None,
            error: None,
            snapshot: None,
            correlation_id: None,
            client_request_id: None,
        };
        let wanted = read.document.clone();
        let none = store::Secrets::default();
        site.store.clusters().start_update(&read, &wanted, &operation, &none, &by).await.unwrap();
        let entry = api::admin::Entry {
            step: Some(format!("the-step-of-{verb:?}").into()),
            ..api::admin::Entry::new(
                operation.start_time,
                api::admin::EntryEvent::StepStarted,
                "service:backend",
                1,
            )
        };
        site.store.commit(store::Transaction::new().record(operation.id, entry)).await.unwrap();
        ids.push(operation.id);
    }
    let user = site.user("jo", Role::Operator).await;
    let tab = format!("{}?tab=operations", page_of("harbour"));
    let newest = user.get(&tab).await.expect(200);
    newest.shows("the-step-of-Delete").shows(&format!("shipshape operation show {}", ids[1]));
    assert!(!newest.text.contains("the-step-of-Update"), "{}", newest.text);
    newest.shows(&format!("operation={}", ids[0]));
    let older = user.get(&format!("{tab}&operation={}", ids[0])).await.expect(200);
    older.shows("the-step-of-Update").shows(&format!("shipshape operation show {}", ids[0]));
    user.get(&format!("{tab}&operation=nonsense")).await.expect(200).shows("the-step-of-Delete");
}

#[tokio::test]
async fn a_manifest_shows_its_steps_its_history_and_why_it_waits() {
    let site = TestPortal::open().await;
    let id = site.import("harbour", &[]).await;
    site.task().await;
    let later = site.request_task(&id, Some(4_000_000_000)).await;
    let user = site.user("jo", Role::Operator).await;
    let page = user.get(&format!("/manifest/{later}")).await.expect(200);
    page.shows("cordon-node on harbour").shows("Why it waits").shows("NotDue").shows("2096-10-02");
    page.shows("Cancel manifest").shows("Expedite").shows("set-aside").shows("pending").shows("worker-1");
    page.shows(&format!("shipshape why {}", &later.to_string()[..8]));
    let now = site.request_task(&id, None).await;
    let claimed = site.claim().await;
    assert_eq!(claimed.lease.work, now);
    site.step(&claimed, 1, "the node <i>rests</i>").await;
    let page = user.get(&format!("/manifest/{now}")).await.expect(200);
    page.shows("InProgress")
        .shows("running")
        .shows("the node &lt;i&gt;rests&lt;/i&gt;")
        .shows("Cancel and undo");
    page.shows("What it waits for").shows("Running step <strong>set-aside</strong>");
    let held = serde_json::json!({"step": {
        "name": "let-go", "index": 2, "of": 2, "since": "2026-01-01T00:00:00Z", "deadline": "2026-01-01T01:00:00Z",
        "message": "Waiting for 2 pods on node a; PodDisruptionBudget shop/web allows no disruption",
        "waitingFor": [{
            "what": "PodDisruptionBudget shop/web", "message": "allows no disruption of shop/web-1",
            "owner": "customer", "since": "2026-01-01T00:10:00Z",
        }],
    }});
    site.store.checkpoint(claimed.lease, "let-go", held).await.unwrap();
    let page = user.get(&format!("/manifest/{now}")).await.expect(200);
    page.shows("Waiting for 2 pods on node a; PodDisruptionBudget shop/web allows no disruption")
        .shows("PodDisruptionBudget shop/web allows no disruption of shop/web-1")
        .shows("Customer")
        .shows("Deadline")
        .shows("2026-01-01 01:00");
    user.get("/work").await.expect(200).shows("Running now").shows("Waiting").shows(&later.to_string());
    user.get("/fleet").await.expect(200).shows("let-go");
    user.get("/timeline?span=1h").await.expect(200).shows("bar busy").shows(&format!("/manifest/{now}"));
    user.get("/timeline?rows=schedules").await.expect(200).shows("on demand");
    site.complete(&claimed).await;
    let page = user.get(&format!("/manifest/{now}")).await.expect(200);
    page.shows("Completed").shows("the node had its rest").shows("The work is finished");
    user.get("/work").await.expect(200).shows("Finished in the last 24 hours").shows("the node had its rest");
    user.get(&format!("{}?tab=manifests", page_of("harbour")))
        .await
        .expect(200)
        .shows("Completed")
        .shows("Pending");
    user.get("/timeline").await.expect(200).shows("bar good");
}

#[tokio::test]
async fn the_runs_of_a_schedule_are_one_row_that_opens_without_a_script() {
    let site = TestPortal::open().await;
    for name in ["harbour", "quay"] {
        site.import(name, &[("env", "test")]).await;
    }
    site.task().await;
    let schedule = serde_json::json!({
        "id": "often", "state": "Enabled", "maintenanceTaskID": super::fixture::TASK, "schedule": "*-*-* *:00/5",
        "scheduleAcross": "0s", "selectors": [{"key": "label.env", "operator": "eq", "value": "test"}],
        "parameters": {"node": "worker-1"},
    });
    site.admin.put_schedule(&schedule, None).await.unwrap();
    let user = site.user("jo", Role::Operator).await;
    let page = user.get("/plan?for=24h").await.expect(200);
    page.shows("<summary>every 5 min, 576 runs</summary>")
        .shows("2</span> clusters")
        .shows("all start in time");
    page.shows("assumed from its steps").shows("each=run").shows("1–1 of 1");
    let each = user.get("/plan?for=24h&each=run&schedule=often").await.expect(200);
    each.shows("1–200 of 576").shows("rel=\"next\"").shows("--all");
    assert!(!each.text.contains("<summary>every 5 min"));
    user.get("/plan?for=24h&each=run&skip=400").await.expect(200).shows("401–576 of 576");
    user.get("/plan?only=misses").await.expect(200).shows("Nothing is planned");
    let timeline = user.get("/timeline?span=24h").await.expect(200);
    timeline.shows("planned series").shows("every 5 min, ").shows("/plan?each=run&amp;schedule=often");
    user.get("/timeline?span=24h&rows=schedules")
        .await
        .expect(200)
        .shows("on 2 clusters, planned, every 5 min");
}
