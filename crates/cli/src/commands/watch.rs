//! `--watch`: a list, followed by its changes.
//!
//! An event triggers another read of the list, and the differences are printed. So nothing is
//! missed between the list and the first event, and progress without an event is seen at the next read.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use client::{Client, Topic};
use futures_util::StreamExt as _;
use serde_json::Value;
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
        let mut state = serde_json::to_value(&item).unwrap_or_default();
        remove_observation_times(&mut state);
        let state = state.to_string();
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

/// Removes when something was observed: an observation that found nothing new is no change.
fn remove_observation_times(value: &mut Value) {
    const TIMES: [&str; 2] = ["checkedAt", "observedAt"];
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !TIMES.contains(&name.as_str()));
            members.values_mut().for_each(remove_observation_times);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_observation_times),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_observation_that_finds_nothing_new_is_no_change() {
        let state = |at: &str, reachable| {
            let mut value = json!([{"reachability": {"checkedAt": at, "reachable": reachable}, "health": {"observedAt": at}}]);
            remove_observation_times(&mut value);
            value
        };
        assert_eq!(state("a", true), state("b", true));
        assert_ne!(state("a", true), state("a", false));
    }
}
