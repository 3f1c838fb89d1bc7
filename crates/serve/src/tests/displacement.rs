//! Which connection a new one displaces.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::activity::Activity;
use crate::listener::ConnectionEvent;
use crate::registry::{Registration, Registry, network};

struct TestRegistry {
    registry: Arc<Registry>,
    events: Arc<Mutex<Vec<ConnectionEvent>>>,
}

impl TestRegistry {
    fn new(connections: usize, per_address: usize) -> TestRegistry {
        let events: Arc<Mutex<Vec<ConnectionEvent>>> = Arc::default();
        let seen = events.clone();
        let observer = Arc::new(move |event| seen.lock().unwrap().push(event));
        TestRegistry { registry: Arc::new(Registry::new(connections, per_address, observer)), events }
    }

    async fn connect(&self, address: &str) -> (Arc<Activity>, Option<Registration>) {
        // Each connects a second after the one before.
        tokio::time::advance(Duration::from_secs(1)).await;
        let activity = Arc::new(Activity::new());
        let registration = self.registry.register(address.parse().unwrap(), &activity);
        (activity, registration)
    }
}

fn displaced(connections: &[&(Arc<Activity>, Option<Registration>)]) -> Vec<bool> {
    connections.iter().map(|(activity, _)| activity.displaced.is_cancelled()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_displaces_the_longest_idle_one_without_requests() {
    let registry = TestRegistry::new(10, 3);
    let busy = registry.connect("192.0.2.1").await;
    let request = busy.0.start_request(false);
    let with_request = registry.connect("192.0.2.1").await;
    drop(with_request.0.start_request(false));
    let without_request = registry.connect("192.0.2.1").await;
    let other = registry.connect("192.0.2.2").await;

    let first = registry.connect("192.0.2.1").await;
    assert!(first.1.is_some());
    assert_eq!(displaced(&[&busy, &with_request, &without_request, &other]), [false, false, true, false]);
    drop(first.0.start_request(false));
    let second = registry.connect("192.0.2.1").await;
    assert_eq!(displaced(&[&busy, &with_request, &first, &other]), [false, true, false, false]);
    // All of them have active requests: the new one is rejected.
    let _more = (first.0.start_request(false), second.0.start_request(false));
    let third = registry.connect("192.0.2.1").await;
    assert!(third.1.is_none());
    assert_eq!(displaced(&[&busy, &first, &second, &other]), [false; 4]);
    drop(request);
    assert!(registry.connect("192.0.2.1").await.1.is_some());
    let events = registry.events.lock().unwrap();
    assert_eq!(events.iter().filter(|event| **event == ConnectionEvent::Displaced).count(), 3);
    assert_eq!(events.iter().filter(|event| **event == ConnectionEvent::Rejected).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_within_its_grace_period_is_displaced_last() {
    let registry = TestRegistry::new(10, 3);
    let with_request = [registry.connect("192.0.2.1").await, registry.connect("192.0.2.1").await];
    for (activity, _) in &with_request {
        drop(activity.start_request(false));
    }
    let fresh = registry.connect("192.0.2.1").await;
    let activity = Arc::new(Activity::new());
    let _next = registry.registry.register("192.0.2.1".parse().unwrap(), &activity).unwrap();
    assert_eq!(displaced(&[&with_request[0], &with_request[1], &fresh]), [true, false, false]);
}

#[tokio::test(start_paused = true)]
async fn at_the_total_limit_an_idle_connection_of_any_client_is_displaced() {
    let registry = TestRegistry::new(2, 2);
    let first = registry.connect("192.0.2.1").await;
    let second = registry.connect("192.0.2.2").await;
    let third = registry.connect("192.0.2.3").await;
    assert_eq!(displaced(&[&first, &second, &third]), [true, false, false]);
    drop((first, second, third));
    assert_eq!(registry.events.lock().unwrap().last(), Some(&ConnectionEvent::Open(0)));
}

#[test]
fn an_ipv6_network_counts_as_one_client() {
    let network_of = |text: &str| network(text.parse::<IpAddr>().unwrap());
    assert_eq!(network_of("2001:db8:1:2:3::4"), network_of("2001:db8:1:2:ffff::"));
    assert_ne!(network_of("2001:db8:1:2::"), network_of("2001:db8:1:3::"));
    assert_eq!(network_of("::ffff:192.0.2.1"), network_of("192.0.2.1"));
    assert_ne!(network_of("192.0.2.1"), network_of("192.0.2.2"));
    assert_eq!(network_of("::1").to_string(), "::1");
}
