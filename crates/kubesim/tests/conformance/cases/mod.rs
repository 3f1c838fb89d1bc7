//! The cases, by what they are about.

use crate::script::Case;

mod apply;
mod collection;
mod crds;
mod defaults;
mod deletion;
mod discovery;
mod eviction;
mod lists;
mod objects;
mod patches;
mod refusals;
mod subresources;
mod tables;
mod things;
mod watches;

pub(crate) fn all() -> Vec<Case> {
    [
        apply::all(),
        collection::all(),
        crds::all(),
        defaults::all(),
        deletion::all(),
        discovery::all(),
        eviction::all(),
        lists::all(),
        objects::all(),
        patches::all(),
        refusals::all(),
        subresources::all(),
        tables::all(),
        watches::all(),
    ]
    .concat()
}
