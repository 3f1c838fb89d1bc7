//! All clusters with the attributes that schedules select by.

use std::collections::HashMap;

use api::doc::{Cluster, Subscription, SubscriptionState};
use planner::schedule::Member;
use store::{ListOptions, Reader, StoreError};

use crate::cluster_form;

/// All clusters in the order of their ids, with three queries for each thousand.
pub(super) async fn members(reader: &Reader) -> Result<Vec<Member>, StoreError> {
    let subscriptions = subscriptions(reader).await?;
    let (mut members, mut from) = (Vec::new(), None);
    loop {
        let selection = ListOptions { from, limit: store::PAGE_MAX, ..ListOptions::default() };
        let page = reader.documents::<Cluster>().list(selection).await?;
        let health = cluster_form::health(reader, page.items.iter().map(|read| read.uuid).collect()).await?;
        for read in &page.items {
            let state = subscriptions.get(&read.document.subscription_id.to_lowercase()).copied();
            let version = health.get(&read.uuid).and_then(|sample| sample.details.version.as_deref());
            members.push(Member::new(read.uuid, &read.document, state, version));
        }
        match page.next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    members.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(members)
}

async fn subscriptions(reader: &Reader) -> Result<HashMap<String, SubscriptionState>, StoreError> {
    let mut states = HashMap::new();
    let subscriptions = reader.documents::<Subscription>();
    subscriptions
        .for_each(|read| {
            states.insert(read.document.subscription_id.to_lowercase(), read.document.state);
        })
        .await?;
    Ok(states)
}
