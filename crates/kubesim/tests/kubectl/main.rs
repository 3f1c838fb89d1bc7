//! Everyday scenarios with the real kubectl on both servers: each is a list of command lines whose output must be the
//! same after names, times, uids and addresses are normalized.

#![expect(clippy::unwrap_used, reason = "all of this is a test")]

use testkit::{kube, prerequisites};

mod normalize;
mod scenarios;
mod servers;
mod workloads;

use servers::{Kubectl, Servers};

/// Runs a scenario on both servers and compares the output.
fn compare(scenario: impl Fn(&mut Kubectl)) {
    let Some(servers) = Servers::shared() else {
        return prerequisites::skip(prerequisites::KUBERNETES, kube::MISSING);
    };
    let mut real = servers.real();
    scenario(&mut real);
    let mut sim = servers.sim();
    scenario(&mut sim);
    expect_same(&real, &sim);
}

/// The same for a scenario that waits for a time: it runs on both servers at once.
fn compare_at_once(scenario: impl Fn(&mut Kubectl) + Sync) {
    let Some(servers) = Servers::shared() else {
        return prerequisites::skip(prerequisites::KUBERNETES, kube::MISSING);
    };
    let (mut real, mut sim) = (servers.real(), servers.sim());
    std::thread::scope(|both| {
        both.spawn(|| scenario(&mut real));
        both.spawn(|| scenario(&mut sim));
    });
    expect_same(&real, &sim);
}

fn expect_same(real: &Kubectl, sim: &Kubectl) {
    for (ours, theirs) in real.said.iter().zip(&sim.said) {
        assert_eq!(ours, theirs, "on kube-apiserver (left) and on kubesim (right)");
    }
    assert_eq!(real.said.len(), sim.said.len());
}
