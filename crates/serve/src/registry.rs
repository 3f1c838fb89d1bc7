//! The connections of a listener: how many there are, from where, and which of them makes room for a new one.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::activity::Activity;
use crate::listener::{ConnectionEvent, Observer};

/// A connection that is younger may still be shaking hands; others cannot displace it by sending a request first.
const YOUNG: Duration = Duration::from_secs(1);

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

/// The place of one connection; dropped when it is closed.
pub(crate) struct Registered {
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

    /// Gives a new connection a place; none when all those that it could replace have requests under way.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr, activity: &Arc<Activity>) -> Option<Registered> {
        let network = network(address);
        let mut table = self.table();
        let of_network = table.per_address.get(&network).copied().unwrap_or_default();
        let replaced = if of_network >= self.per_address_max {
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
                (self.observer)(ConnectionEvent::Refused);
                return None;
            }
        }
        let id = table.next;
        table.next += 1;
        table.connections.insert(id, (network, activity.clone()));
        *table.per_address.entry(network).or_default() += 1;
        (self.observer)(ConnectionEvent::Open(table.connections.len()));
        Some(Registered { registry: self.clone(), id })
    }
}

impl Table {
    /// The connection that makes room: one that never sent a request, though it had time to, before one that did, before one that
    /// has only just come; of each, the one that has been waiting longest.
    fn longest_waiting(&self, of: Option<IpAddr>) -> Option<u64> {
        let young = Instant::now().checked_sub(YOUNG);
        let rank = |(has_asked, since): (bool, Instant)| match has_asked {
            false if young.is_none_or(|young| since > young) => (2, since),
            has_asked => (u8::from(has_asked), since),
        };
        let candidates =
            self.connections.iter().filter(|(_, (network, _))| of.is_none_or(|of| of == *network));
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

impl Drop for Registered {
    fn drop(&mut self) {
        let mut table = self.registry.table();
        // One that was displaced has no place any more.
        if table.remove(self.id).is_some() {
            (self.registry.observer)(ConnectionEvent::Open(table.connections.len()));
        }
    }
}

/// By what connections are counted: whoever has one IPv6 address has the 64 bits behind it.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let prefix = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(prefix))
        }
        other => other,
    }
}
