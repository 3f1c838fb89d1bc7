//! The one way our services talk to a cluster: a client from a kubeconfig, and verbs that are safe to repeat, can be
//! cancelled at any await and leave a usable state.
