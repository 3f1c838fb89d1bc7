//! Who makes room for whom.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::activity::Activity;
use crate::listener::ConnectionEvent;
use crate::registry::{Registered, Registry, network};

struct Crowd {
    registry: Arc<Registry>,
    events: Arc<Mutex<Vec<ConnectionEvent>>>,
}

impl Crowd {
    fn new(connections: usize, per_address: usize) -> Crowd {
        let events: Arc<Mutex<Vec<ConnectionEvent>>> = Arc::default();
        let seen = events.clone();
        let observer = Arc::new(move |event| seen.lock().unwrap().push(event));
        Crowd { registry: Arc::new(Registry::new(connections, per_address, observer)), events }
    }

    async fn connect(&self, address: &str) -> (Arc<Activity>, Option<Registered>) {
        // Each a little later than the one before.
        tokio::time::advance(Duration::from_secs(1)).await;
        let activity = Arc::new(Activity::new());
        let place = self.registry.admit(address.parse().unwrap(), &activity);
        (activity, place)
    }
}

fn displaced(connections: &[&(Arc<Activity>, Option<Registered>)]) -> Vec<bool> {
    connections.iter().map(|(activity, _)| activity.displaced.is_cancelled()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_one_that_never_asked_and_waits_longest_makes_room() {
    let crowd = Crowd::new(10, 3);
    let busy = crowd.connect("192.0.2.1").await;
    let request = busy.0.request(false);
    let asked = crowd.connect("192.0.2.1").await;
    drop(asked.0.request(false));
    let silent = crowd.connect("192.0.2.1").await;
    let other = crowd.connect("192.0.2.2").await;

    let first = crowd.connect("192.0.2.1").await;
    assert!(first.1.is_some());
    assert_eq!(displaced(&[&busy, &asked, &silent, &other]), [false, false, true, false]);
    drop(first.0.request(false));
    let second = crowd.connect("192.0.2.1").await;
    assert_eq!(displaced(&[&busy, &asked, &first, &other]), [false, true, false, false]);
    // All of them are busy: now the new one has to go.
    let _more = (first.0.request(false), second.0.request(false));
    let third = crowd.connect("192.0.2.1").await;
    assert!(third.1.is_none());
    assert_eq!(displaced(&[&busy, &first, &second, &other]), [false; 4]);
    drop(request);
    assert!(crowd.connect("192.0.2.1").await.1.is_some());
    let events = crowd.events.lock().unwrap();
    assert_eq!(events.iter().filter(|event| **event == ConnectionEvent::Displaced).count(), 3);
    assert_eq!(events.iter().filter(|event| **event == ConnectionEvent::Refused).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_has_only_just_come_is_given_time_to_ask() {
    let crowd = Crowd::new(10, 3);
    let asked = [crowd.connect("192.0.2.1").await, crowd.connect("192.0.2.1").await];
    for (activity, _) in &asked {
        drop(activity.request(false));
    }
    let fresh = crowd.connect("192.0.2.1").await;
    let activity = Arc::new(Activity::new());
    let _next = crowd.registry.admit("192.0.2.1".parse().unwrap(), &activity).unwrap();
    assert_eq!(displaced(&[&asked[0], &asked[1], &fresh]), [true, false, false]);
}

#[tokio::test(start_paused = true)]
async fn when_all_places_are_taken_anybodys_idle_connection_makes_room_and_places_come_back() {
    let crowd = Crowd::new(2, 2);
    let first = crowd.connect("192.0.2.1").await;
    let second = crowd.connect("192.0.2.2").await;
    let third = crowd.connect("192.0.2.3").await;
    assert_eq!(displaced(&[&first, &second, &third]), [true, false, false]);
    drop((first, second, third));
    assert_eq!(crowd.events.lock().unwrap().last(), Some(&ConnectionEvent::Open(0)));
}

#[test]
fn an_ipv6_network_counts_as_one_client() {
    let of = |text: &str| network(text.parse::<IpAddr>().unwrap());
    assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2:ffff::"));
    assert_ne!(of("2001:db8:1:2::"), of("2001:db8:1:3::"));
    assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    assert_eq!(of("::1").to_string(), "::1");
}
