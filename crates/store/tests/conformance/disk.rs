//! SQLite's file on a disk that fills up, and under a process that is killed: acknowledged writes persist.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use store::{Keyring, Location, Options, Store, StoreError};
use testkit::process::{ChildProcess, example_path};
use testkit::{prerequisites, tmpfs::SmallDisk};
use uuid::Uuid;

use crate::environment::{block_on, options, short_or_long};
use crate::fixture::{Dice, Folder, Note, assert_sound, close, context, counter, seed, written};
use crate::load::Load;
use crate::outage::fill;

#[test]
fn a_disk_full_for_a_while_costs_no_acknowledged_write_and_no_restart() {
    block_on(async {
        let Some(disk) = SmallDisk::new(16 << 20) else {
            return prerequisites::skip(prerequisites::SMALL_DISK, "this user may not mount a tmpfs");
        };
        let place = Options {
            keyring: Keyring::ephemeral().unwrap(),
            ..options(Location::Sqlite(disk.path().join("store.db")))
        };
        let store = Store::open(place.clone()).await.unwrap();
        let filler = disk.path().join("filler");
        let load = Load::start(&store, 4, 2_000).await;
        for _ in 0..short_or_long(8, 30) {
            load.answers(50).await;
            fill(&filler);
            load.refusals(20).await;
            std::fs::remove_file(&filler).unwrap();
            load.answers(50).await;
        }
        // Reported as a full disk, not as an unknown error.
        let refusals: Vec<bool> = load
            .ledger
            .lock()
            .unwrap()
            .failures
            .iter()
            .map(|it| matches!(it.0, StoreError::DiskFull))
            .collect();
        assert!(refusals.iter().any(|is_full| *is_full), "{} refusals, none of a full disk", refusals.len());
        load.settle(&store, Duration::from_secs(10)).await;

        // Completely full: reads continue, and so does everything after a restart with space.
        let last = written(&store, &Note::fresh()).await;
        fill(&filler);
        let rejected = loop {
            match store.collection().create(&Note::fresh().saying("x".repeat(100_000)), &context()).await {
                Ok(_) => {}
                Err(rejected) => break rejected,
            }
        };
        assert!(matches!(rejected, StoreError::DiskFull | StoreError::Unavailable { .. }), "{rejected:?}");
        assert_eq!(store.get(last.uuid).await.unwrap().unwrap().etag, last.etag);
        close(store).await;
        std::fs::remove_file(&filler).unwrap();
        let store = Store::open(place).await.unwrap();
        assert_eq!(store.get(last.uuid).await.unwrap().unwrap().etag, last.etag);
        written(&store, &Note::fresh()).await;
        assert_sound(&store).await;
        close(store).await;
    });
}

/// A writer that is killed with `kill -9` at a random moment, again and again, on one file.
#[test]
fn a_writer_killed_at_any_moment_loses_no_acknowledged_write() {
    block_on(async {
        let seed = seed();
        println!("seed {seed}");
        let (folder, mut dice) = (Folder::new(), Dice::seeded(seed));
        let mut answered: HashMap<Uuid, (i64, usize)> = HashMap::new();
        let rounds = short_or_long(12, 1000);
        for round in 1..=rounds {
            let mut reported: HashSet<Uuid> = HashSet::new();
            let mut command = std::process::Command::new(example_path("note_writer").unwrap());
            command.arg(folder.path()).arg(folder.file("keys"));
            let mut writer = ChildProcess::start(command).unwrap();
            let mut note = |line: &str| {
                // A truncated line was not acknowledged.
                let Some(rest) = line.strip_suffix(" .") else { return };
                let [uuid, etag, bytes] = rest.split(' ').collect::<Vec<_>>()[..] else { panic!("{line:?}") };
                let version = (counter(etag.parse().unwrap()), bytes.parse().unwrap());
                let uuid = uuid.parse().unwrap();
                reported.insert(uuid);
                let newest = answered.entry(uuid).or_insert(version);
                *newest = (*newest).max(version);
            };
            // Sometimes it is killed while it opens the file.
            for _ in 0..dice.below(150) {
                note(&writer.line(Duration::from_secs(30)).unwrap());
            }
            writer.kill9().unwrap();
            while let Some(line) = writer.next_line(Duration::from_secs(30)).unwrap() {
                note(&line);
            }
            let store = folder.open().await;
            // All of them while they are few; later those of this round, and sometimes all.
            let is_thorough = round <= 20 || round % 25 == 0 || round == rounds;
            for (uuid, (etag, bytes)) in
                answered.iter().filter(|(uuid, _)| is_thorough || reported.contains(uuid))
            {
                let found = store
                    .get(*uuid)
                    .await
                    .unwrap()
                    .unwrap_or_else(|| panic!("{uuid} is lost in round {round}, seed {seed}"));
                assert!(counter(found.etag) >= *etag, "{uuid} went back in round {round}, seed {seed}");
                if counter(found.etag) == *etag {
                    assert_eq!(found.body["text"].as_str().unwrap().len(), *bytes);
                }
            }
            if is_thorough {
                assert_sound(&store).await;
            }
            close(store).await;
        }
        assert!(answered.len() > 100);
    });
}
