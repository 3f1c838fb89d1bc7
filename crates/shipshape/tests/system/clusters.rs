//! Clusters from nothing, as their customers meet them: by the command line and by the public SDK, on the simulated cloud.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;
use testkit::{azure_sdk, kube, prerequisites, wait_until};

use super::executable::{CommandOutput, Home};
use super::maintenance::{done, json, repository};
use super::pages::type_into_shell;

/// Far longer than a cluster takes on a busy machine at this pace.
const PATIENCE: Duration = Duration::from_secs(300);

/// Operations of the simulated cloud take no time here, and clients may poll at once.
const AT_ONCE: [&str; 4] = ["--set", "cloud.pace=0", "--set", "frontend.retry_after_seconds=1"];

/// The only line of standard error of a command that fails.
fn refused(home: &Home, arguments: &[&str]) -> String {
    let answer = home.run(arguments);
    assert_eq!(answer.code, Some(1), "{arguments:?}: {answer:?}");
    let said: Vec<&str> = answer.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(said.len(), 1, "{arguments:?}: {answer:?}");
    said[0].trim_start_matches("error: ").to_owned()
}

fn state(home: &Home, cluster: &str) -> String {
    let shown = json(home, &["cluster", "show", cluster]);
    shown["properties"]["provisioningState"].as_str().unwrap().to_owned()
}

fn wait_until_created(home: &Home, cluster: &str) {
    wait_until(&format!("cluster {cluster} is created"), PATIENCE, || {
        let state = state(home, cluster);
        assert_ne!(state, "Failed", "{:#}", json(home, &["cluster", "show", cluster]));
        (state == "Succeeded").then_some(())
    })
    .unwrap();
}

