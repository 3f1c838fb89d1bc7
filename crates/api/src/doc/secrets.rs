//! The names of the secrets that are sealed beside a cluster's document.

/// The kubeconfig by which our own services reach it.
pub const KUBECONFIG: &str = "kubeconfig";
/// The kubeconfig that its customer is given.
pub const CUSTOMER_KUBECONFIG: &str = "customer-kubeconfig";
/// The password of the user `kubeadmin`.
pub const KUBEADMIN_PASSWORD: &str = "kubeadmin-password";
/// The customer's pull secret.
pub const PULL_SECRET: &str = "pull-secret";
/// The secret of its service principal.
pub const CLIENT_SECRET: &str = "client-secret";
/// The private key by which its machines are reached.
pub const SSH_KEY: &str = "ssh-key";
/// The password of its registry token.
pub const REGISTRY_PASSWORD: &str = "registry-password";
/// The key by which its service accounts' tokens are signed; only with workload identity.
pub const BOUND_SIGNING_KEY: &str = "bound-signing-key";
