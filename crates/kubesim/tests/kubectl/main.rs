//! Everyday kubectl, the real one, on both servers: each scenario is a list of command lines, and what they print must be
//! the same after names, times, uids and addresses are made alike.

#![expect(clippy::unwrap_used, reason = "all of this is a test")]

use testkit::{kube, prerequisites};

mod scenarios;
mod servers;
mod words;

use servers::{Kubectl, Servers};

/// Holds a scenario with both servers and compares what was printed.
fn compare(scenario: impl Fn(&mut Kubectl)) {
    let Some(servers) = Servers::shared() else {
        return prerequisites::skip(prerequisites::KUBERNETES, kube::MISSING);
    };
    let mut real = servers.real();
    scenario(&mut real);
    let mut sim = servers.sim();
    scenario(&mut sim);
    for (ours, theirs) in real.said.iter().zip(&sim.said) {
        assert_eq!(ours, theirs, "on kube-apiserver (left) and on kubesim (right)");
    }
    assert_eq!(real.said.len(), sim.said.len());
}
