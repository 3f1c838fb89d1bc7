//! `shipshape why`: what blocks a manifest from starting, or its current step from completing.

use api::admin::{Blocker, Owner, Verdict, WhyForm};
use clap::Args;

use super::Invocation;
use super::age::age;
use super::manifest::ManifestRef;
use super::print::Output;
use super::table::{self, Column, View, Width, with_age};

/// The manifest and the server.
#[derive(Debug, Args)]
pub struct WhyCommand {
    #[command(flatten)]
    manifest: ManifestRef,
    #[command(flatten)]
    output: Output,
}

/// Shows the blockers of a manifest.
pub async fn run(command: &WhyCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    let (client, cluster, form) = command.manifest.find(invocation).await?;
    let why = client.why(&cluster, form.id).await?;
    command.output.print_value(invocation, &why, |view| text(&why, view))
}

fn text(why: &WhyForm, view: &View) -> String {
    let state = why.state.as_str();
    let verdict = match why.verdict {
        Verdict::Blocked => {
            let start = match why.earliest_start {
                Some(time) => format!("it can start at {} at the earliest", with_age(time, view.now)),
                None => "its start cannot be predicted".to_owned(),
            };
            format!("is {state} and blocked; {start}")
        }
        Verdict::Ready => format!("is {state} and ready: nothing blocks it"),
        Verdict::Running => format!("is {state}{}", running(why, view)),
        Verdict::Finished => format!("is finished: {state}"),
    };
    let mut text = format!("manifest {} {verdict}\n", why.manifest);
    let message = why.step.as_ref().filter(|_| why.verdict == Verdict::Running).map(|step| &step.message);
    if let Some(message) = message.filter(|it| !it.is_empty()) {
        text += &format!("{message}\n");
    }
    if !why.blockers.is_empty() {
        let columns = ["BLOCKER", "OWNER", "SINCE", "UNTIL", "WHY"].map(|name| Column(name, Width::Always));
        let rows: Vec<Vec<String>> = why.blockers.iter().map(|blocker| row(blocker, view)).collect();
        text += &table::rows(&columns, &rows, view, true);
    }
    text
}

/// The current step, its age and its deadline.
fn running(why: &WhyForm, view: &View) -> String {
    let Some(step) = &why.step else { return ": its first step has not reported yet".to_owned() };
    let action = if why.undoing { "undoing" } else { "in" };
    let until = step.deadline.map(|at| format!(", which may take until {}", with_age(at, view.now)));
    let since = age(step.since, view.now);
    format!(
        ": {action} step {} ({} of {}) for {since}{}",
        step.name,
        step.index,
        step.of,
        until.unwrap_or_default()
    )
}

fn row(blocker: &Blocker, view: &View) -> Vec<String> {
    let owner = match blocker.owner {
        Owner::Schedule => "schedule",
        Owner::Customer => "customer",
        Owner::Operator => "operator",
        Owner::System => "system",
    };
    vec![
        format!("{:?}", blocker.code),
        owner.to_owned(),
        view.optional_time(blocker.since),
        view.optional_time(blocker.until),
        blocker.message.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use api::admin::BlockerCode;
    use api::work::WorkState;

    use super::*;

    #[test]
    fn every_blocker_is_a_row() {
        let view = View { now: "2026-01-01T00:00:00Z".parse().unwrap(), wide: false };
        let mut why = WhyForm {
            manifest: uuid::Uuid::nil(),
            state: WorkState::Pending,
            verdict: Verdict::Blocked,
            step: None,
            undoing: false,
            earliest_start: Some("2026-01-01T01:00:00Z".parse().unwrap()),
            blockers: vec![
                Blocker {
                    code: BlockerCode::NotDue,
                    message: "its time has not come".into(),
                    owner: Owner::Schedule,
                    since: None,
                    until: Some("2026-01-01T01:00:00Z".parse().unwrap()),
                },
                Blocker {
                    code: BlockerCode::BudgetFull,
                    message: "fleet is 0".into(),
                    owner: Owner::Operator,
                    since: None,
                    until: None,
                },
            ],
        };
        assert_eq!(
            text(&why, &view),
            "manifest 00000000-0000-0000-0000-000000000000 is Pending and blocked; it can start at 2026-01-01T01:00:00Z (in 60m) at the earliest\n\
             BLOCKER      OWNER      SINCE   UNTIL    WHY\n\
             NotDue       schedule           in 60m   its time has not come\n\
             BudgetFull   operator                    fleet is 0\n"
        );
        why.verdict = Verdict::Ready;
        why.blockers.clear();
        assert!(text(&why, &view).ends_with("is Pending and ready: nothing blocks it\n"));
    }

    #[test]
    fn running_work_shows_its_step_with_cause_and_deadline() {
        let view = View { now: "2026-01-01T00:10:00Z".parse().unwrap(), wide: false };
        let mut why: WhyForm = serde_json::from_value(serde_json::json!({
            "manifest": uuid::Uuid::nil(), "state": "InProgress", "verdict": "running", "earliestStart": null,
            "step": {
                "name": "drain", "index": 3, "of": 6, "since": "2026-01-01T00:05:00Z", "deadline": "2026-01-01T01:05:00Z",
                "message": "Waiting for 2 pods on node a; PodDisruptionBudget shop/web allows no disruption",
            },
            "blockers": [{
                "code": "StepWaiting", "owner": "customer", "since": "2026-01-01T00:06:00Z",
                "message": "PodDisruptionBudget shop/web allows no disruption of shop/web-1, shop/web-2",
            }],
        }))
        .unwrap();
        assert_eq!(
            text(&why, &view),
            "manifest 00000000-0000-0000-0000-000000000000 is InProgress: in step drain (3 of 6) for 5m, which may take until 2026-01-01T01:05:00Z (in 55m)\n\
             Waiting for 2 pods on node a; PodDisruptionBudget shop/web allows no disruption\n\
             BLOCKER       OWNER      SINCE   UNTIL   WHY\n\
             StepWaiting   customer   4m              PodDisruptionBudget shop/web allows no disruption of shop/web-1, shop/web-2\n"
        );
        why.undoing = true;
        assert!(text(&why, &view).contains("undoing step drain (3 of 6)"));
        (why.step, why.blockers) = (None, Vec::new());
        assert!(text(&why, &view).ends_with("is InProgress: its first step has not reported yet\n"));
    }
}
