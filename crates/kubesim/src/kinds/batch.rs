//! Workloads that run to completion.

use super::row::{Row, STATUS, StatusRule};
use super::{columns, defaults, rules};

/// The kinds of the group `batch`.
pub(super) const ROWS: &[Row] = &[
    Row {
        short: &["cj"],
        categories: &["all"],
        subresources: &[STATUS],
        status: StatusRule::Cleared,
        generation: true,
        columns: columns::CRON_JOB,
        default: defaults::cron_job,
        prepare: rules::prepare_empty_status,
        validate: rules::cron_job,
        ..Row::namespaced("batch", "CronJob", "cronjobs", "cronjob")
    },
    Row {
        categories: &["all"],
        subresources: &[STATUS],
        status: StatusRule::Cleared,
        generation: true,
        fields: &["status.successful"],
        columns: columns::JOB,
        default: defaults::job,
        prepare: rules::prepare_job,
        validate: rules::job,
        ..Row::namespaced("batch", "Job", "jobs", "job")
    },
];
