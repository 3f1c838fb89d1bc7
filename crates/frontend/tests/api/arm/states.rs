//! The provisioning state machine: the requests that each state allows.

use api::doc::ProvisioningState::{
    self as S, AdminUpdating, Creating, Deleting, Failed, Succeeded, Updating,
};
use serde_json::json;

use super::{NEW, at, body, rid};
use crate::fixture::TestServer;

#[tokio::test]
async fn each_request_is_allowed_in_the_states_of_the_table_and_in_no_other() {
    let server = TestServer::open().await;
    server.register().await;
    // State, failed state; whether PUT and PATCH, DELETE, credentials are allowed.
    let table: [(S, Option<S>, [bool; 3]); 9] = [
        (Creating, None, [false, false, false]),
        (Updating, None, [false, false, true]),
        (AdminUpdating, None, [false, false, true]),
        (Deleting, None, [false, false, false]),
        (Failed, Some(Creating), [false, true, false]),
        (Failed, Some(Deleting), [false, true, false]),
        (Failed, Some(Updating), [true, true, true]),
        (Failed, None, [true, true, true]),
        (Succeeded, None, [true, true, true]),
    ];
    for (at_row, (state, failed, [write, delete, credentials])) in table.into_iter().enumerate() {
        let name = format!("c{at_row}");
        server.put(&at(&name, NEW), &body(&name)).await.expect(201);
        let settle = async || server.settle(&name, state, failed).await;
        let what = format!("{state:?} {failed:?}");
        settle().await;
        server.get(&at(&name, NEW)).await.expect(200);
        let judge = |reply: crate::fixture::Reply, allowed: bool, expect: u16| {
            if allowed {
                assert_eq!(reply.status, expect, "{what}: {}", reply.text);
            } else {
                assert_eq!(reply.error(), (400, "RequestNotAllowed".to_owned(), String::new()), "{what}");
            }
        };
        for action in ["listCredentials", "listAdminCredentials"] {
            let reply = server.post(&format!("{}/{action}?api-version={NEW}", rid(&name))).await;
            judge(reply, credentials, 200);
        }
        judge(server.put(&at(&name, NEW), &body(&name)).await, write, 200);
        settle().await;
        judge(server.patch(&at(&name, NEW), &json!({})).await, write, 200);
        settle().await;
        judge(server.delete(&at(&name, NEW)).await, delete, 202);
    }
    server.close().await;
}

#[tokio::test]
async fn reads_of_credentials_are_audited_and_responses_without_a_body_have_a_type() {
    let server = TestServer::with_cluster("one", Succeeded).await;
    let correlation = "0192d0e0-0000-7000-8000-00000000000a";
    let headers = [("x-ms-correlation-request-id", correlation)];
    for action in ["listCredentials", "listAdminCredentials"] {
        let path = format!("{}/{action}?api-version={NEW}", rid("one"));
        server.send(http::Method::POST, &path, &headers, None).await.expect(200);
        let listing = store::AuditQuery {
            action: Some(format!("cluster.{action}")),
            limit: 10,
            ..store::AuditQuery::default()
        };
        let rows = server.store.audit_list(listing).await.unwrap();
        let entry = &rows.first().unwrap_or_else(|| panic!("{action} left no trace")).record.entry;
        assert_eq!(entry.target, rid("one").to_lowercase());
        assert_eq!(entry.correlation_id.map(|it| it.to_string()).as_deref(), Some(correlation));
        assert!(!entry.actor.is_empty() && entry.before.is_none() && entry.after.is_none());
    }
    let deleted = server.delete(&at("one", NEW)).await.expect(202);
    assert_eq!(deleted.header("content-type"), "application/json");
    let absent = server.delete(&at("nobody", NEW)).await.expect(204);
    assert_eq!(absent.header("content-type"), "application/json");
    server.close().await;
}
