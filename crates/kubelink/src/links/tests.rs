use std::cell::Cell;

use api::clock::ManualClock;
use jiff::SignedDuration;

use super::*;
use crate::kubeconfig::AllowedRisks;

fn kubeconfig() -> Kubeconfig {
    let text = r#"{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}], "users": [{"name": "u", "user": {"token": "t"}}]}"#;
    Kubeconfig::parse(text, None, &AllowedRisks::nothing()).unwrap()
}

/// The links of a test, and how often a kubeconfig was loaded.
struct Bench {
    links: Links,
    clock: std::sync::Arc<ManualClock>,
    loads: Cell<u32>,
}

impl Bench {
    fn new(count_max: usize) -> Bench {
        let clock = ManualClock::at(Timestamp::UNIX_EPOCH);
        let limits = LinksLimits { count_max, ..LinksLimits::default() };
        Bench { links: Links::new(limits, clock.clone()), clock, loads: Cell::new(0) }
    }

    async fn link(&self, cluster: u128, credential: &str) -> Link {
        let load = async || -> Result<(String, Kubeconfig), LinkError> {
            self.loads.set(self.loads.get() + 1);
            Ok((format!("cluster-{cluster}"), kubeconfig()))
        };
        self.links.link(Uuid::from_u128(cluster), credential, load).await.unwrap()
    }
}

#[tokio::test]
async fn a_link_is_kept_until_its_credential_changes() {
    let bench = Bench::new(10);
    assert_eq!(bench.link(1, "a").await.cluster(), "cluster-1");
    bench.link(1, "a").await;
    assert_eq!(bench.loads.get(), 1);
    bench.link(1, "b").await;
    bench.link(1, "b").await;
    assert_eq!((bench.loads.get(), bench.links.count()), (2, 1));
}

#[tokio::test]
async fn an_unused_link_is_closed() {
    let bench = Bench::new(10);
    bench.link(1, "a").await;
    bench.clock.advance(SignedDuration::from_mins(10));
    bench.link(1, "a").await;
    bench.clock.advance(SignedDuration::from_mins(10));
    bench.link(1, "a").await;
    assert_eq!(bench.loads.get(), 1);
    bench.clock.advance(SignedDuration::from_mins(16));
    bench.link(2, "a").await;
    assert_eq!((bench.loads.get(), bench.links.count()), (2, 1));
}

#[tokio::test]
async fn the_least_recently_used_link_is_closed_first() {
    let bench = Bench::new(2);
    for cluster in [1, 2, 1, 3] {
        bench.link(cluster, "a").await;
        bench.clock.advance(SignedDuration::from_secs(1));
    }
    assert_eq!((bench.loads.get(), bench.links.count()), (3, 2));
    bench.link(1, "a").await;
    assert_eq!(bench.loads.get(), 3);
    bench.link(2, "a").await;
    assert_eq!(bench.loads.get(), 4);
}

#[tokio::test]
async fn a_forgotten_link_is_loaded_again() {
    let bench = Bench::new(2);
    bench.link(1, "a").await;
    bench.links.forget(Uuid::from_u128(1));
    bench.link(1, "a").await;
    assert_eq!(bench.loads.get(), 2);
}
