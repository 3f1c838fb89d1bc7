//! The names of the secrets that are sealed beside a cluster's document.

/// Kubeconfig of our own services.
pub const KUBECONFIG: &str = "kubeconfig";
/// Kubeconfig of the customer.
pub const CUSTOMER_KUBECONFIG: &str = "customer-kubeconfig";
/// The password of the user `kubeadmin`.
pub const KUBEADMIN_PASSWORD: &str = "kubeadmin-password";
/// The customer's pull secret.
pub const PULL_SECRET: &str = "pull-secret";
/// The secret of its service principal.
pub const CLIENT_SECRET: &str = "client-secret";
/// Private SSH key of its machines.
pub const SSH_KEY: &str = "ssh-key";
/// The password of its registry token.
pub const REGISTRY_PASSWORD: &str = "registry-password";
/// Signing key of its service accounts' tokens; only with workload identity.
pub const BOUND_SIGNING_KEY: &str = "bound-signing-key";
