//! Creates a manifest: pure functions check the request, then manifest and work are stored together.

use api::admin::{ManifestForm, ManifestRequest};
use api::doc::Manifest;
use axum::extract::State;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use planner::schedule::Member;
use planner::task::{Catalogue, check_parameters};
use uuid::Uuid;

use super::params::{Reason, Version};
use super::{AdminState, manifest_form, manifests, offload};
use crate::params::ClusterPath;
use crate::wire::{ApiError, ApiRequest, ApiResponse, as_sentence};

/// Default time from `runAfter` to `runBefore`.
const START_WITHIN: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Longest status text of a manifest; as long as a reason.
const STATUS_TEXT_BYTES_MAX: usize = 2000;

/// Requests a run of a task on a cluster. Every request creates a new manifest.
#[utoipa::path(
    put, path = "/maintenancemanifests", operation_id = "createManifest", tag = "manifests",
    params(
        ClusterPath, Version, Reason,
        ("dryRun" = Option<bool>, Query, description = "Only check, and return what would be stored."),
    ),
    request_body = ManifestRequest,
    responses(
        (status = 200, description = "The manifest that would be stored.", body = ManifestForm),
        (status = 201, description = "It was stored.", body = ManifestForm),
    )
)]
pub(super) async fn create(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let dry_run = request.query.get_bool("dryRun")?;
    let cluster = manifests::cluster(&state, &request).await?;
    let body: ManifestRequest = request.json()?;
    let by = request.by(body.reason.as_deref())?;
    let catalogue = state.catalogue().await?;
    let now = state.clock.now();
    let window = window(&body, now)?;
    let status_text = status_text(body.status_text.as_deref().unwrap_or_default())?;
    let task = task(&body, &catalogue).await?;
    let manifest = Manifest {
        id: Uuid::now_v7(),
        cluster: cluster.uuid,
        cluster_path: cluster.document.id.to_lowercase(),
        task_id: task,
        created_by_schedule: None,
        priority: body.priority.unwrap_or_default(),
        run_after: window.0,
        run_before: window.1,
        parameters: body.parameters,
        created_by: by.actor.clone(),
        status_text,
    };
    if dry_run {
        let names = state.names(&catalogue, [manifest.task_id].into_iter());
        return Ok(ApiResponse::ok(&manifest_form::imagined(&manifest, now, &names)));
    }
    let budgets = Member::new(cluster.uuid, &cluster.document, None, None).budgets(task);
    state.store.manifests().create(&[(manifest.clone(), budgets)], &by).await?;
    Ok(ApiResponse::with_status(StatusCode::CREATED, &manifests::current_form(&state, manifest.id).await?))
}

/// The requested task, if it accepts these parameters.
async fn task(body: &ManifestRequest, catalogue: &Catalogue) -> Result<Uuid, ApiError> {
    const TARGET: &str = "maintenanceTaskID";
    let text = &body.maintenance_task_id;
    if text.is_empty() {
        return Err(ApiError::invalid_parameter(TARGET, "The member maintenanceTaskID must name a task."));
    }
    let id = Uuid::try_parse(text)
        .map_err(|_| ApiError::invalid_parameter(TARGET, "A task is named by its UUID."))?;
    let Some(task) = catalogue.get(id) else {
        return Err(ApiError::invalid_parameter(TARGET, format!("There is no task {id}.")));
    };
    let (task, parameters) = (task.clone(), body.parameters.clone());
    offload(move || check_parameters(&task, &parameters))
        .await?
        .map_err(|problem| ApiError::invalid_parameter(problem.target, as_sentence(&problem.message)))?;
    Ok(id)
}

/// Validates the status text of a manifest.
fn status_text(text: &str) -> Result<String, ApiError> {
    let is_odd = |letter: char| letter.is_control() && letter != '\n' && letter != '\t';
    if text.len() > STATUS_TEXT_BYTES_MAX || text.contains(is_odd) {
        let message = format!(
            "The member statusText must be text of at most {STATUS_TEXT_BYTES_MAX} bytes without control characters."
        );
        return Err(ApiError::invalid_parameter("statusText", message));
    }
    Ok(text.to_owned())
}

