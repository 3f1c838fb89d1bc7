//! `make bench`: the store against what the machine itself can do, as goals that are reached or missed.
//!
//! Every figure is measured beside its floor: a slice of one, a slice of the other, alternating, in one run. The
//! ratio is the median of the ratios of neighbouring slices, so that a busy machine slows both and changes it little.
//!
//! A missed goal is printed, and the run still succeeds: speed depends on the machine. A violated guarantee (work run
//! twice, a deadlock, a feed row lost, a stale write accepted) does not, and makes it exit with 1.
//!
//! `make bench ARGS="[--quick] [WORD…]"`: only the subjects whose names contain a word; `--quick` for short slices
//! and smaller backlogs, to check function rather than speed.

mod claim;
mod clients;
mod environment;
mod feed;
mod fence;
mod floors;
mod notifications;
mod peer;
mod postgres;
mod slices;
mod sqlite;
mod table;

use std::process::ExitCode;

use environment::{Machine, Place};
use slices::Plan;
use table::{Row, Table};

/// Measurements that share their preparation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    SqliteWrite,
    SqliteWriters,
    SqliteCycle,
    SqliteClaim,
    SqliteFeed,
    SqliteFence,
    PostgresUpdate,
    PostgresQueue,
    PostgresClaim,
    PostgresWake,
    PostgresFeed,
    PostgresFence,
}

impl Subject {
    const ALL: [Subject; 12] = [
        Subject::SqliteWrite,
        Subject::SqliteWriters,
        Subject::SqliteCycle,
        Subject::SqliteClaim,
        Subject::SqliteFeed,
        Subject::SqliteFence,
        Subject::PostgresUpdate,
        Subject::PostgresQueue,
        Subject::PostgresClaim,
        Subject::PostgresWake,
        Subject::PostgresFeed,
        Subject::PostgresFence,
    ];

    fn name(self) -> &'static str {
        match self {
            Subject::SqliteWrite => "sqlite-write",
            Subject::SqliteWriters => "sqlite-writers",
            Subject::SqliteCycle => "sqlite-cycle",
            Subject::SqliteClaim => "sqlite-claim",
            Subject::SqliteFeed => "sqlite-feed",
            Subject::SqliteFence => "sqlite-fence",
            Subject::PostgresUpdate => "postgres-update",
            Subject::PostgresQueue => "postgres-queue",
            Subject::PostgresClaim => "postgres-claim",
            Subject::PostgresWake => "postgres-wake",
            Subject::PostgresFeed => "postgres-feed",
            Subject::PostgresFence => "postgres-fence",
        }
    }

    fn needs_postgres(self) -> bool {
        self.name().starts_with("postgres")
    }

    async fn measure(self, machine: &Machine, plan: Plan) -> anyhow::Result<Vec<Row>> {
        match self {
            Subject::SqliteWrite => sqlite::one_writer(machine, plan).await,
            Subject::SqliteWriters => sqlite::many_writers(machine, plan).await,
            Subject::SqliteCycle => sqlite::cycles(machine, plan).await,
            Subject::SqliteClaim => claim::claims(machine, Place::Sqlite, plan).await,
            Subject::SqliteFeed => feed::lost(machine, Place::Sqlite, plan).await,
            Subject::SqliteFence => fence::fences(machine, Place::Sqlite, plan).await,
            Subject::PostgresUpdate => postgres::updates(machine, plan).await,
            Subject::PostgresQueue => postgres::queue(machine, plan).await,
            Subject::PostgresClaim => claim::claims(machine, Place::Postgres, plan).await,
            Subject::PostgresWake => notifications::notifications(machine, plan).await,
            Subject::PostgresFeed => {
                let mut rows = feed::lost(machine, Place::Postgres, plan).await?;
                rows.extend(feed::empty_polls(machine, plan).await?);
                Ok(rows)
            }
            Subject::PostgresFence => fence::fences(machine, Place::Postgres, plan).await,
        }
    }
}

fn main() -> ExitCode {
    let (plan, subjects) = match asked(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(rejection) => {
            eprintln!("{rejection}");
            return ExitCode::from(2);
        }
    };
    match run(plan, &subjects) {
        Ok(sound) if sound => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the benchmark could not be carried out: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Parses the command line, or returns the error in one sentence.
fn asked(arguments: impl Iterator<Item = String>) -> Result<(Plan, Vec<Subject>), String> {
    let (mut plan, mut words) = (Plan::FULL, Vec::new());
    for argument in arguments {
        match argument.as_str() {
            // Cargo passes this to every benchmark.
            "--bench" => {}
            "--quick" => plan = Plan::QUICK,
            flag if flag.starts_with('-') => {
                return Err(format!("{flag} is not known; accepted: --quick and words of names"));
            }
            word => words.push(word.to_owned()),
        }
    }
    let is_asked =
        |it: &Subject| words.is_empty() || words.iter().any(|word| it.name().contains(word.as_str()));
    let subjects: Vec<Subject> = Subject::ALL.into_iter().filter(is_asked).collect();
    if subjects.is_empty() {
        let names = Subject::ALL.map(Subject::name).join(", ");
        return Err(format!("nothing is called {}; there are {names}", words.join(" or ")));
    }
    Ok((plan, subjects))
}

/// Measures and prints; returns whether every guarantee held.
fn run(plan: Plan, subjects: &[Subject]) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let machine = Machine::find(subjects.iter().any(|it| it.needs_postgres()))?;
    let mut table = Table::default();
    table.begin();
    for subject in subjects {
        if subject.needs_postgres() && machine.postgres.is_none() {
            table.skip(subject.name(), "no PostgreSQL server is installed; tools/setup installs one");
            continue;
        }
        for row in runtime.block_on(Box::pin(subject.measure(&machine, plan)))? {
            table.add(row);
        }
    }
    Ok(table.end())
}
