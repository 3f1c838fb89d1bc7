//! `--watch`: a list, followed by its changes.
//!
//! An event triggers another read of the list, and the differences are printed. So nothing is
//! missed between the list and the first event, and progress without an event is seen at the next read.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use client::{Client, Topic};
use futures_util::StreamExt as _;
use tokio::time::Instant;

use super::Invocation;
use super::print::{Output, Printable};
use crate::output;

/// Shortest interval between two reads.
const PAUSE: Duration = Duration::from_secs(1);

/// Longest interval between two reads.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Prints the result of `list` and then its changes, until the process is stopped.
pub(super) async fn watch<T, F>(
    invocation: &Invocation<'_>,
    client: &Client,
    topic: Topic,
    form: Output,
    list: impl Fn() -> F,
) -> anyhow::Result<()>
where
    T: Printable,
    F: Future<Output = anyhow::Result<Vec<T>>>,
{
    let mut known = BTreeMap::new();
    let mut heading = true;
    let mut events = client.events(&[topic], None);
    let mut is_unreachable = false;
    loop {
        match list().await {
            Ok(items) => {
                is_unreachable = false;
                let changed = differences(&mut known, items);
                if !changed.is_empty() {
                    form.print_rows(invocation, &changed, heading)?;
                    heading = false;
                }
            }
            // The first read must succeed; later ones tolerate a restart of the server.
            Err(error) => match error.downcast_ref::<client::ClientError>() {
                Some(transient) if transient.is_transient() && !heading => {
                    if !std::mem::replace(&mut is_unreachable, true) {
                        output::note(&format!("{transient}"));
                    }
                }
                _ => return Err(error),
            },
        }
        let next = Instant::now() + PAUSE;
        let event = tokio::time::timeout(POLL_INTERVAL, events.next()).await;
        match event {
            Ok(Some(Err(error))) if !error.is_transient() => return Err(error.into()),
            Ok(None | Some(Err(_))) => events = client.events(&[topic], None), // an established stream reconnects by itself
            Ok(Some(Ok(_))) | Err(_) => {}
        }
        tokio::time::sleep_until(next).await;
    }
}

/// New and changed items. Removed items are not reported, as in kubectl.
fn differences<T: Printable>(known: &mut BTreeMap<String, String>, items: Vec<T>) -> Vec<T> {
    let mut current = BTreeMap::new();
    let mut changed = Vec::new();
    for item in items {
        let state = serde_json::to_string(&item).unwrap_or_default();
        let name = item.name();
        let same = known.get(&name) == Some(&state);
        current.insert(name, state);
        if !same {
            changed.push(item);
        }
    }
    *known = current;
    changed
}
