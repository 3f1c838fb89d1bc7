use super::super::{Changes, ManifestStatus, Slot, Window, decide};
use super::{at, member, rule, schedule};
use jiff::{Timestamp, ToSpan};
use uuid::Uuid;

const NOW: &str = "2026-03-01T12:00:00Z";

fn slot() -> Slot {
    let rule = rule(&schedule());
    rule.desired_slots(&rule.horizon(at(NOW)), &member("cluster1"))[0]
}

fn fresh(slot: &Slot) -> Window {
    Window {
        run_after: slot.run_after,
        run_before: slot.run_before,
        priority: slot.priority,
        parameters: slot.parameters,
    }
}

fn check(known: &[(Uuid, ManifestStatus)], wanted: &[Slot], create: &[Uuid], withdraw: &[Uuid]) {
    let Changes { create: found, withdraw: gone } = decide(known, wanted, at(NOW));
    let found: Vec<Uuid> = found.iter().map(|slot| slot.id).collect();
    assert_eq!((found.as_slice(), gone.as_slice()), (create, withdraw), "{known:?}");
}

#[test]
fn missing_manifests_are_created_and_existing_ones_stay() {
    let slot = slot();
    let id = slot.id;
    check(&[], &[slot], &[id], &[]);
    check(&[(id, ManifestStatus::Fresh(fresh(&slot)))], &[slot], &[], &[]);
    // Begun, ended, cancelled by a person.
    check(&[(id, ManifestStatus::Closed)], &[slot], &[], &[]);
    check(&[(id, ManifestStatus::Superseded)], &[slot], &[id], &[]);
}

#[test]
fn manifests_of_open_periods_are_never_created_but_restored() {
    let slot = Slot { create: false, ..slot() };
    check(&[], &[slot], &[], &[]);
    check(&[(slot.id, ManifestStatus::Fresh(fresh(&slot)))], &[slot], &[], &[]);
    check(&[(slot.id, ManifestStatus::Superseded)], &[slot], &[slot.id], &[]);
}

#[test]
fn obsolete_manifests_are_withdrawn_unless_started_or_past_their_window() {
    let slot = slot();
    let other = Uuid::from_u128(9);
    let window = fresh(&slot);
    check(
        &[(slot.id, ManifestStatus::Fresh(window)), (other, ManifestStatus::Fresh(window))],
        &[slot],
        &[],
        &[other],
    );
    check(&[(other, ManifestStatus::Closed), (slot.id, ManifestStatus::Superseded)], &[], &[], &[]);
    check(&[(other, ManifestStatus::Fresh(Window { run_before: at(NOW), ..window }))], &[], &[], &[]);
}

#[test]
fn changed_manifests_are_withdrawn_and_restored() {
    let slot = slot();
    let window = fresh(&slot);
    let replaced = |window: Window| {
        check(&[(slot.id, ManifestStatus::Fresh(window))], &[slot], &[slot.id], &[slot.id]);
    };
    replaced(Window { run_after: window.run_after + 1.second(), ..window });
    replaced(Window { run_before: window.run_before + 1.second(), ..window });
    replaced(Window { priority: 3, ..window });
    replaced(Window { parameters: window.parameters ^ 1, ..window });
    // What a person made the next of its cluster stays so.
    let expedited = Window { run_after: Timestamp::UNIX_EPOCH, ..window };
    check(&[(slot.id, ManifestStatus::Fresh(expedited))], &[slot], &[], &[]);
}
