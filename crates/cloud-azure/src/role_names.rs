//! Names and ids of roles, remembered: built-in roles never change, and lists of them are long.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Roles that are remembered.
const ROLES_MAX: usize = 1024;

/// The roles that were looked up.
#[derive(Debug, Default)]
pub(crate) struct RoleNames {
    ids: Mutex<HashMap<(String, String), String>>,
}

impl RoleNames {
    /// The id of a role in a subscription.
    pub(crate) fn id(&self, subscription: &str, name: &str) -> Option<String> {
        let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.get(&key(subscription, name)).cloned()
    }

    pub(crate) fn remember(&self, subscription: &str, name: &str, id: &str) {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        if ids.len() >= ROLES_MAX {
            ids.clear();
        }
        ids.insert(key(subscription, name), id.to_owned());
    }

    /// Forgets a role that does not exist any more.
    pub(crate) fn forget(&self, subscription: &str, name: &str) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).remove(&key(subscription, name));
    }
}

fn key(subscription: &str, name: &str) -> (String, String) {
    (subscription.to_lowercase(), name.to_lowercase())
}
