//! The cases, grouped by subject.

use crate::script::Case;

mod access;
mod apply;
mod crds;
mod defaults;
mod deletion;
mod discovery;
mod errors;
mod events;
mod eviction;
mod fixtures;
mod garbage_collection;
mod lists;
mod objects;
mod patches;
mod rbac;
mod reviews;
mod subresources;
mod tables;
mod watches;
mod webhooks;

pub(crate) fn all() -> Vec<Case> {
    [
        access::all(),
        apply::all(),
        garbage_collection::all(),
        crds::all(),
        defaults::all(),
        deletion::all(),
        discovery::all(),
        eviction::all(),
        lists::all(),
        objects::all(),
        patches::all(),
        rbac::all(),
        reviews::all(),
        errors::all(),
        events::all(),
        subresources::all(),
        tables::all(),
        watches::all(),
        webhooks::all(),
    ]
    .concat()
}
