//! Deterministic simulation: virtual time, an inline store in memory, seeded faults. Several actuators run manifests while they
//! crash, shut down and lose the store, while manifests are cancelled, operations arrive and the clock jumps. The invariants must
//! hold at every step and at the end.
//!
//! A failing seed is printed; `SHIPSHAPE_SEED=n` runs that one alone, with its log. `SHIPSHAPE_SEEDS=n` runs n of them.

mod driver;
mod faults;
mod judge;
mod random;
mod script;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use driver::{Tally, simulate};

/// Seeds in every test run; the soak runs more.
const SEEDS: u64 = 1000;

#[expect(clippy::disallowed_methods, reason = "a test's switch, not a setting of the product")]
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs one seed on its own runtime with paused time.
fn run(seed: u64) -> Result<Tally, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(simulate(seed))
}

#[test]
fn the_invariants_hold_under_the_faults_of_every_seed() {
    if let Some(seed) = setting("SHIPSHAPE_SEED") {
        match run(seed) {
            Ok(tally) => println!("{}\n{tally:?}", tally.log.join("\n")),
            Err(wrong) => panic!("seed {seed}: {wrong}"),
        }
        return;
    }
    let soak = setting("SHIPSHAPE_SOAK").map(|_| 20 * SEEDS);
    let seeds = setting("SHIPSHAPE_SEEDS").or(soak).unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let wrong = Mutex::new(Vec::new());
    let all = Mutex::new(Tally::default());
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= seeds || wrong.lock().unwrap().len() >= 3 {
                        return;
                    }
                    match run(seed) {
                        Ok(tally) => all.lock().unwrap().add(&tally),
                        Err(found) => wrong.lock().unwrap().push(format!("SHIPSHAPE_SEED={seed}: {found}")),
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let all = all.into_inner().unwrap();
    println!("{all:?}");
    assert!(seeds < SEEDS || all.is_representative(), "the seeds cover too few events: {all:?}");
}

#[test]
fn a_seed_replays_exactly() {
    for seed in [3, 17] {
        let (one, two) = (run(seed).unwrap(), run(seed).unwrap());
        assert_eq!(one.log, two.log);
        assert!(one.log.len() > 20, "{:?}", one.log);
    }
}
