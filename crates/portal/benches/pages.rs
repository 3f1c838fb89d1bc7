//! Cost of pages: the fleet page of 5,000 clusters in under 100 ms and 300 KB; 200 open pages in under a tenth of a core, idle and while
//! the fleet changes every second.
//!
//! A missed goal is printed and does not fail the run: speed depends on the machine.

#[expect(dead_code, clippy::unwrap_used, reason = "the fixture of the tests, of which the bench uses a part")]
#[path = "../tests/portal/fixture.rs"]
mod fixture;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fixture::{TestPortal, TestUser, page_of, rid};
use http_body_util::BodyExt as _;
use portal::Role;
use tokio::task::JoinSet;

const CLUSTERS: usize = 5_000;
/// Sequential page requests.
const PAGES: usize = 40;
/// Browsers with an open page.
const OPEN: usize = 200;
/// Duration of a measurement.
const MEASUREMENT: Duration = Duration::from_secs(15);

#[tokio::main]
async fn main() {
    println!("{:<64} {:>12} {:>12}", "", "measured", "goal");
    let site = TestPortal::open().await;
    site.fill(CLUSTERS).await;
    site.task().await;
    let user = site.user("jo", Role::Operator).await;
    fleet_page(&user).await;
    open_pages(&site, &user).await;
}

async fn fleet_page(user: &TestUser) {
    let (mut took, mut bytes) = (Vec::new(), 0);
    for number in 0..PAGES {
        let begun = Instant::now();
        let page = user.get(&format!("/fleet?page={}", number % 10 + 1)).await.expect(200);
        took.push(begun.elapsed());
        bytes = bytes.max(page.text.len());
    }
    took.sort_unstable();
    let ms = |at: usize| format!("{:.1} ms", took[at].as_secs_f64() * 1000.0);
    let late = |at: usize| took[at] > Duration::from_millis(100);
    report("fleet page of 5,000 clusters, half of all", &ms(PAGES / 2), "100 ms", late(PAGES / 2));
    report("fleet page of 5,000 clusters, the slowest", &ms(PAGES - 1), "100 ms", late(PAGES - 1));
    report("the same, its size", &format!("{} KB", bytes / 1000), "300 KB", bytes > 300_000);
}

async fn open_pages(site: &TestPortal, user: &TestUser) {
    let heard = Arc::new(AtomicUsize::new(0));
    let mut browsers = JoinSet::new();
    for number in 0..OPEN {
        // Typical use: most browsers show the fleet or work pages, some a cluster each.
        let address = match number % 4 {
            0 => "/fleet".to_owned(),
            1 => "/work".to_owned(),
            2 => "/fleet?env=prod".to_owned(),
            _ => page_of(&format!("cluster-{number:04}")),
        };
        let mut page = user.listen(&address).await;
        let heard = heard.clone();
        browsers.spawn(async move {
            while let Some(Ok(_)) = page.frame().await {
                heard.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    // The first rendering of each page is not part of the measurement.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let rest = share(tokio::time::sleep(MEASUREMENT)).await;
    report("200 open pages at rest, of a core", &percent(rest), "10 %", rest > 0.10);
    let before = heard.load(Ordering::Relaxed);
    let busy = share(changes(site)).await;
    report("200 open pages, one change a second, of a core", &percent(busy), "10 %", busy > 0.10);
    let each = (heard.load(Ordering::Relaxed) - before) as f64 / OPEN as f64 / MEASUREMENT.as_secs_f64();
    report("updates a second that a page was sent", &format!("{each:.1}"), "4", each > 4.0);
}

/// Changes a cluster every second.
async fn changes(site: &TestPortal) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    for second in 0..MEASUREMENT.as_secs() {
        tick.tick().await;
        let labels = [("turn".to_owned(), second.to_string())].into();
        let cluster = rid(&format!("cluster-{:04}", second % 50));
        if let Err(error) = site.admin.label_cluster(&cluster, &labels, None).await {
            println!("changing a cluster failed: {error}");
        }
    }
}

/// Share of a core that this process used during `body`.
async fn share(body: impl Future<Output = ()>) -> f64 {
    let (begun, before) = (Instant::now(), processor_time());
    body.await;
    (processor_time() - before).as_secs_f64() / begun.elapsed().as_secs_f64()
}

/// CPU time of this process.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program's name may contain any character; the ticks follow it, in hundredths of a second.
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = behind.split_whitespace().skip(11).take(2).filter_map(|it| it.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn report(name: &str, measured: &str, goal: &str, missed: bool) {
    println!("{name:<64} {measured:>12} {goal:>12}{}", if missed { "  MISSED" } else { "" });
}
