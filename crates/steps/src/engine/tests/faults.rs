use std::sync::Arc;
use std::time::Duration;

use api::clock::ManualClock;
use jiff::Timestamp;
use store::{Keyring, Location, Options, Store, WriteMode};

use super::fixture::{World, mark, plan};
use crate::engine::fault_harness::FaultHarness;
use crate::engine::{PollStatus, Step, StepOutcome};

#[tokio::test(start_paused = true)]
async fn a_plan_of_actions_and_waits_handles_every_fault_at_every_step() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(Timestamp::UNIX_EPOCH);
    let location = Location::Sqlite(directory.path().join("store.db"));
    let options = Options::new(location, Keyring::ephemeral().unwrap(), clock.clone());
    let store = Store::open(Options { write_mode: WriteMode::Inline, ..options }).await.unwrap();
    let harness: FaultHarness<World> = FaultHarness {
        store,
        clock,
        make: Box::new(|| {
            Box::pin(async {
                let wait =
                    Step::wait("b-is-there", Duration::from_secs(60), |world: Arc<World>, _| async move {
                        let there = world.marks().iter().any(|it| it == "b");
                        Ok(if there {
                            PollStatus::Done(StepOutcome::default())
                        } else {
                            PollStatus::Waiting("no b yet".into())
                        })
                    });
                (plan([once("a"), once("b"), wait, once("c")]), Arc::default())
            })
        }),
        done: Box::new(|world| {
            Box::pin(async move {
                let marks = world.marks();
                if marks == ["a", "b", "c"] { Ok(()) } else { Err(format!("{marks:?}")) }
            })
        }),
        undone: Box::new(|world| {
            Box::pin(async move {
                let marks = world.marks();
                if marks.is_empty() { Ok(()) } else { Err(format!("left behind: {marks:?}")) }
            })
        }),
    };
    harness.run_all().await;
}

/// Ensures a mark, once, however often it runs.
fn once(name: &'static str) -> Step<World> {
    let marking = mark(name);
    let undo = marking.undo;
    let ensure = Step::action(name, move |world: Arc<World>, _| async move {
        if !world.marks().iter().any(|it| it == name) {
            world.mark(name);
        }
        Ok(StepOutcome::default())
    });
    Step { undo, ..ensure }
}
