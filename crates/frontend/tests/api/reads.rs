//! Reads for portals: the fleet list, operations, the timeline, the audit log, and objects of clusters.

use serde_json::json;
use store::HealthSample;

use super::arm::{self, NEW, at, body};
use super::fixture::{TestServer, admin, on_both, rid};

#[tokio::test]
async fn the_version_of_a_provisioned_cluster_is_the_installed_one() {
    let server = TestServer::open().await;
    server.register().await;
    server.put(&at("harbour", NEW), &body("harbour")).await.expect(201);
    server.prepare("quay").await;
    let seen = async |name: &str| {
        let cluster = server.store.clusters().find(name).await.unwrap().unwrap().uuid;
        let (at, details) = (jiff::Timestamp::UNIX_EPOCH, json!({"version": "v1.37.1"}).into());
        HealthSample { cluster, at, reachable: true, since: at, details }
    };
    let samples = vec![seen(&arm::rid("harbour")).await, seen(&rid("quay")).await];
    server.store.health_writer().put(samples).await.unwrap();
    let fleet = server.get("/admin/fleet").await.expect(200).json();
    let version = |at: usize| (fleet["value"][at]["name"].clone(), fleet["value"][at]["version"].clone());
    assert_eq!(version(0), (json!("harbour"), json!("4.20.3")));
    assert_eq!(version(1), (json!("quay"), json!("v1.37.1")), "of an imported one it is what it says itself");
    server.close().await;
}

#[tokio::test]
async fn the_fleet_is_filtered_sorted_and_paged_and_shows_its_work() {
    on_both(|server: TestServer| async move {
        for name in ["quay", "harbour", "dock"] {
            server.prepare(name).await;
        }
        let labels = format!("{}/labels", admin("dock"));
        server.put(&labels, &json!({"env": "test"})).await.expect(200);
        let names = async |query: &str| {
            let fleet = server.get(&format!("/admin/fleet?{query}")).await.expect(200).json();
            let lines = fleet["value"].as_array().unwrap().clone();
            let names: Vec<String> =
                lines.iter().map(|line| line["name"].as_str().unwrap().to_owned()).collect();
            (names.join(" "), fleet)
        };
        let (all, fleet) = names("").await;
        assert_eq!(
            (all.as_str(), &fleet["of"], &fleet["states"]["Succeeded"]),
            ("dock harbour quay", &json!(3), &json!(3))
        );
        assert_eq!(fleet["reachability"], json!({"unknown": 3}));
        for (query, expect) in [
            ("sort=-name", "quay harbour dock"),
            ("skip=1&limit=1", "harbour"),
            ("q=ARBO", "harbour"),
            ("q=env%3Dtest", "dock"),
            ("label=env", "dock"),
            ("label=env%3Dprod", ""),
            ("state=failed", ""),
            ("location=LOCAL", "dock harbour quay"),
            ("reachability=reachable", ""),
            ("work=running", ""),
            ("work=idle&sort=next", "dock harbour quay"),
        ] {
            assert_eq!(names(query).await.0, expect, "{query}");
        }
        let id = server.request_task("harbour", json!({})).await;
        assert_eq!(names("work=waiting").await.0, "harbour");
        let owner = uuid::Uuid::from_u128(5);
        let claimed = server.store.claim(api::work::WorkKind::Manifest, 1, owner).await.unwrap();
        assert_eq!(claimed[0].lease.work, id);
        let (running, fleet) = names("work=running").await;
        assert_eq!(running, "harbour");
        assert_eq!(fleet["value"][0]["running"]["id"], json!(id));
        assert_eq!(fleet["value"][0]["running"]["title"], "wait-a-moment");
        let timeline = server.get("/admin/maintenancetimeline?api-version=admin").await.expect(200).json();
        assert_eq!(
            (&timeline["value"][0]["manifest"], &timeline["value"][0]["state"]),
            (&json!(id), &json!("InProgress"))
        );
        let done = store::Completion::new(
            claimed[0].lease,
            api::work::Ending::Completed,
            json!({"message": "well"}),
        );
        server.store.complete(&[done]).await.unwrap();
        let timeline = server.get("/admin/maintenancetimeline?api-version=admin").await.expect(200).json();
        let run = &timeline["value"][0];
        assert_eq!(
            (&run["state"], &run["statusText"], &run["taskName"]),
            (&json!("Completed"), &json!("well"), &json!("wait-a-moment"))
        );
        assert!(run["start"].is_string() && run["end"].is_string() && timeline["isCut"] == false);
        for wrong in ["sort=colour", "work=hard", "limit=0", "skip=-1"] {
            server.get(&format!("/admin/fleet?{wrong}")).await.expect(400);
        }
        server.get("/admin/maintenancetimeline?api-version=admin&from=yesterday").await.expect(400);
        server.close().await;
    })
    .await;
}

#[tokio::test]
async fn the_audit_log_is_read_in_pages_and_its_chain_is_verified() {
    on_both(|server: TestServer| async move {
        server.prepare("harbour").await;
        let first = server.get("/admin/audit?limit=1").await.expect(200).json();
        let next = first["nextLink"].as_str().unwrap().replace(&server.url, "");
        let second = server.get(&next).await.expect(200).json();
        assert_ne!(first["value"][0]["id"], second["value"][0]["id"]);
        let found = server.get("/admin/audit?action=cluster.&actor=anonymous").await.expect(200).json();
        assert!(!found["value"].as_array().unwrap().is_empty(), "{found}");
        let chain = server.get("/admin/audit/chain").await.expect(200).json();
        assert_eq!(chain["faults"], json!([]));
        server.get("/admin/audit?$skipToken=nonsense").await.expect(400);
        server.close().await;
    })
    .await;
}

#[tokio::test]
async fn an_unreachable_cluster_is_an_error_and_an_imported_one_has_no_operations() {
    let server = TestServer::open().await;
    server.prepare("harbour").await;
    let objects = |query: &str| format!("{}/kubernetesobjects?{query}", admin("harbour"));
    let reply = server.get(&objects("kind=Node")).await.expect(502);
    assert!(reply.text.contains("The request to the cluster failed"), "{}", reply.text);
    server.get(&objects("")).await.expect(400);
    server.get(&objects("kind=a%2Fb")).await.expect(400);
    server.get(&objects("kind=Node&unrestricted=perhaps")).await.expect(400);
    server.get(&format!("{}/kubernetesobjects?kind=Node", admin("nobody"))).await.expect(404);
    let none = server.get(&format!("{}/operations", admin("harbour"))).await.expect(200).json();
    assert_eq!(none["value"], json!([]));
    let history = format!("{}/operations/{}/history", admin("harbour"), uuid::Uuid::nil());
    server.get(&history).await.expect(404);
    server.close().await;
}
