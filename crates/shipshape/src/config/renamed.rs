//! Settings that were renamed. The old keys are still accepted in files, variables and `--set`.

/// Old and new keys.
pub(super) const RENAMED: &[(&str, &str)] = if cfg!(feature = "services") {
    &[
        ("frontend.allow_kubeconfig", "clusters.allow_kubeconfig"),
        ("frontend.locations", "clusters.locations"),
        ("frontend.zone", "clusters.zone"),
    ]
} else {
    &[]
};

/// The new key of an old one.
pub(super) fn current(key: &str) -> Option<&'static str> {
    RENAMED.iter().find(|(old, _)| *old == key).map(|(_, current)| *current)
}
