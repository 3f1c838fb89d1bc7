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
