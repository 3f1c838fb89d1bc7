//! Real worker processes (`examples/test_worker.rs`): started, driven, and killed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use api::clock::SystemClock;
use store::{Keyring, Location, Options, Store, WorkLease};
use testkit::process::{ChildProcess, example_path};
use testkit::{postgres, prerequisites};
use uuid::Uuid;

use crate::queue_fixture::SOON;

/// A location of a store that several processes open one after the other or at once: it has its key in a file.
pub(crate) struct Site {
    pub(crate) url: String,
    directory: tempfile::TempDir,
    _database: Option<postgres::TestDatabase>,
}

impl Site {
    /// An SQLite file.
    pub(crate) fn sqlite() -> Site {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("store.db").display());
        Site { url, directory, _database: None }
    }

    /// A database on the shared PostgreSQL server; none (and a reported skip) where there is no server.
    pub(crate) fn postgres() -> Option<Site> {
        let Some(server) = postgres::shared() else {
            prerequisites::skip(prerequisites::POSTGRESQL, "no PostgreSQL server was found");
            return None;
        };
        let database = server.database().unwrap();
        Some(Site {
            url: database.url().to_owned(),
            directory: tempfile::tempdir().unwrap(),
            _database: Some(database),
        })
    }

    /// Whether several processes may have it open at once.
    pub(crate) fn is_shared(&self) -> bool {
        self._database.is_some()
    }

    fn key_file(&self) -> PathBuf {
        self.directory.path().join("keys")
    }

    /// Opens the store in this process.
    pub(crate) async fn open(&self) -> Store {
        let keyring = Keyring::read_or_create(&self.key_file()).unwrap();
        let location: Location = self.url.parse().unwrap();
        Store::open(Options::new(location, keyring, Arc::new(SystemClock))).await.unwrap()
    }

    /// Opens the store in a process of its own.
    pub(crate) fn worker(&self) -> WorkerProcess {
        let mut command = Command::new(example_path("test_worker").unwrap());
        command.arg(&self.url).arg(self.key_file());
        let mut worker = WorkerProcess { child: ChildProcess::start(command).unwrap() };
        assert_eq!(worker.answer(), "ready");
        worker
    }

    /// Directory where workers leave what they witnessed.
    pub(crate) fn witnesses(&self) -> PathBuf {
        let place = self.directory.path().join("witnesses");
        std::fs::create_dir_all(&place).unwrap();
        place
    }
}

/// A worker process.
pub(crate) struct WorkerProcess {
    pub(crate) child: ChildProcess,
}

/// A lease as a worker reports it.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) lease: WorkLease,
    pub(crate) attempt: i32,
    pub(crate) step: Option<String>,
}

impl WorkerProcess {
    /// Sends one line and returns the response.
    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.child.send(order).unwrap();
        self.answer()
    }

    pub(crate) fn answer(&mut self) -> String {
        self.child.line(SOON).unwrap()
    }

    /// Claims (or takes over) one piece of work.
    pub(crate) fn held(&mut self, order: &str) -> Option<Held> {
        let answer = self.ask(order);
        match answer.split(' ').collect::<Vec<_>>().as_slice() {
            ["none"] => None,
            ["held", work, lane, owner, fence, attempt, step] => Some(Held {
                lease: WorkLease {
                    work: work.parse().unwrap(),
                    lane: lane.parse().unwrap(),
                    owner: owner.parse().unwrap(),
                    fence: fence.parse().unwrap(),
                },
                attempt: attempt.parse().unwrap(),
                step: (*step != "-").then(|| (*step).to_owned()),
            }),
            _ => panic!("{order}: {answer}"),
        }
    }

    /// Stops it gracefully and returns its other output: nothing, when all was well.
    pub(crate) fn stop(mut self) -> Vec<String> {
        self.child.send("stop").unwrap();
        self.rest_of_its_words()
    }

    /// Kills it as `kill -9` does and returns its output.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.child.kill9().unwrap();
        self.rest_of_its_words()
    }

    fn rest_of_its_words(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        while let Some(line) = self.child.next_line(SOON).unwrap() {
            words.push(line);
        }
        words
    }
}

/// Three worker processes with eight claimers, of which one may be killed and replaced at any time.
pub(crate) struct WorkerProcesses {
    workers: Vec<WorkerProcess>,
    witnesses: PathBuf,
    lease: Duration,
    /// Unexpected output.
    complaints: Vec<String>,
    pub(crate) kills: usize,
}

const CLAIMERS: [usize; 3] = [3, 3, 2];

impl WorkerProcesses {
    pub(crate) fn start(site: &Site, lease: Duration) -> WorkerProcesses {
        let mut worker_process = WorkerProcesses {
            workers: Vec::new(),
            witnesses: site.witnesses(),
            lease,
            complaints: Vec::new(),
            kills: 0,
        };
        for claimers in CLAIMERS {
            let worker = worker_process.hire(site, claimers);
            worker_process.workers.push(worker);
        }
        worker_process
    }

    fn hire(&self, site: &Site, claimers: usize) -> WorkerProcess {
        let mut worker = site.worker();
        let order = format!("work {} {claimers} {}", self.witnesses.display(), self.lease.as_millis());
        assert_eq!(worker.ask(&order), "working");
        worker
    }

    /// Kills one of them with `kill -9` and starts another in its place.
    pub(crate) fn replace(&mut self, site: &Site, place: usize) {
        let worker = self.workers.remove(place % CLAIMERS.len());
        self.complaints.extend(worker.kill());
        let worker = self.hire(site, CLAIMERS[place % CLAIMERS.len()]);
        self.workers.insert(place % CLAIMERS.len(), worker);
        self.kills += 1;
    }

    /// Stops them all gracefully; no two of them may have worked on one lane at once, nor completed one piece of work
    /// twice. Returns the completed pieces that they reported.
    pub(crate) fn stop(self) -> HashSet<Uuid> {
        let mut complaints = self.complaints;
        complaints.extend(self.workers.into_iter().flat_map(WorkerProcess::stop));
        complaints.retain(|line| line != "stopped");
        assert!(complaints.is_empty(), "{complaints:?}");
        ended(&self.witnesses)
    }

    /// Pieces completed so far.
    pub(crate) fn ended(&self) -> HashSet<Uuid> {
        ended(&self.witnesses)
    }
}

fn ended(witnesses: &Path) -> HashSet<Uuid> {
    let log = std::fs::read_to_string(witnesses.join("done")).unwrap_or_default();
    let mut ended = HashSet::new();
    for line in log.lines() {
        assert!(ended.insert(line.parse().unwrap()), "{line} was ended twice");
    }
    ended
}
