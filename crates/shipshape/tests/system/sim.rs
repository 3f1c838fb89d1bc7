//! Simulated clusters, run alone and spoken to.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::kube::TestClusterOptions;
use testkit::{kube, prerequisites, wait_until};

use super::executable::{CommandOutput, Home};

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
fn a_cluster_without_nodes_and_controllers_is_as_a_bare_api_server() {
    let Some(real) = kube::private(TestClusterOptions::default()) else {
        return prerequisites::skip(prerequisites::KUBERNETES, kube::MISSING);
    };
    let home = Home::new();
    let sim = home.sim(&["--clusters", "1", "--nodes", "0", "--controllers=false"]);
    assert!(
        sim.banner.starts_with("1 simulated cluster without nodes, without controllers\n"),
        "{}",
        sim.banner
    );
    let simulated = home.directory.path().join(".local/share/shipshape/sim/sim-1/kubeconfig");
    for line in [
        "get nodes",
        "create namespace team",
        // Without controllers of the real server nobody creates this one, without which no pod is accepted.
        "create serviceaccount other -n team",
        "create deployment web -n team --image=registry.example/web:1 --replicas=2",
        "create cronjob tick -n team --image=registry.example/job:1 --schedule=@hourly",
        "create job now -n team --from=cronjob/tick",
        "get replicasets,pods -n team",
        "get deployment web -n team -o jsonpath={.spec.replicas}{.status}",
        "get events -n team",
        // Nobody deletes dependents, which foreground deletion waits for, and nobody empties a namespace.
        "delete deployment web -n team --cascade=foreground --wait=false",
        "get deployment web -n team -o jsonpath={.metadata.finalizers}",
        "delete namespace team --wait=false",
        "get namespace team -o jsonpath={.status.phase}{.spec.finalizers}",
    ] {
        let type_in = |kubeconfig: &Path| {
            let mut kubectl = real.kubectl();
            kubectl.env("KUBECONFIG", kubeconfig).args(line.split(' '));
            let output = CommandOutput::new(kubectl.output().unwrap());
            (output.code, output.stdout, output.stderr)
        };
        assert_eq!(
            type_in(&real.kubeconfig_path()),
            type_in(&simulated),
            "{line}, on kube-apiserver (left) and on kubesim (right)"
        );
    }
    sim.signal("TERM");
    assert_eq!(sim.end().code, Some(0));
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

/// The metadata service of an instance in Google's cloud, which is preempted when the flag is set.
fn metadata_service() -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let preempted = Arc::new(AtomicBool::new(false));
    let is_preempted = preempted.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap();
            let known = head[..read].starts_with(b"GET /computeMetadata/v1/instance/preempted ");
            let text = if is_preempted.load(Ordering::SeqCst) { "TRUE" } else { "FALSE" };
            let (status, body) = if known { ("200 OK", text) } else { ("404 Not Found", "") };
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
        }
    });
    (address, preempted)
}

#[test]
fn a_termination_handler_reports_the_end_of_its_instance_on_its_node() {
    let Some(kubectl) = kube::kubectl().unwrap() else {
        prerequisites::skip(prerequisites::KUBERNETES, kube::MISSING);
        return;
    };
    let home = Home::new();
    let sim = home.sim(&["--clusters", "1", "--nodes", "1"]);
    let kubeconfig = sim.banner.split("export KUBECONFIG=").nth(1).and_then(|it| it.lines().next()).unwrap();
    let (address, preempted) = metadata_service();
    let flags =
        ["--kubeconfig", kubeconfig, "--cloud-provider", "gcp", "--metadata-address", address.as_str()];
    let handler = home.termination_handler("worker-1", &flags);
    assert!(
        handler.banner.contains(&format!("  node     worker-1\n  metadata {address}\n")),
        "{}",
        handler.banner
    );
    wait_until("the metadata are read", Duration::from_secs(30), || {
        (handler.get("/readyz").0 == 200).then_some(())
    })
    .unwrap();
    let terminating = || {
        let path = "jsonpath={.status.conditions[?(@.type==\"Terminating\")].reason}";
        let mut command = std::process::Command::new(&kubectl);
        let output =
            command.args(["--kubeconfig", kubeconfig, "get", "node", "worker-1", "-o", path]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    assert_eq!(terminating(), "");
    preempted.store(true, Ordering::SeqCst);
    wait_until("the node has its condition", Duration::from_secs(30), || {
        (terminating() == "TerminationRequested").then_some(())
    })
    .unwrap();
    handler.signal("TERM");
    let answer = handler.end();
    assert_eq!(answer.code, Some(0), "{answer:?}");

    // Nothing else is at this address, so the process ends; a DaemonSet would start it again.
    let flags =
        ["--kubeconfig", kubeconfig, "--cloud-provider", "aws", "--metadata-address", address.as_str()];
    let answer = home.termination_handler("worker-1", &flags).end();
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(
        answer
            .stderr
            .contains("/latest/api/token were answered with 404 Not Found; expected 200 with a token"),
        "{answer:?}"
    );
    sim.signal("TERM");
    assert_eq!(sim.end().code, Some(0));
}
