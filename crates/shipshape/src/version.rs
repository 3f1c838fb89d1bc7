//! The version of this executable, for the command line, `/version` and the metrics.

use serde::Serialize;

/// What this executable was built from.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Version {
    /// The version of Shipshape.
    pub(crate) version: &'static str,
    /// The commit, if the build knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<&'static str>,
    /// The compiler.
    pub(crate) rustc: &'static str,
}

impl Version {
    /// This executable.
    pub(crate) const fn current() -> Version {
        let commit = env!("BUILT_COMMIT");
        Version {
            version: env!("CARGO_PKG_VERSION"),
            commit: if commit.is_empty() { None } else { Some(commit) },
            rustc: env!("BUILT_RUSTC"),
        }
    }

    /// For people.
    pub(crate) fn to_text(self) -> String {
        let commit = self.commit.map(|commit| format!("commit {commit}\n")).unwrap_or_default();
        format!("shipshape {}\n{commit}{}\n", self.version, self.rustc)
    }

    /// For programs.
    pub(crate) fn to_json(self) -> anyhow::Result<String> {
        Ok(format!("{}\n", serde_json::to_string(&self)?))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn variables_of_cargo_run_are_not_settings() {
        // `cargo run` sets the build script's variables for the process too, and `make up` is a `cargo run`.
        assert!(!include_str!("../build.rs").contains("rustc-env=SHIPSHAPE_"));
    }
}
