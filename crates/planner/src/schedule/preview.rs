//! Preview of a schedule, by the same functions that the scheduler uses.

use api::admin::{PreviewCluster, PreviewForm};
use jiff::{Timestamp, ToSpan};

use super::{Member, Rule};

/// Most periods in a preview.
pub const PREVIEW_PERIODS_MAX: usize = 1000;

/// Returns the next `count` periods of a rule and, for the first `clusters` selected clusters, the start times of their
/// manifests: everything that the scheduler would create until the last of the periods if the schedule is enabled.
pub fn preview<'a>(
    rule: &Rule,
    fleet: impl IntoIterator<Item = &'a Member>,
    now: Timestamp,
    count: usize,
    clusters: usize,
) -> PreviewForm {
    let rule = Rule { look_forward: count.clamp(1, PREVIEW_PERIODS_MAX), since: now, ..rule.clone() };
    let enabled = Rule { enabled: true, ..rule.clone() };
    let horizon = rule.horizon(now);
    let periods: Vec<Timestamp> = horizon.periods.iter().map(|it| it.at).filter(|at| *at > now).collect();
    let (mut of, mut matched, mut shown) = (0, 0, Vec::new());
    for member in fleet {
        of += 1;
        if !rule.selects(member) {
            continue;
        }
        matched += 1;
        if shown.len() < clusters {
            let slots = enabled.desired_slots(&horizon, member);
            let run_after =
                slots.iter().filter(|slot| slot.create).map(|slot| slot.run_after.as_second()).collect();
            shown.push(PreviewCluster { id: member.path.clone(), run_after });
        }
    }
    let warnings = warnings(&rule, now, &periods, count, matched);
    PreviewForm { periods, matched, of, clusters: shown, warnings }
}

/// Warnings about probable mistakes.
fn warnings(rule: &Rule, now: Timestamp, periods: &[Timestamp], count: usize, matched: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    if !rule.enabled {
        warnings.push("the schedule is disabled: it creates no manifests until it is enabled".to_owned());
    }
    if matched == 0 {
        warnings.push("the selectors match no cluster of the fleet".to_owned());
    }
    if periods.len() < count.clamp(1, PREVIEW_PERIODS_MAX) {
        warnings.push(match periods.len() {
            0 => "the calendar never fires again".to_owned(),
            1 => "the calendar fires only once more".to_owned(),
            fewer => format!("the calendar fires only {fewer} more times"),
        });
    }
    for calendar in rule.calendars.iter().filter(|it| it.names_a_day_that_some_months_lack()) {
        warnings.push(format!("{calendar} has a day that some months do not have; those months are skipped"));
    }
    if let Some(change) = moved_within_a_year(rule, now) {
        let zone = rule.calendars.zone();
        let local = change.to_zoned(zone.time_zone().clone()).strftime("%Y-%m-%d %H:%M:%S %:z");
        warnings.push(format!(
            "the clocks of {} skip a time of the calendar; that period starts after the change, at {local}",
            zone.name()
        ));
    }
    if let Some(interval) = rule.calendars.shortest_interval(now).filter(|it| *it < rule.start_within) {
        let (within, interval) =
            (api::duration::TimeSpan::new(rule.start_within), api::duration::TimeSpan::new(interval));
        warnings.push(format!(
            "manifests may start {within} late, but the next period may follow after {interval}: several may be pending at once"
        ));
    }
    warnings
}

/// First clock change of the time zone within a year that moves a period.
fn moved_within_a_year(rule: &Rule, now: Timestamp) -> Option<Timestamp> {
    let end = now.checked_add((366 * 24).hours()).ok()?;
    let changes = rule.calendars.zone().time_zone().following(now).map(|change| change.timestamp());
    changes.take_while(|at| *at < end).find(|at| rule.calendars.is_moved_to(*at))
}