#[test]
fn a_cluster_is_created_updated_accessed_and_deleted() {
    let home = Home::new();
    let _up = home.up(&AT_ONCE);
    let made = home.run(&["cluster", "create", "harbour", "--tag", "env=test", "--wait"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert_eq!(made.stdout, "cluster/harbour created\n", "{made:?}");
    assert!(
        made.stderr.contains("using resources of the simulated cloud: network /subscriptions/"),
        "{made:?}"
    );
    assert!(made.stderr.contains("harbour  step "), "its steps are printed: {made:?}");
    let shown = json(&home, &["cluster", "show", "harbour"]);
    assert_eq!(shown["properties"]["provisioningState"], "Succeeded", "{shown:#}");
    assert_eq!(shown["resource"]["tags"]["env"], "test", "{shown:#}");
    let listed = done(&home, &["cluster", "list"]);
    let version = shown["properties"]["clusterProfile"]["version"].as_str().unwrap();
    assert!(listed.contains("harbour") && listed.contains(version), "{listed}");
    wait_until("the cluster is known to answer", PATIENCE, || {
        let shown = json(&home, &["cluster", "show", "harbour"]);
        (shown["properties"]["reachability"]["reachable"] == true).then_some(())
    })
    .unwrap();
    let again = refused(&home, &["cluster", "create", "harbour"]);
    assert!(again.starts_with("cluster harbour already exists in state Succeeded;"), "{again}");

    let user = json(&home, &["cluster", "credentials", "harbour"]);
    assert_eq!(user["kubeadminUsername"], "kubeadmin");
    let named = done(&home, &["cluster", "credentials", "harbour", "-o", "name"]);
    assert_eq!(named, "cluster/harbour\n", "a name is no secret");
    let said = refused(&home, &["cluster", "kubeconfig", "harbour", "-o", "yaml"]);
    assert!(said.starts_with("-o names a file here, and yaml is an output format; "), "{said}");
    assert!(!home.directory.path().join("yaml").exists(), "no key is in a file that nobody meant");
    let file = home.directory.path().join("harbour.kubeconfig");
    done(&home, &["cluster", "kubeconfig", "harbour", "-o", file.to_str().unwrap()]);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    done(&home, &["cluster", "kubeconfig", "harbour", "--merge"]);
    let merged = std::fs::read_to_string(home.directory.path().join(".kube/config")).unwrap();
    assert!(merged.contains("current-context: harbour"), "{merged}");

    let machines = done(&home, &["cloud", "machine", "list"]);
    let worker = machines.split_whitespace().find(|it| it.contains("-worker-")).expect(&machines);
    assert_eq!(done(&home, &["cloud", "machine", "impair", worker]), format!("machine/{worker} impaired\n"));
    assert_eq!(
        done(&home, &["cloud", "machine", "recover", worker]),
        format!("machine/{worker} recovered\n")
    );
    let said = refused(&home, &["cloud", "machine", "interrupt", worker]);
    assert!(said.ends_with("its priority is Regular; only Spot machines are interrupted"), "{said}");
    let said = refused(&home, &["cloud", "machine", "impair", "nothing"]);
    assert!(
        said.starts_with("virtual machine \"nothing\" not found; run `shipshape cloud machine list`"),
        "{said}"
    );

    // A task for clusters that we made, with the certificates of the cloud's own vault.
    let rotated = home.run(&["task", "run", "rotate-certificates", "--cluster", "harbour", "--wait"]);
    assert_eq!(rotated.code, Some(0), "{rotated:?}");
    assert!(rotated.stderr.contains("step configure-ingress done"), "its steps are printed: {rotated:?}");

    let updated = home.run(&["cluster", "update", "harbour", "--tag", "env-", "--tag", "tier=web", "--wait"]);
    assert_eq!(
        (updated.code, updated.stdout.as_str()),
        (Some(0), "cluster/harbour updated\n"),
        "{updated:?}"
    );
    let shown = json(&home, &["cluster", "show", "harbour"]);
    assert_eq!(shown["resource"]["tags"], serde_json::json!({ "tier": "web" }), "{shown:#}");

    let deleted = home.run(&["cluster", "delete", "harbour", "--yes", "--wait"]);
    assert_eq!(
        (deleted.code, deleted.stdout.as_str()),
        (Some(0), "cluster/harbour deleted\n"),
        "{deleted:?}"
    );
    let gone = refused(&home, &["cluster", "show", "harbour"]);
    assert!(gone.starts_with("cluster \"harbour\" not found"), "{gone}");
    // What was brought stays its owner's; what was made is gone.
    assert!(done(&home, &["cloud", "network", "list"]).contains("harbour-vnet"));
    assert!(!done(&home, &["cloud", "group", "list"]).contains("harbour-managed"));
}

#[test]
fn showing_a_cluster_includes_progress_and_error_of_its_operation() {
    let home = Home::new();
    let _up = home.up(&AT_ONCE);
    let described = |cluster: &str, wanted: &str| {
        wait_until(&format!("cluster {cluster} is shown with {wanted:?}"), PATIENCE, || {
            let shown = done(&home, &["cluster", "show", cluster]);
            shown.contains(wanted).then_some(shown)
        })
        .unwrap()
    };
    let id = |shown: &str| {
        let line = shown.lines().find_map(|line| line.strip_prefix("Operation:")).expect(shown);
        line.split(',').next().unwrap().trim().to_owned()
    };

    done(&home, &["cloud", "fault", "set", "throttled=1", "--verb", "put", "--about", "harbour-managed"]);
    done(&home, &["cluster", "create", "harbour"]);
    let shown = described("harbour", ", Create, Creating, started ");
    let operation = id(&shown);
    // It goes on until the cloud holds it up, so both looks agree only then for certain.
    wait_until("the cluster is shown with the step of its operation", PATIENCE, || {
        let now = json(&home, &["operation", "show", &operation])["properties"].clone();
        let step = format!(" {}, {}% done", now["step"].as_str()?, now["percent"]);
        (!now["step"].as_str()?.is_empty() && done(&home, &["cluster", "show", "harbour"]).contains(&step))
            .then_some(())
    })
    .unwrap();
    let plain = json(&home, &["cluster", "show", "harbour"]);
    assert!(!plain.to_string().contains(&operation), "programs get the cluster as it is: {plain:#}");

    done(&home, &["cloud", "fault", "set", "quota=cores", "--verb", "put", "--about", "quay-managed"]);
    done(&home, &["cluster", "create", "quay"]);
    let shown = described("quay", ", Create, Failed, finished ");
    let operation = json(&home, &["operation", "show", &id(&shown)]);
    let code = operation["error"]["code"].as_str().unwrap();
    let message = operation["error"]["message"].as_str().unwrap().trim_end_matches('.');
    assert!(shown.contains(&format!("{message} ({code}")), "{operation:#} in {shown}");

    done(&home, &["cloud", "fault", "clear"]);
    let deleted = done(&home, &["cluster", "delete", "quay", "--yes", "-o", "name"]);
    assert_eq!(deleted, "cluster/quay\n", "as other commands take it");
}

/// A client that got no response requests the cluster again; it is created once, whenever the server died.
#[test]
fn a_create_request_without_a_response_is_repeated_and_creates_one_cluster() {
    let home = Home::new();
    for (at, pause) in [5, 45, 55, 65, 75, 85, 100, 200].into_iter().enumerate() {
        let name = format!("boat-{at}");
        let up = home.up(&AT_ONCE);
        let asking = home
            .shipshape(&["cluster", "create", &name])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A moment of no meaning: before the request, in its middle, or after its answer.
        let (_nobody, moment) = mpsc::channel::<()>();
        let _ = moment.recv_timeout(Duration::from_millis(pause));
        up.signal("KILL");
        drop(up);
        let asked = asking.wait_with_output().unwrap();
        let was_answered = String::from_utf8(asked.stdout).unwrap().contains("created");

        let up = home.up(&AT_ONCE);
        let again = home.run(&["cluster", "create", &name]);
        let exists = again.stderr.contains("already exists in state ");
        assert!(again.code == Some(0) || exists, "{again:?}");
        assert!(exists || !was_answered, "an answered creation is there: {again:?}");
        assert!(["Creating", "Succeeded"].contains(&state(&home, &name).as_str()), "{again:?}");
        let named = format!("cluster/{name}");
        let listed = done(&home, &["cluster", "list", "-o", "name"]);
        assert_eq!(listed.lines().filter(|line| *line == named).count(), 1, "{listed}");
        up.signal("TERM");
        assert_eq!(up.end().code, Some(0));
        assert_eq!(home.run(&["store", "check"]).code, Some(0));
    }
}

/// The walk-through of the README, with the programs that it calls on its way; none when one of them is missing here.
fn walk_through() -> Option<(String, Vec<PathBuf>)> {
    let Some(python) = azure_sdk::python() else {
        prerequisites::skip(prerequisites::AZURE_SDK, azure_sdk::MISSING);
        return None;
    };
    let Some(kubectl) = kube::kubectl().unwrap() else {
        prerequisites::skip(prerequisites::KUBERNETES, kube::MISSING);
        return None;
    };
    let script = std::fs::read_to_string(repository().join("docs/walk-through/a-cluster-from-nothing.sh"));
    Some((script.unwrap(), vec![python, kubectl]))
}

#[test]
fn the_walk_through_from_nothing_works_as_printed() {
    let Some((script, programs)) = walk_through() else { return };
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    // What is printed there is what is tried here.
    let (_, marked) = readme.split_once("<!-- from nothing begins -->").unwrap();
    assert!(marked.starts_with(&format!("\n```sh\n{script}```\n<!-- from nothing ends -->")), "{marked}");
    let home = Home::new();
    let _up = home.up(&AT_ONCE);
    // The SDK is installed already, and files are written beside the walker, not into the repository.
    let script: String =
        script.lines().filter(|it| !it.starts_with("pip ")).flat_map(|it| [it, "\n"]).collect();
    let place = home.directory.path().join("walk");
    std::fs::create_dir(&place).unwrap();
    std::os::unix::fs::symlink(repository().join("examples"), place.join("examples")).unwrap();
    let answer = type_into_shell(&home, &script, &place, &programs);
    answer.shows(&[
        "cluster/harbour created",
        "clusterversion.config.openshift.io/version",
        "clusteroperator.config.openshift.io/console",
        "cluster/harbour updated",
        "Completed",
        "cluster/harbour deleted",
        "gone True",
    ]);
    let printed = answer.stdout.split("cluster/harbour deleted").nth(1).unwrap();
    assert!(!printed.split("making quay").next().unwrap().contains("harbour-managed"), "{printed}");
    assert!(answer.stderr.contains("harbour  step "), "its steps are printed: {}", answer.stderr);
}

#[test]
fn a_waiting_client_may_be_killed_and_the_operation_continues() {
    let home = Home::new();
    let _up = home.up(&["--set", "cloud.pace=0.005", "--set", "frontend.retry_after_seconds=1"]);
    let mut waiting = home.shipshape(&["cluster", "create", "harbour", "--wait"]);
    let mut waiting = waiting.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the cluster is being made", PATIENCE, || {
        let clusters = json(&home, &["cluster", "list"]);
        clusters.as_array().is_some_and(|it| !it.is_empty()).then_some(())
    })
    .unwrap();
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    wait_until_created(&home, "harbour");

    // A client that is stopped with Ctrl-C prints how to follow the operation. The cloud removes nothing meanwhile.
    done(&home, &["cloud", "fault", "set", "throttled=1", "--verb", "delete"]);
    let mut deleting = home.shipshape(&["cluster", "delete", "harbour", "--yes", "--wait"]);
    let deleting = deleting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the cluster is being removed", PATIENCE, || {
        (state(&home, "harbour") == "Deleting").then_some(())
    })
    .unwrap();
    let sent = Command::new("kill").args(["-s", "INT", &deleting.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let answer = CommandOutput::new(deleting.wait_with_output().unwrap());
    assert_eq!(answer.code, Some(130), "{answer:?}");
    let (_, rest) = answer.stderr.split_once("`shipshape operation show ").expect(&answer.stderr);
    let operation = rest.split_whitespace().next().unwrap().to_owned();
    done(&home, &["cloud", "fault", "clear"]);
    let followed = home.run(&["operation", "show", &operation, "--wait"]);
    assert_eq!(followed.code, Some(0), "{followed:?}");
    assert!(followed.stdout.contains("Succeeded"), "{followed:?}");
}

#[test]
fn errors_name_the_accepted_values() {
    let home = Home::new();
    let _up = home.up(&AT_ONCE);
    let check = |arguments: &[&str], words: &[&str]| {
        let said = refused(&home, arguments);
        for word in words {
            assert!(said.contains(word), "{arguments:?}: {said}");
        }
    };
    check(&["cluster", "create", "a b"], &["\"a b\" is not a valid cluster name"]);
    check(
        &["cluster", "create", "harbour", "--version", "1.2.3"],
        &["cluster harbour", "version", "`shipshape version list`"],
    );
    check(&["cluster", "create", "harbour", "--location", "elsewhere"], &["elsewhere"]);
    check(&["cluster", "create", "harbour", "--worker-count", "1"], &["count"]);
    check(
        &["cluster", "create", "harbour", "--dry-run", "--worker-count", "99"],
        &["would be rejected", "count"],
    );
    check(&["cluster", "update", "harbour", "--reconcile"], &["cluster \"harbour\" not found"]);
    check(&["cluster", "delete", "harbour", "--yes"], &["cluster \"harbour\" not found"]);
    check(&["operation", "show", "x"], &["\"x\" is not the id of an operation"]);
    let nobody = uuid();
    check(
        &["operation", "show", &nobody],
        &["not found in the subscriptions", "--subscription and --location"],
    );
    check(&["cloud", "principal", "show", "nobody"], &["`shipshape cloud principal list`"]);

    let dry = home.run(&["cluster", "create", "harbour", "--dry-run"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert!(
        dry.stdout.contains("\"clientSecret\": \"***\"") && dry.stderr.contains("nothing was created"),
        "{dry:?}"
    );
    assert_eq!(json(&home, &["cluster", "list"]), serde_json::json!([]), "nothing was created");

    // In a home of its own: a simulated cloud belongs to one process.
    let other = Home::new();
    let _sim = other.sim(&["--clusters", "1", "--nodes", "1"]);
    let kubeconfig = other.directory.path().join(".local/share/shipshape/sim/sim-1/kubeconfig");
    done(&home, &["cluster", "import", "quay", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    check(&["cluster", "delete", "quay", "--yes"], &["was imported", "`shipshape cluster forget quay`"]);
    check(&["cluster", "update", "quay", "--reconcile"], &["was imported"]);
    check(&["cluster", "kubeconfig", "quay"], &["was imported"]);
    check(&["cluster", "credentials", "quay"], &["was imported"]);
}

fn uuid() -> String {
    "00000000-0000-0000-0000-00000000abcd".to_owned()
}

#[test]
fn resources_of_a_customer_are_created_shown_and_deleted_in_the_simulated_cloud() {
    let home = Home::new();
    let _up = home.up(&AT_ONCE);
    let brought = json(&home, &["cloud", "prepare", "harbour"]);
    let secret = brought["clientSecretFile"].as_str().unwrap();
    assert_eq!(std::fs::metadata(secret).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(json(&home, &["cloud", "prepare", "harbour"]), brought, "said again, it changes nothing");
    let subnets = json(&home, &["cloud", "subnet", "list"]);
    assert_eq!(subnets.as_array().unwrap().len(), 2, "{subnets:#}");
    assert!(done(&home, &["cloud", "principal", "list"]).contains(brought["clientId"].as_str().unwrap()));
    done(&home, &["cloud", "group", "create", "other"]);
    done(&home, &["cloud", "network", "create", "net", "-g", "other"]);
    done(
        &home,
        &["cloud", "subnet", "create", "one", "-g", "other", "--network", "net", "--prefix", "10.0.0.0/24"],
    );
    assert!(done(&home, &["cloud", "resources", "--group", "other"]).contains("10.0.0.0/24"));
    done(&home, &["cloud", "group", "delete", "other", "--yes"]);
    wait_until("the group is gone", PATIENCE, || {
        (!done(&home, &["cloud", "group", "list", "-o", "name"]).contains("resource/other")).then_some(())
    })
    .unwrap();
    done(&home, &["cloud", "fault", "set", "throttled=1", "--verb", "put", "--times", "3"]);
    assert!(done(&home, &["cloud", "fault", "list"]).contains("throttled for 1 s"));
    done(&home, &["cloud", "fault", "clear"]);
    assert_eq!(json(&home, &["cloud", "fault", "list"]), serde_json::json!([]));
    assert_eq!(json(&home, &["cloud", "certificates"]), serde_json::json!([]));
}

#[test]
fn versions_are_listed_and_set() {
    let home = Home::new();
    let _up = home.up(&AT_ONCE);
    let listed = json(&home, &["version", "list"]);
    let known = listed.as_array().unwrap();
    let default = known.iter().find(|it| it["properties"]["default"] == true).expect("one is the default");
    let default = default["properties"]["version"].as_str().unwrap().to_owned();
    let set =
        ["version", "set", "4.20.9", "--pullspec", "example.test/release:4.20.9", "--installer-pullspec"];
    let set = [&set[..], &["example.test/installer:4.20.9", "--default"]].concat();
    assert_eq!(done(&home, &set), "version/4.20.9 created\n");
    let listed = json(&home, &["version", "list"]);
    let defaults: Vec<&Value> =
        listed.as_array().unwrap().iter().filter(|it| it["properties"]["default"] == true).collect();
    assert_eq!(defaults.len(), 1, "{listed:#}");
    assert_eq!(defaults[0]["properties"]["version"], "4.20.9");
    assert_eq!(
        done(&home, &["version", "set", &default, "--disable"]),
        format!("version/{default} changed\n")
    );
    let said = refused(&home, &["version", "set", "4.20.9", "--disable"]);
    assert!(said.contains("4.20.9"), "{said}");
    assert!(done(&home, &["version"]).starts_with("shipshape "), "alone it still tells the executable's own");
}

#[test]
fn the_public_sdk_makes_changes_and_removes_a_cluster() {
    let Some(python) = azure_sdk::python() else {
        return prerequisites::skip(prerequisites::AZURE_SDK, azure_sdk::MISSING);
    };
    let home = Home::new();
    let _up = home.up(&AT_ONCE);
    let brought = home.directory.path().join("quay.json");
    std::fs::write(&brought, done(&home, &["cloud", "prepare", "quay", "-o", "json"])).unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python/cluster.py");
    let mut script = Command::new(python);
    script.arg("-B").arg(example).arg("quay").arg(&brought).env("HOME", home.directory.path());
    let answer = CommandOutput::new(script.output().unwrap());
    assert_eq!(answer.code, Some(0), "{}\n{}", answer.stdout, answer.stderr);
    for line in [
        "openShiftClusters/quay ProvisioningState.SUCCEEDED",
        "listed ['quay']",
        "in the subscription ['quay']",
        "user kubeadmin",
        "tags {'env': 'test'}",
        "gone True",
    ] {
        assert!(answer.stdout.contains(line), "{line} in {}\n{}", answer.stdout, answer.stderr);
    }
}
