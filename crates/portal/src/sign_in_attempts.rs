//! Sign-ins at a provider that wait for their callbacks. Anonymous clients start them, so each network has a limit of its own and
//! cannot evict the attempts of others.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// Highest number of attempts; beyond it, the oldest attempt of the network with the most attempts is removed.
const ATTEMPTS_MAX: usize = 10_000;

/// Highest number of attempts of one network; beyond it, its oldest attempt is removed.
const ATTEMPTS_PER_NETWORK_MAX: usize = 200;

type Key = [u8; 32];

/// Attempts by the digest of their state.
#[derive(Debug)]
pub(crate) struct Attempts<T> {
    attempts: HashMap<Key, (Option<IpAddr>, T)>,
    /// Keys of each network, oldest first. Attempts of unknown networks share one entry.
    networks: HashMap<Option<IpAddr>, VecDeque<Key>>,
}

impl<T> Default for Attempts<T> {
    fn default() -> Attempts<T> {
        Attempts { attempts: HashMap::new(), networks: HashMap::new() }
    }
}

impl<T> Attempts<T> {
    /// Stores an attempt.
    pub(crate) fn insert(&mut self, key: Key, network: Option<IpAddr>, attempt: T) {
        let count = self.networks.get(&network).map_or(0, VecDeque::len);
        if count >= ATTEMPTS_PER_NETWORK_MAX {
            self.remove_oldest(network);
        } else if self.attempts.len() >= ATTEMPTS_MAX
            && let Some((most, _)) = self.networks.iter().max_by_key(|(_, keys)| keys.len())
        {
            self.remove_oldest(*most);
        }
        self.attempts.insert(key, (network, attempt));
        self.networks.entry(network).or_default().push_back(key);
    }

    /// Removes and returns an attempt.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<T> {
        let (network, attempt) = self.attempts.remove(key)?;
        if let Some(keys) = self.networks.get_mut(&network) {
            keys.retain(|other| other != key);
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
    fn a_network_evicts_only_its_own_attempts() {
        let network = |text: &str| text.parse::<IpAddr>().ok();
        let mut attempts = Attempts::default();
        attempts.insert(key(0), network("192.0.2.1"), "victim");
        for number in 1..=ATTEMPTS_MAX + 1 {
            attempts.insert(key(number), network("192.0.2.2"), "flood");
        }
        assert_eq!(attempts.attempts.len(), 1 + ATTEMPTS_PER_NETWORK_MAX);
        assert_eq!(attempts.remove(&key(1)), None, "the oldest of the flood is evicted");
        assert_eq!(attempts.remove(&key(ATTEMPTS_MAX + 1)), Some("flood"));
        assert_eq!(attempts.remove(&key(0)), Some("victim"));

        // Many networks together evict attempts of the network with the most attempts.
        attempts.insert(key(0), network("192.0.2.1"), "victim");
        for number in 1..=60 * ATTEMPTS_PER_NETWORK_MAX {
            let from = format!("198.51.100.{}", number % 60);
            attempts.insert(key(1_000_000 + number), network(&from), "flood");
        }
        assert_eq!(attempts.attempts.len(), ATTEMPTS_MAX);
        assert_eq!(attempts.remove(&key(0)), Some("victim"));
        let all: Vec<Key> = attempts.attempts.keys().copied().collect();
        for key in all {
            attempts.remove(&key);
        }
        assert!(attempts.networks.is_empty());
    }
}
