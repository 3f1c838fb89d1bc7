//! A subscription that is deleted takes its clusters along, in whatever state they are.

use api::doc::{ProvisioningState, Subscription, SubscriptionState, Verb};
use backend::installer::FAIL_AT_TAG;
use store::{By, Selection};
use uuid::Uuid;

use crate::site::{Site, eventually};

const DOOMED: &str = "22222222-2222-2222-2222-222222222222";

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_subscription_removes_its_clusters_in_whatever_state_they_are() {
    let site = Site::new().await;
    let mut all: Vec<(String, Uuid)> = Vec::new();
    {
        let (stop, backend) = site.backend();
        let mut operations = Vec::new();
        for index in 0..6 {
            let name = format!("good{index}");
            let (id, made) = site.create_as(DOOMED, &name, |_| ()).await;
            all.push((name, id));
            operations.push(made);
        }
        for index in 0..6 {
            let name = format!("bad{index}");
            let stage = ["ordered", "bootstrap", "controlPlane", "apiServer", "workers", "operators"][index];
            let (id, made) = site
                .create_as(DOOMED, &name, |cluster| {
                    let tags = &mut cluster.provisioned.as_mut().unwrap().tags;
                    tags.insert(FAIL_AT_TAG.to_owned(), stage.to_owned());
                })
                .await;
            all.push((name, id));
            operations.push(made);
        }
        for operation in operations {
            site.ended(operation).await;
        }
        stop.cancel();
        backend.await.unwrap();
    }
    // One that was given up after all its attempts, as it is left.
    let (spent, _) = (all[6].1, ());
    let read = site.cluster(spent).await.unwrap();
    assert_eq!(read.document.provisioning_state, ProvisioningState::Failed);
    // Some that are being made, changed and removed, of which nothing was begun yet.
    for index in 0..4 {
        let name = format!("new{index}");
        let (id, _) = site.create_as(DOOMED, &name, |_| ()).await;
        all.push((name, id));
    }
    for (index, verb) in [(0, Verb::Update), (1, Verb::Delete)] {
        site.change(all[index].1, verb, |_| ()).await;
    }
    for index in 0..4 {
        let name = format!("late{index}");
        let (id, _) = site.create_as(DOOMED, &name, |_| ()).await;
        all.push((name, id));
    }
    assert_eq!(all.len(), 20);
    let subscription = Subscription {
        subscription_id: DOOMED.to_owned(),
        state: SubscriptionState::Deleted,
        tenant_id: None,
        registered_features: Vec::new(),
        body: serde_json::Value::Null,
    };
    site.store.subscriptions().put(&subscription, None, &By::service("test")).await.unwrap();
    let (_stop, _backend) = site.backend();
    eventually("no clusters are left", async || {
        let scope = Some(format!("/subscriptions/{DOOMED}"));
        let left = site.store.clusters().list(Selection { scope, limit: 100, ..Selection::default() }).await;
        left.ok().filter(|it| it.items.is_empty()).map(drop)
    })
    .await;
    for (name, id) in &all {
        assert_eq!(site.left_of(name, *id, DOOMED).await, Vec::<String>::new(), "{name}");
    }
}
