//! Carries out what customers ask of their clusters, step by step, under the lease of the cluster.
