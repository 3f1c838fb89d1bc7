//! Settings that have another key than before. The old keys are still accepted, in files, variables and `--set`.

/// Old keys and the keys that took their place.
pub(super) const RENAMED: &[(&str, &str)] = if cfg!(feature = "services") {
    &[
        ("frontend.allow_kubeconfig", "clusters.allow_kubeconfig"),
        ("frontend.locations", "clusters.locations"),
        ("frontend.zone", "clusters.zone"),
    ]
} else {
    &[]
};

/// The key that took the place of `key`, if it is an old one.
pub(super) fn current(key: &str) -> Option<&'static str> {
    RENAMED.iter().find(|(old, _)| *old == key).map(|(_, current)| *current)
}
