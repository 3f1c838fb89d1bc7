//! What keeps a cluster in order: it furnishes namespaces, collects what lost its owner, ends what was deleted, and turns
//! workloads into pods. Each controller looks at the state and writes what is missing; events only wake it.

mod furnish;

use std::sync::Arc;

use crate::cluster::Shared;
use crate::objects::EventType;

pub(crate) use furnish::furnish;

/// Keeps the cluster in order until it ends.
pub(crate) async fn run(cluster: Arc<Shared>) {
    let mut changed = cluster.read().objects.watch_all();
    let mut cursor = cluster.read().objects.revision();
    loop {
        changed.mark_unchanged();
        cursor = forget_logs(&cluster, cursor);
        furnish::round(&cluster);
        tokio::select! {
            () = cluster.ended.cancelled() => return,
            changed = changed.changed() => if changed.is_err() { return },
        }
    }
}

/// Forgets what pods printed that are gone since `cursor`.
fn forget_logs(cluster: &Shared, cursor: u64) -> u64 {
    let state = cluster.read();
    for event in state.objects.events_since(cursor).into_iter().flatten() {
        if event.kind == EventType::Deleted && &*event.table == "/pods" {
            cluster.logs.forget(event.object.uid());
        }
    }
    state.objects.revision()
}
