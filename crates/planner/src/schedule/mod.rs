//! What a schedule wants: for each period of its calendar and each cluster that it selects, one manifest.
//!
//! [`check()`] makes a stored schedule of what somebody sent, or says why not. [`Rule`] is a schedule that has been read;
//! [`Rule::horizon`] are the periods that count at an instant, [`Rule::desired_slots`] the slots of one cluster in them, and
//! [`decide()`] what must be written so that the pending manifests are the wanted ones. [`preview()`] shows the same slots by
//! the same function.

mod check;
mod decide;
mod member;
mod preview;
mod rule;
mod slots;
mod spread;

#[cfg(test)]
mod tests;

pub use check::{Check, FindTask, LOOK_FORWARD_MAX, Limits, ScheduleError, ScheduleErrorCode, check, form};
pub use decide::{Changes, ManifestStatus, Window, decide};
pub use member::Member;
pub use preview::{PREVIEW_PERIODS_MAX, preview};
pub use rule::{Rule, parameters_hash};
pub use slots::{Creation, Horizon, Period, Slot};
pub use spread::{offset, position_of};
