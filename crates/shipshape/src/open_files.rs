//! The limit on open files. Every connection is one, and the soft limit with which most systems start a process is lower than the
//! number of connections that our listeners accept.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files beside the connections of clients: the store, connections to clusters and clouds, the health endpoint, the log.
const OTHER_FILES: u64 = 256;

/// Raises the soft limit of this process to the hard one.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "The limit on open files could not be raised to the hard limit: {error}"
        );
    }
}

/// Logs a warning when this process may open fewer files than its listeners need; `connections` is what each setting allows.
pub(crate) fn check_limit(connections: &[(&'static str, usize)]) {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return };
    if let Some(warning) = shortage(limit, connections) {
        tracing::warn!("{warning}");
    }
}

fn shortage(limit: u64, connections: &[(&'static str, usize)]) -> Option<String> {
    let accepted: usize = connections.iter().map(|(_, count)| count).sum();
    let needed = OTHER_FILES.saturating_add(u64::try_from(accepted).unwrap_or(u64::MAX));
    if connections.is_empty() || limit >= needed {
        return None;
    }
    let settings: Vec<String> =
        connections.iter().map(|(setting, count)| format!("{setting} {count}")).collect();
    Some(format!(
        "This process may open {limit} files, but needs {needed}: {OTHER_FILES} and {}; raise its hard limit on open files or lower these settings",
        settings.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::shortage;

    #[test]
    fn a_limit_is_too_low_when_not_all_connections_fit() {
        let both = [("frontend.connections", 1024), ("portal.connections", 1000)];
        assert_eq!(shortage(2280, &both), None);
        assert_eq!(
            shortage(2279, &both).as_deref(),
            Some(
                "This process may open 2279 files, but needs 2280: 256 and frontend.connections 1024, portal.connections 1000; \
                 raise its hard limit on open files or lower these settings"
            )
        );
        // A worker accepts nothing.
        assert_eq!(shortage(64, &[]), None);
    }
}
