//! The connections of a listener: their number in total and per client, and which of them a new one displaces.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::activity::Activity;
use crate::listener::{ConnectionEvent, Observer};

/// A younger connection may still be in its handshake, so connections with requests are displaced before it.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// The connections of a listener.
pub(crate) struct Registry {
    connections_max: usize,
    per_address_max: usize,
    observer: Observer,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    connections: BTreeMap<u64, (IpAddr, Arc<Activity>)>,
    per_address: HashMap<IpAddr, usize>,
}

/// The registration of one connection; dropped when it is closed.
pub(crate) struct Registration {
    registry: Arc<Registry>,
    id: u64,
}

impl Registry {
    pub(crate) fn new(connections_max: usize, per_address_max: usize, observer: Observer) -> Registry {
        Registry { connections_max, per_address_max, observer, table: Mutex::default() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a new connection; none when all those that it could displace have active requests.
    pub(crate) fn register(
        self: &Arc<Self>,
        address: IpAddr,
        activity: &Arc<Activity>,
    ) -> Option<Registration> {
        let network = network(address);
        let mut table = self.table();
        let network_count = table.per_address.get(&network).copied().unwrap_or_default();
        let replaced = if network_count >= self.per_address_max {
            Some(table.longest_waiting(Some(network)))
        } else if table.connections.len() >= self.connections_max {
            Some(table.longest_waiting(None))
        } else {
            None
        };
        match replaced {
            None => {}
            Some(Some(id)) => {
                if let Some(replaced) = table.remove(id) {
                    replaced.displaced.cancel();
                }
                (self.observer)(ConnectionEvent::Displaced);
            }
            Some(None) => {
                (self.observer)(ConnectionEvent::Rejected);
                return None;
            }
        }
        let id = table.next;
        table.next += 1;
        table.connections.insert(id, (network, activity.clone()));
        *table.per_address.entry(network).or_default() += 1;
        (self.observer)(ConnectionEvent::Open(table.connections.len()));
        Some(Registration { registry: self.clone(), id })
    }
}

impl Table {
    /// The idle connection to displace, by preference: one that never sent a request, one that did, one within its grace period. Of
    /// each group, the one that has been idle longest.
    fn longest_waiting(&self, from: Option<IpAddr>) -> Option<u64> {
        let young = Instant::now().checked_sub(GRACE_PERIOD);
        let rank = |(has_requested, since): (bool, Instant)| match has_requested {
            false if young.is_none_or(|young| since > young) => (2, since),
            has_requested => (u8::from(has_requested), since),
        };
        let candidates =
            self.connections.iter().filter(|(_, (network, _))| from.is_none_or(|from| from == *network));
        let waiting = candidates.filter_map(|(id, (_, activity))| Some((rank(activity.waiting()?), *id)));
        waiting.min().map(|(_, id)| id)
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Activity>> {
        let (network, activity) = self.connections.remove(&id)?;
        if let Some(count) = self.per_address.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                self.per_address.remove(&network);
            }
        }
        Some(activity)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut table = self.registry.table();
        // A displaced connection is no longer in the table.
        if table.remove(self.id).is_some() {
            (self.registry.observer)(ConnectionEvent::Open(table.connections.len()));
        }
    }
}

/// The unit by which connections are counted: a client with one IPv6 address has the whole network of 64 bits.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let prefix = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(prefix))
        }
        other => other,
    }
}
