//! Reading of JSON objects whose writers are other releases: a member that cannot be read is left where it is.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Removes a member and returns it as its type. A member of another form stays in `members`, so that it is written back
/// unchanged.
pub(super) fn take<T: DeserializeOwned>(members: &mut Map<String, Value>, name: &str) -> Option<T> {
    let value = T::deserialize(members.get(name)?).ok()?;
    members.remove(name);
    Some(value)
}
