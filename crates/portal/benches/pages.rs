//! What pages cost: the fleet page of 5,000 clusters in under 100 ms and 300 KB; 200 open pages in under a tenth of a core, at rest
//! and while something of the fleet changes every second.
//!
//! A missed goal is printed, and the run still ends well: speed depends on the machine.

#[expect(dead_code, clippy::unwrap_used, reason = "it is the fixture of the tests, which do more with it")]
#[path = "../tests/portal/fixture.rs"]
mod fixture;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fixture::{Guest, Site, page_of, rid};
use http_body_util::BodyExt as _;
use portal::Role;
use tokio::task::JoinSet;

const CLUSTERS: usize = 5_000;
/// Pages asked for one after another.
const PAGES: usize = 40;
/// Browsers that have a page open.
const OPEN: usize = 200;
/// So long their cost is measured.
const TURN: Duration = Duration::from_secs(15);

#[tokio::main]
async fn main() {
    println!("{:<64} {:>12} {:>12}", "", "measured", "goal");
    let site = Site::open().await;
    site.fill(CLUSTERS).await;
    site.task().await;
    let guest = site.guest("jo", Role::Operator).await;
    fleet_page(&guest).await;
    open_pages(&site, &guest).await;
}

async fn fleet_page(guest: &Guest) {
    let (mut took, mut bytes) = (Vec::new(), 0);
    for number in 0..PAGES {
        let begun = Instant::now();
        let page = guest.get(&format!("/fleet?page={}", number % 10 + 1)).await.expect(200);
        took.push(begun.elapsed());
        bytes = bytes.max(page.text.len());
    }
    took.sort_unstable();
    let ms = |at: usize| format!("{:.1} ms", took[at].as_secs_f64() * 1000.0);
    let late = |at: usize| took[at] > Duration::from_millis(100);
    told("fleet page of 5,000 clusters, half of all", &ms(PAGES / 2), "100 ms", late(PAGES / 2));
    told("fleet page of 5,000 clusters, the slowest", &ms(PAGES - 1), "100 ms", late(PAGES - 1));
    told("the same, its size", &format!("{} KB", bytes / 1000), "300 KB", bytes > 300_000);
}

async fn open_pages(site: &Site, guest: &Guest) {
    let heard = Arc::new(AtomicUsize::new(0));
    let mut browsers = JoinSet::new();
    for number in 0..OPEN {
        // As people sit before it: most at the fleet and at work, some each at a cluster.
        let address = match number % 4 {
            0 => "/fleet".to_owned(),
            1 => "/work".to_owned(),
            2 => "/fleet?env=prod".to_owned(),
            _ => page_of(&format!("cluster-{number:04}")),
        };
        let mut page = guest.listen(&address).await;
        let heard = heard.clone();
        browsers.spawn(async move {
            while let Some(Ok(_)) = page.frame().await {
                heard.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    // What each page is sent when it is opened is not what it costs to have it open.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let rest = share(tokio::time::sleep(TURN)).await;
    told("200 open pages at rest, of a core", &percent(rest), "10 %", rest > 0.10);
    let before = heard.load(Ordering::Relaxed);
    let busy = share(changes(site)).await;
    told("200 open pages, one change a second, of a core", &percent(busy), "10 %", busy > 0.10);
    let each = (heard.load(Ordering::Relaxed) - before) as f64 / OPEN as f64 / TURN.as_secs_f64();
    told("updates a second that a page was sent", &format!("{each:.1}"), "4", each > 4.0);
}

/// Something of a cluster changes, again and again.
async fn changes(site: &Site) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    for second in 0..TURN.as_secs() {
        tick.tick().await;
        let labels = [("turn".to_owned(), second.to_string())].into();
        let cluster = rid(&format!("cluster-{:04}", second % 50));
        if let Err(error) = site.admin.label_cluster(&cluster, &labels, None).await {
            println!("a cluster could not be changed: {error}");
        }
    }
}

/// How much of a core this process used while something went on.
async fn share(body: impl Future<Output = ()>) -> f64 {
    let (begun, before) = (Instant::now(), processor_time());
    body.await;
    (processor_time() - before).as_secs_f64() / begun.elapsed().as_secs_f64()
}

/// What this process has used of processors, by Linux's own account.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program may hold anything; what counts stands behind it, in hundredths of a second.
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = behind.split_whitespace().skip(11).take(2).filter_map(|it| it.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn told(what: &str, measured: &str, goal: &str, missed: bool) {
    println!("{what:<64} {measured:>12} {goal:>12}{}", if missed { "  MISSED" } else { "" });
}
