//! The provisioning state machine, whole: what is allowed in which state.

use api::doc::ProvisioningState::{
    self as S, AdminUpdating, Creating, Deleting, Failed, Succeeded, Updating,
};
use serde_json::json;

use super::{NEW, at, body, rid};
use crate::fixture::House;

#[tokio::test]
async fn each_request_is_allowed_in_the_states_of_the_table_and_in_no_other() {
    let house = House::open().await;
    house.register().await;
    // State, what failed; whether PUT and PATCH, DELETE, credentials are allowed.
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
        house.put(&at(&name, NEW), &body(&name)).await.expect(201);
        let settle = async || house.settle(&name, state, failed).await;
        let what = format!("{state:?} {failed:?}");
        settle().await;
        house.get(&at(&name, NEW)).await.expect(200);
        let judge = |reply: crate::fixture::Reply, allowed: bool, expect: u16| {
            if allowed {
                assert_eq!(reply.status, expect, "{what}: {}", reply.text);
            } else {
                assert_eq!(reply.refusal(), (400, "RequestNotAllowed".to_owned(), String::new()), "{what}");
            }
        };
        for action in ["listCredentials", "listAdminCredentials"] {
            let reply = house.post(&format!("{}/{action}?api-version={NEW}", rid(&name))).await;
            judge(reply, credentials, 200);
        }
        judge(house.put(&at(&name, NEW), &body(&name)).await, write, 200);
        settle().await;
        judge(house.patch(&at(&name, NEW), &json!({})).await, write, 200);
        settle().await;
        judge(house.delete(&at(&name, NEW)).await, delete, 202);
    }
    house.close().await;
}

#[tokio::test]
async fn whoever_is_shown_credentials_is_in_the_audit_log_and_answers_without_a_body_have_a_type() {
    let house = House::with_cluster("one", Succeeded).await;
    let correlation = "0192d0e0-0000-7000-8000-00000000000a";
    let headers = [("x-ms-correlation-request-id", correlation)];
    for action in ["listCredentials", "listAdminCredentials"] {
        let path = format!("{}/{action}?api-version={NEW}", rid("one"));
        house.ask(http::Method::POST, &path, &headers, None).await.expect(200);
        let listing = store::AuditQuery {
            action: Some(format!("cluster.{action}")),
            limit: 10,
            ..store::AuditQuery::default()
        };
        let rows = house.store.audit_list(listing).await.unwrap();
        let entry = &rows.first().unwrap_or_else(|| panic!("{action} left no trace")).record.entry;
        assert_eq!(entry.target, rid("one").to_lowercase());
        assert_eq!(entry.correlation_id.map(|it| it.to_string()).as_deref(), Some(correlation));
        assert!(!entry.actor.is_empty() && entry.before.is_none() && entry.after.is_none());
    }
    let deleted = house.delete(&at("one", NEW)).await.expect(202);
    assert_eq!(deleted.header("content-type"), "application/json");
    let absent = house.delete(&at("nobody", NEW)).await.expect(204);
    assert_eq!(absent.header("content-type"), "application/json");
    house.close().await;
}
