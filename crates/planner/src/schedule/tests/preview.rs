use super::super::preview;
use super::{at, cluster, member, rule, schedule};
use api::doc::{MissedPolicy, ScheduleState};
use uuid::Uuid;

#[test]
fn a_preview_shows_the_manifests_of_the_scheduler() {
    let mut schedule = schedule();
    schedule.schedule_across = "1h".to_owned();
    schedule.look_forward_count = 3;
    schedule.missed_policy = MissedPolicy::RunOnce;
    let now = at("2026-03-01T12:00:00Z");
    let mut elsewhere = cluster("elsewhere");
    elsewhere.location = "eastus".to_owned();
    let elsewhere = super::Member::new(Uuid::from_u128(1), &elsewhere, None, None);
    let fleet = [member("cluster1"), elsewhere, member("cluster2"), member("cluster3")];
    let shown = preview(&rule(&schedule), &fleet, now, 3, 2);
    assert_eq!((shown.matched, shown.of, shown.clusters.len()), (3, 4, 2));
    assert_eq!(shown.periods, [2, 3, 4].map(|day| at(&format!("2026-03-0{day}T02:00:00Z"))));
    // The same slots, by the rule itself; the missed one is not the preview's, which begins now.
    let rule = rule(&schedule);
    let made: Vec<i64> = rule
        .desired_slots(&rule.horizon(now), &fleet[0])
        .iter()
        .filter(|slot| slot.create && slot.period > now)
        .map(|slot| slot.run_after.as_second())
        .collect();
    assert_eq!(shown.clusters[0].run_after, made);
    assert_eq!(made[0], at("2026-03-02T02:10:13Z").as_second());
    assert_eq!(shown.clusters[0].id, fleet[0].path);
    assert!(shown.warnings.is_empty(), "{:?}", shown.warnings);
}

#[test]
fn a_preview_warns_of_probable_mistakes() {
    let warns = |expect: &[&str], change: &dyn Fn(&mut api::doc::Schedule)| {
        let mut schedule = schedule();
        change(&mut schedule);
        let shown = preview(&rule(&schedule), &[member("cluster1")], at("2026-03-01T12:00:00Z"), 10, 10);
        assert_eq!(shown.warnings, expect, "{schedule:?}");
    };
    warns(&[], &|_| {});
    warns(&["the schedule is disabled: it creates no manifests until it is enabled"], &|it| {
        it.state = ScheduleState::Disabled;
    });
    warns(&["the selectors match no cluster of the fleet"], &|it| {
        it.selectors[0]["value"] = "nowhere".into();
    });
    warns(&["the calendar fires only 2 more times"], &|it| it.calendars = vec!["2026-5-1,2".into()]);
    warns(&["*-*-31 00:00:00 has a day that some months do not have; those months are skipped"], &|it| {
        it.calendars = vec!["*-*-31".into()];
    });
    warns(
        &[
            "the clocks of Europe/Berlin skip a time of the calendar; that period starts after the change, at 2026-03-29 03:00:00 +02:00",
        ],
        &|it| {
            (it.calendars, it.time_zone) = (vec!["02:30".into()], "Europe/Berlin".into());
        },
    );
    warns(&[], &|it| (it.calendars, it.time_zone) = (vec!["02,03:00".into()], "Asia/Tokyo".into()));
    warns(
        &[
            "manifests may start 2d late, but the next period may follow after 1d: several may be pending at once",
        ],
        &|it| it.start_within = Some("2d".into()),
    );
}

#[test]
fn a_disabled_schedule_shows_its_potential_manifests() {
    let mut schedule = schedule();
    schedule.state = ScheduleState::Disabled;
    let shown = preview(&rule(&schedule), &[member("cluster1")], at("2026-03-01T12:00:00Z"), 2, 10);
    assert_eq!(shown.clusters[0].run_after.len(), 2);
}