/// The earliest and latest start.
fn window(body: &ManifestRequest, now: Timestamp) -> Result<(Timestamp, Timestamp), ApiError> {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let moment = |second: i64, target: &str| {
        Timestamp::from_second(second).ok().filter(|_| second > 0).ok_or_else(|| {
            ApiError::invalid_parameter(
                target,
                format!("The member {target} must be a time in Unix seconds."),
            )
        })
    };
    let given = |value: Option<i64>| value.filter(|second| *second != 0);
    let run_after = match given(body.run_after) {
        Some(second) => moment(second, "runAfter")?,
        None => now,
    };
    let run_before = match given(body.run_before) {
        Some(second) => moment(second, "runBefore")?,
        None => {
            let usual = now.saturating_add(START_WITHIN).unwrap_or(Timestamp::MAX);
            let later = run_after.saturating_add(START_WITHIN).unwrap_or(Timestamp::MAX);
            if run_after < usual { usual } else { later }
        }
    };
    if run_before <= run_after {
        return Err(ApiError::invalid_parameter(
            "runBefore",
            "The member runBefore must be later than runAfter.",
        ));
    }
    if run_before <= now {
        return Err(ApiError::invalid_parameter(
            "runBefore",
            "The member runBefore must not be in the past.",
        ));
    }
    Ok((run_after, run_before))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_790_000_000;
    const DAY: i64 = 24 * 60 * 60;

    fn given(run_after: Option<i64>, run_before: Option<i64>) -> ManifestRequest {
        ManifestRequest { run_after, run_before, ..ManifestRequest::default() }
    }

    #[test]
    fn a_window_has_defaults() {
        let check = |after: Option<i64>, before: Option<i64>, expect: (i64, i64)| {
            let now = Timestamp::new(NOW, 999_000_000).unwrap();
            let (run_after, run_before) = window(&given(after, before), now).unwrap();
            assert_eq!((run_after.as_second(), run_before.as_second()), expect);
        };
        check(None, None, (NOW, NOW + 7 * DAY));
        check(Some(0), Some(0), (NOW, NOW + 7 * DAY));
        check(Some(NOW + DAY), None, (NOW + DAY, NOW + 7 * DAY));
        check(Some(NOW + 7 * DAY), None, (NOW + 7 * DAY, NOW + 14 * DAY));
        check(Some(NOW - DAY), None, (NOW - DAY, NOW + 7 * DAY));
        check(Some(NOW), Some(NOW + 1), (NOW, NOW + 1));
    }

    #[test]
    fn a_status_text_is_bounded_and_readable() {
        for text in ["", "until Friday", "two\n\tlines", &"x".repeat(STATUS_TEXT_BYTES_MAX)] {
            assert_eq!(status_text(text).unwrap(), text);
        }
        for text in ["a\u{7}b", "a\u{1b}[2J", &"x".repeat(STATUS_TEXT_BYTES_MAX + 1)] {
            let error = format!("{:?}", status_text(text).unwrap_err());
            assert!(error.contains("\"statusText\"") && error.contains("at most 2000 bytes"), "{error}");
        }
    }

    #[test]
    fn an_impossible_window_is_rejected_with_its_member() {
        let check = |after: Option<i64>, before: Option<i64>, target: &str| {
            let now = Timestamp::from_second(NOW).unwrap();
            let error = format!("{:?}", window(&given(after, before), now).unwrap_err());
            assert!(error.contains(&format!("{target:?}")), "{error}");
        };
        check(Some(NOW + 10), Some(NOW + 10), "runBefore");
        check(Some(NOW + 10), Some(NOW + 5), "runBefore");
        check(Some(NOW - 10), Some(NOW - 5), "runBefore");
        check(None, Some(NOW), "runBefore");
        check(Some(-1), None, "runAfter");
        check(Some(i64::MAX), None, "runAfter");
        check(None, Some(i64::MIN), "runBefore");
    }
}
