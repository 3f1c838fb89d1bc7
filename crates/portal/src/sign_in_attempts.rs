//! Sign-ins that were begun at a provider, between leaving and coming back. Strangers begin them, so each network has a share of
//! its own: nobody pushes out the attempts of others.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// Attempts in all; when there are more, the network that has begun most makes room.
const ATTEMPTS_MAX: usize = 10_000;

/// Attempts of one network; the oldest of them makes room for the next.
const ATTEMPTS_PER_NETWORK_MAX: usize = 200;

type Key = [u8; 32];

/// Attempts by the digest of their state.
#[derive(Debug)]
pub(crate) struct Attempts<T> {
    begun: HashMap<Key, (Option<IpAddr>, T)>,
    /// The keys of each network, oldest first. Where the network is not known, all share one.
    networks: HashMap<Option<IpAddr>, VecDeque<Key>>,
}

impl<T> Default for Attempts<T> {
    fn default() -> Attempts<T> {
        Attempts { begun: HashMap::new(), networks: HashMap::new() }
    }
}

impl<T> Attempts<T> {
    /// Keeps an attempt.
    pub(crate) fn insert(&mut self, key: Key, network: Option<IpAddr>, attempt: T) {
        let own = self.networks.get(&network).map_or(0, VecDeque::len);
        if own >= ATTEMPTS_PER_NETWORK_MAX {
            self.remove_oldest(network);
        } else if self.begun.len() >= ATTEMPTS_MAX
            && let Some((most, _)) = self.networks.iter().max_by_key(|(_, keys)| keys.len())
        {
            self.remove_oldest(*most);
        }
        self.begun.insert(key, (network, attempt));
        self.networks.entry(network).or_default().push_back(key);
    }

    /// Takes an attempt out.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<T> {
        let (network, attempt) = self.begun.remove(key)?;
        if let Some(keys) = self.networks.get_mut(&network) {
            keys.retain(|known| known != key);
            if keys.is_empty() {
                self.networks.remove(&network);
            }
        }
        Some(attempt)
    }

    fn remove_oldest(&mut self, network: Option<IpAddr>) {
        if let Some(oldest) = self.networks.get(&network).and_then(VecDeque::front).copied() {
            self.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        key
    }

    #[test]
    fn attempts_of_one_network_push_out_only_their_own() {
        let network = |text: &str| text.parse::<IpAddr>().ok();
        let mut attempts = Attempts::default();
        attempts.insert(key(0), network("192.0.2.1"), "victim");
        for number in 1..=ATTEMPTS_MAX + 1 {
            attempts.insert(key(number), network("192.0.2.2"), "flood");
        }
        assert_eq!(attempts.begun.len(), 1 + ATTEMPTS_PER_NETWORK_MAX);
        assert_eq!(attempts.remove(&key(1)), None, "the oldest of the flood is gone");
        assert_eq!(attempts.remove(&key(ATTEMPTS_MAX + 1)), Some("flood"));
        assert_eq!(attempts.remove(&key(0)), Some("victim"));

        // Many networks together push out those of whoever begins most.
        attempts.insert(key(0), network("192.0.2.1"), "victim");
        for number in 1..=60 * ATTEMPTS_PER_NETWORK_MAX {
            let from = format!("198.51.100.{}", number % 60);
            attempts.insert(key(1_000_000 + number), network(&from), "flood");
        }
        assert_eq!(attempts.begun.len(), ATTEMPTS_MAX);
        assert_eq!(attempts.remove(&key(0)), Some("victim"));
        let all: Vec<Key> = attempts.begun.keys().copied().collect();
        for key in all {
            attempts.remove(&key);
        }
        assert!(attempts.networks.is_empty());
    }
}
