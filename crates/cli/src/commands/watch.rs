//! `--watch`: a list, and then each thing that becomes another.
//!
//! Events only say that something may have changed; the list is then read again and what differs is shown. So nothing is
//! missed between the list and the first event, and progress that no event tells of is seen at the next look.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use client::{Client, Topic};
use futures_util::StreamExt as _;
use tokio::time::Instant;

use super::Invocation;
use super::print::{Output, Printable};
use crate::output;

/// The list is read at most this often,
const PAUSE: Duration = Duration::from_secs(1);

/// and at least this often.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Shows what `list` gives, and then whatever differs from it, until the process is ended.
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
    let mut away = false;
    loop {
        match list().await {
            Ok(items) => {
                away = false;
                let changed = differences(&mut known, items);
                if !changed.is_empty() {
                    form.print_rows(invocation, &changed, heading)?;
                    heading = false;
                }
            }
            // The first look must succeed; later ones outlive a restart of the server.
            Err(error) => match error.downcast_ref::<client::ClientError>() {
                Some(passing) if passing.may_pass() && !heading => {
                    if !std::mem::replace(&mut away, true) {
                        output::note(&format!("{passing}"));
                    }
                }
                _ => return Err(error),
            },
        }
        let next = Instant::now() + PAUSE;
        let event = tokio::time::timeout(POLL_INTERVAL, events.next()).await;
        match event {
            Ok(Some(Err(error))) if !error.may_pass() => return Err(error.into()),
            Ok(None | Some(Err(_))) => events = client.events(&[topic], None), // it takes itself up again once it stood
            Ok(Some(Ok(_))) | Err(_) => {}
        }
        tokio::time::sleep_until(next).await;
    }
}

/// What is new or another than before. What is gone is forgotten without a word, as kubectl does it.
fn differences<T: Printable>(known: &mut BTreeMap<String, String>, items: Vec<T>) -> Vec<T> {
    let mut seen = BTreeMap::new();
    let mut changed = Vec::new();
    for item in items {
        let state = serde_json::to_string(&item).unwrap_or_default();
        let name = item.name();
        let same = known.get(&name) == Some(&state);
        seen.insert(name, state);
        if !same {
            changed.push(item);
        }
    }
    *known = seen;
    changed
}
