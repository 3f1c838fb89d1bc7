//! Simulated clusters, run alone and spoken to.

use std::os::unix::fs::PermissionsExt as _;

use super::executable::Home;

#[test]
fn sim_starts_lists_its_clusters_injects_faults_and_shuts_down_cleanly() {
    let home = Home::new();
    let sim = home.sim(&["--clusters", "2", "--nodes", "3"]);
    assert!(sim.banner.starts_with("2 simulated clusters with 3 nodes each\n"), "{}", sim.banner);
    let kubeconfigs = sim.banner.split("export KUBECONFIG=").nth(1).and_then(|it| it.lines().next()).unwrap();
    assert_eq!(kubeconfigs.split(':').count(), 2, "{kubeconfigs}");
    for path in kubeconfigs.split(':') {
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    let listed = home.run(&["sim", "list"]);
    let names: Vec<&str> = listed.stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["NAME", "sim-1", "sim-2"], "{listed:?}");
    assert_eq!(home.run(&["sim", "fault", "sim-2", "latency=2s"]).stdout, "sim-2: latency=2000ms\n");
    assert!(home.run(&["sim", "list"]).stdout.contains("latency=2000ms"));
    assert_eq!(home.run(&["sim", "fault", "sim-2", "none"]).stdout, "sim-2: none\n");
    assert!(!home.run(&["sim", "list"]).stdout.contains("latency"));

    let second = home.run(&["sim"]);
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(second.stderr.contains("another simulation uses this directory"), "{second:?}");
    sim.signal("TERM");
    let answer = sim.end();
    assert_eq!(answer.code, Some(0), "{answer:?}");
}

#[test]
fn invalid_commands_to_a_simulation_are_reported_in_one_sentence() {
    let home = Home::new();
    let nobody = home.run(&["sim", "list"]);
    assert_eq!(nobody.code, Some(1), "{nobody:?}");
    assert!(nobody.stderr.starts_with("error: no simulation runs in "), "{nobody:?}");
    let wrong = home.run(&["sim", "fault", "sim-1", "501"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("\"501\" is not a fault; accepted: latency=DURATION"), "{wrong:?}");
    let none = home.run(&["sim", "--clusters", "0"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.stderr.contains("0 is not in 1..=1000"), "{none:?}");
    let sim = home.sim(&["--clusters", "1", "--nodes", "1"]);
    let unknown = home.run(&["sim", "fault", "sim-9", "reset"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert_eq!(unknown.stderr, "error: cluster \"sim-9\" not found; clusters: sim-1\n");
    sim.signal("INT");
    assert_eq!(sim.end().code, Some(0));
}

#[test]
fn a_killed_simulation_continues_after_a_restart() {
    let home = Home::new();
    let sim = home.sim(&["--clusters", "1", "--nodes", "1"]);
    let url =
        |banner: &str| banner.split_whitespace().find(|it| it.starts_with("https://")).unwrap().to_owned();
    let first = url(&sim.banner);
    sim.signal("KILL");
    sim.end();
    let again = home.sim(&["--clusters", "1", "--nodes", "1"]);
    assert_eq!(url(&again.banner), first);
    again.signal("TERM");
    assert_eq!(again.end().code, Some(0));
}
