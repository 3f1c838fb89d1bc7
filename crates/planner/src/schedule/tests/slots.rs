use super::super::{Creation, Slot};
use super::{at, cluster, member, rule, schedule};
use api::doc::{MissedPolicy, ProvisioningState, Schedule, ScheduleState};
use jiff::Timestamp;
use uuid::Uuid;

fn slots_of(schedule: &Schedule, now: &str) -> Vec<Slot> {
    let rule = rule(schedule);
    rule.desired_slots(&rule.horizon(at(now)), &member("cluster1"))
}

/// When the slots may begin, and whether each is made when it is not there.
fn times(slots: &[Slot]) -> Vec<(String, bool)> {
    slots.iter().map(|slot| (slot.run_after.to_string(), slot.create)).collect()
}

#[test]
fn manifests_of_next_periods_are_created_and_those_of_open_ones_stay() {
    let mut schedule = schedule();
    schedule.look_forward_count = 3;
    let ahead = |day: u32| (format!("2026-03-0{day}T02:00:00Z"), true);
    assert_eq!(times(&slots_of(&schedule, "2026-03-01T12:00:00Z")), [ahead(2), ahead(3), ahead(4)]);
    // At its very beginning a period is open, and the next ones are those behind it.
    let kept = ("2026-03-02T02:00:00Z".to_owned(), false);
    assert_eq!(
        times(&slots_of(&schedule, "2026-03-02T02:00:00Z")),
        [kept.clone(), ahead(3), ahead(4), ahead(5)]
    );
    assert_eq!(times(&slots_of(&schedule, "2026-03-02T02:59:59Z"))[0], kept);
    assert_eq!(times(&slots_of(&schedule, "2026-03-02T03:00:00Z")).len(), 3);
    schedule.look_forward_count = 0;
    assert_eq!(times(&slots_of(&schedule, "2026-03-01T12:00:00Z")), [ahead(2)]);
}

#[test]
fn the_default_window_of_a_slot_is_that_of_mimo() {
    let mut schedule = schedule();
    let slot = slots_of(&schedule, "2026-03-01T12:00:00Z")[0];
    assert_eq!(slot.run_before, at("2026-03-02T03:00:00Z"));
    schedule.start_within = Some("90m".to_owned());
    schedule.schedule_across = "1h".to_owned();
    let slot = slots_of(&schedule, "2026-03-01T12:00:00Z")[0];
    assert_eq!(slot.run_after, at("2026-03-02T02:10:13Z")); // 613 s, as the table of offsets says
    assert_eq!(slot.run_before, at("2026-03-02T03:40:13Z"));
}

#[test]
fn every_open_period_stays_however_many_have_started_since() {
    let mut schedule = schedule();
    schedule.calendars = vec!["hourly".to_owned()];
    schedule.schedule_across = "5h".to_owned(); // stored long ago, before that was refused
    let slots = slots_of(&schedule, "2026-03-01T12:30:00Z");
    // 5 h spread puts this cluster 51 minutes behind; it may begin an hour late.
    let offset = slots[0].run_after.duration_since(slots[0].period).as_secs();
    assert_eq!(offset, 3067);
    let kept: Vec<Timestamp> = slots.iter().filter(|slot| !slot.create).map(|slot| slot.period).collect();
    assert_eq!(kept, [at("2026-03-01T11:00:00Z"), at("2026-03-01T12:00:00Z")]);
    let rule = rule(&schedule);
    let open = rule.horizon(at("2026-03-01T12:30:00Z")).periods;
    assert_eq!(open.iter().filter(|period| period.creation == Creation::Never).count(), 6); // 07:00 to 12:00: others are further behind
}

#[test]
fn a_missed_period_is_made_up_for_once_by_clusters_that_existed() {
    let mut schedule = schedule();
    schedule.missed_policy = MissedPolicy::RunOnce;
    let now = "2026-03-05T12:00:00Z";
    let slots = slots_of(&schedule, now);
    assert_eq!(
        times(&slots),
        [("2026-03-05T02:00:00Z".to_owned(), true), ("2026-03-06T02:00:00Z".to_owned(), true)]
    );
    assert_eq!(slots[0].run_before, at("2026-03-06T02:00:00Z")); // until its successor may begin
    // One that came later was not there to miss it; nor was a schedule that has been changed since.
    let rule = rule(&schedule);
    let mut late = cluster("cluster1");
    late.created_at = at("2026-03-05T03:00:00Z");
    let late = super::Member::new(Uuid::from_u128(1), &late, None, None);
    assert!(!rule.desired_slots(&rule.horizon(at(now)), &late)[0].create);
    let changed = super::Rule::read(&schedule, at("2026-03-05T03:00:00Z")).unwrap();
    assert!(!changed.desired_slots(&changed.horizon(at(now)), &member("cluster1"))[0].create);
    // Rare calendars are looked for far back, but not beyond the time for which it is known what was made.
    schedule.calendars = vec!["*-2-10".to_owned()];
    assert_eq!(times(&slots_of(&schedule, now))[0], ("2026-02-10T00:00:00Z".to_owned(), true));
    schedule.calendars = vec!["*-2-1".to_owned()];
    assert_eq!(times(&slots_of(&schedule, now))[0], ("2027-02-01T00:00:00Z".to_owned(), true));
}

