//! Two schedulers at once.

use std::collections::HashSet;

use api::doc::ScheduleState;
use jiff::{SignedDuration, ToSpan};

use super::super::Scheduler;
use super::fixture::{
    TestScheduler, calendar_at, catch_up, cluster, daily, on_both_engines, opened, reconcile, short_or_long,
};

on_both_engines! {
    async fn two_concurrent_schedulers_create_one_manifest_of_each(test: &TestScheduler) {
        const CLUSTERS: usize = 15;
        for number in 0..CLUSTERS {
            test.import(&cluster(&format!("cluster-{number}"))).await;
        }
        let mut schedules = Vec::new();
        for id in ["first", "second"] {
            let mut schedule = daily(id, test.now());
            schedule.look_forward_count = 2;
            schedules.push(schedule);
        }
        let deps = [test.deps(test.store.clone()), test.deps(test.open_another().await)];
        let mut racers = Vec::new();
        for deps in &deps {
            racers.push(opened(deps).await);
        }
        let [one, other] = &mut racers[..] else { panic!("two") };
        // Rounds of changes, and after each both at once.
        for round in 0..short_or_long(12, 600_u32) {
            for schedule in &mut schedules {
                match round % 4 {
                    0 => schedule.calendars = vec![calendar_at(test.now() + i64::from(2 + round % 5).hours())],
                    1 => schedule.priority += 1,
                    2 => schedule.state = ScheduleState::Disabled,
                    _ => schedule.state = ScheduleState::Enabled,
                }
                test.put(schedule).await;
            }
            if round % 3 == 2 {
                test.clock.advance(SignedDuration::from_hours(7));
            }
            let race = async |scheduler: &mut Scheduler| {
                catch_up(scheduler).await;
                scheduler.pass().await
            };
            let (first, second) = tokio::join!(race(one), race(other));
            first.unwrap();
            second.unwrap();
        }
        // When both have seen all that the other did, they agree.
        for _ in 0..3 {
            for scheduler in [&mut *one, &mut *other] {
                reconcile(scheduler).await;
            }
        }
        let mut seen = HashSet::new();
        for schedule in &schedules {
            let mut pending = test.pending(&schedule.id).await;
            pending.retain(|work| work.run_before.unwrap() > test.now()); // the store's clock has not been moved
            let ahead = pending.iter().filter(|work| work.run_after > test.now()).count();
            assert_eq!(ahead, 2 * CLUSTERS, "{}", schedule.id);
            for work in &pending {
                assert_eq!(work.priority, schedule.priority);
                assert!(seen.insert((schedule.id.clone(), work.run_after, work.lane)), "made twice: {work:?}");
            }
        }
        // One that begins anew has nothing to add.
        assert_eq!(reconcile(&mut test.scheduler().await).await, (0, 0));
    }
}
