//! Schedules: one manifest for each period of the calendar and each selected cluster.
//!
//! [`check()`] validates a request and converts it to a stored schedule. [`Rule`] is the parsed form of a schedule;
//! [`Rule::horizon`] returns the current and next periods at a time, [`Rule::desired_slots`] the slots of one cluster in them,
//! and [`decide()`] the changes that make the pending manifests equal to the slots. [`preview()`] shows the same slots.

mod check;
mod decide;
mod member;
mod preview;
mod rule;
mod slots;
mod spread;

#[cfg(test)]
pub(crate) mod tests;

pub use check::{Check, FindTask, LOOK_FORWARD_MAX, Limits, ScheduleError, ScheduleErrorCode, check, form};
pub use decide::{Changes, ManifestStatus, Window, decide};
pub use member::Member;
pub use preview::{PREVIEW_PERIODS_MAX, preview};
pub use rule::{Rule, parameters_hash};
pub use slots::{Creation, Horizon, Period, Slot};
pub use spread::{offset, position_of};