#[test]
fn clusters_that_are_not_selected_or_incomplete_have_no_slots() {
    let rule = rule(&schedule());
    let horizon = rule.horizon(at("2026-03-01T12:00:00Z"));
    let count = |change: &dyn Fn(&mut api::doc::Cluster)| {
        let mut cluster = cluster("cluster1");
        change(&mut cluster);
        rule.desired_slots(&horizon, &super::Member::new(Uuid::from_u128(1), &cluster, None, None)).len()
    };
    assert_eq!(count(&|_| {}), 1);
    assert_eq!(count(&|it| it.location = "eastus".to_owned()), 0);
    assert_eq!(count(&|it| it.provisioning_state = ProvisioningState::Creating), 0);
    assert_eq!(count(&|it| it.provisioning_state = ProvisioningState::Deleting), 0);
    assert_eq!(count(&|it| it.provisioning_state = ProvisioningState::Updating), 1);
    assert_eq!(count(&|it| it.provisioning_state = ProvisioningState::Failed), 1);
    assert_eq!(
        count(&|it| {
            it.provisioning_state = ProvisioningState::Failed;
            it.failed_provisioning_state = Some(ProvisioningState::Deleting);
        }),
        0
    );
    let mut disabled = schedule();
    disabled.state = ScheduleState::Disabled;
    assert!(slots_of(&disabled, "2026-03-01T12:00:00Z").is_empty());
}

#[test]
fn ids_depend_only_on_schedule_period_and_cluster() {
    let id = |change: &dyn Fn(&mut Schedule), now: &str| {
        let mut schedule = schedule();
        change(&mut schedule);
        slots_of(&schedule, now)[0].id
    };
    let now = "2026-03-01T12:00:00Z";
    let one = id(&|_| {}, now);
    assert_eq!(one.get_version_num(), 5);
    assert_eq!(one, id(&|it| it.priority = 7, "2026-03-01T13:00:00Z"));
    assert_eq!(one, id(&|it| it.schedule_across = "2h".to_owned(), now));
    assert_ne!(one, id(&|it| it.id = "other".to_owned(), now));
    assert_ne!(one, id(&|_| {}, "2026-03-02T12:00:00Z"));
    // A uuid is its own namespace.
    let uuid = Uuid::from_u128(0xabc);
    let cluster = member("cluster1").uuid;
    let name = format!("{uuid}|{}|{cluster}", at("2026-03-02T02:00:00Z").as_second());
    assert_eq!(id(&|it| it.id = uuid.to_string(), now), Uuid::new_v5(&uuid, name.as_bytes()));
}

#[test]
fn a_manifest_names_its_schedule_and_the_budgets_that_count_it() {
    let rule = rule(&schedule());
    let member = member("cluster1");
    let slot = rule.desired_slots(&rule.horizon(at("2026-03-01T12:00:00Z")), &member)[0];
    let (manifest, budgets) = rule.manifest(&slot, &member);
    assert_eq!((manifest.id, manifest.cluster), (slot.id, member.uuid));
    assert_eq!(manifest.created_by_schedule.as_deref(), Some("nightly"));
    assert_eq!(
        budgets,
        [
            "fleet".to_owned(),
            "region/westeurope".to_owned(),
            "subscription/00000000-0000-0000-0000-000000000000".to_owned(),
            format!("task/{}", super::TASK),
        ]
    );
}

#[test]
fn the_boundary_is_the_start_of_the_next_period() {
    let rule = rule(&schedule());
    assert_eq!(rule.horizon(at("2026-03-01T01:59:59.9Z")).boundary, Some(at("2026-03-01T02:00:00Z")));
    assert_eq!(rule.horizon(at("2026-03-01T02:00:00Z")).boundary, Some(at("2026-03-02T02:00:00Z")));
}
