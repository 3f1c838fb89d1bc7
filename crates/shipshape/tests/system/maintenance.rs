//! Maintenance as an operator meets it: the walk-through, on simulated clusters and on a real one, with the
//! process killed in the middle of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use testkit::{kube, postgres, prerequisites, wait_until};

use super::executable::{CommandOutput, Home};
use super::pages::{commands, type_into_shell};

/// Far longer than any step here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A lease of a killed process runs out after a minute; only then is its work taken over.
const TAKEOVER: Duration = Duration::from_secs(240);

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub(crate) fn walk_through(name: &str) -> String {
    repository().join("docs/walk-through").join(name).display().to_string()
}

/// The standard output of a command that succeeds.
pub(crate) fn done(home: &Home, arguments: &[&str]) -> String {
    let answer = home.run(arguments);
    assert_eq!(answer.code, Some(0), "{arguments:?}: {answer:?}");
    answer.stdout
}

/// The JSON output of a command that succeeds.
pub(crate) fn json(home: &Home, arguments: &[&str]) -> Value {
    serde_json::from_str(&done(home, &[arguments, &["-o", "json"]].concat())).unwrap()
}

/// The only line of standard error of a command that fails.
fn rejected(home: &Home, arguments: &[&str]) -> String {
    let answer = home.run(arguments);
    assert_eq!(answer.code, Some(1), "{arguments:?}: {answer:?}");
    assert_eq!(answer.stderr.lines().count(), 1, "{arguments:?}: {answer:?}");
    answer.stderr.trim_start_matches("error: ").trim_end().to_owned()
}

/// Waits until a manifest is in the step of that name.
fn until_in_step(home: &Home, manifest: &str, step: &str) {
    wait_until(&format!("the manifest is in step {step}"), PATIENCE, || {
        let form = json(home, &["manifest", "show", manifest]);
        assert_ne!(form["phase"], "finished", "{form:#}");
        (form["step"]["name"] == step && form["phase"] == "running").then_some(())
    })
    .unwrap();
}

pub(crate) fn import_sim(home: &Home, name: &str, number: u16) {
    let kubeconfig =
        home.directory.path().join(format!(".local/share/shipshape/sim/sim-{number}/kubeconfig"));
    let imported = done(
        home,
        &["cluster", "import", name, "--kubeconfig", kubeconfig.to_str().unwrap(), "--label", "env=test"],
    );
    assert_eq!(imported, format!("cluster/{name} imported\n"));
}

/// The commands of the walk-through, as one script.
fn walk_through_script() -> String {
    commands("maintenance.md", "walk-through")
}

/// Types a script into a shell, and looks whether it showed what the walk-through is to show.
fn walk(home: &Home, script: &str) {
    let answer = type_into_shell(home, script, &repository(), &[]);
    answer.shows(&[
        "cluster/harbour imported",
        "task/cordon-node created",
        "Completed",
        "NotDue",
        "Cancelled",
    ]);
    for line in ["step cordon started", "step pause done", "step cordon undone"] {
        assert!(answer.stderr.contains(line), "{line} in {}", answer.stderr);
    }
    let plan = json(home, &["plan", "--for", "14d"]);
    let planned = plan["entries"].as_array().unwrap();
    let of_schedule = planned.iter().filter(|entry| entry["schedule"] == "cordon-node-on-saturdays");
    assert!(of_schedule.count() >= 1, "there is a Saturday in two weeks: {plan:#}");
}

#[test]
fn the_maintenance_walk_through_works_as_printed() {
    let home = Home::new();
    let _sim = home.sim(&["--clusters", "2", "--nodes", "4"]);
    let up = home.up(&[]);
    walk(&home, &walk_through_script());
    up.signal("TERM");
    let ended = up.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn a_killed_process_continues_with_its_current_step() {
    let home = Home::new();
    let _sim = home.sim(&["--clusters", "1", "--nodes", "3"]);
    let up = home.up(&[]);
    import_sim(&home, "harbour", 1);
    done(&home, &["task", "apply", "-f", &walk_through("cordon-node.yaml")]);
    let run = ["task", "run", "cordon-node", "--cluster", "harbour", "-p", "node=worker-1", "-p", "pause=3s"];
    let manifest = done(&home, &[&run[..], &["-o", "name"]].concat());
    let manifest = manifest.trim();
    until_in_step(&home, manifest, "pause");
    up.signal("KILL");
    up.end();

    let again = home.up(&[]);
    let ended = wait_until("the manifest has ended", TAKEOVER, || {
        let form = json(&home, &["manifest", "show", manifest]);
        (form["phase"] == "finished").then_some(form)
    })
    .unwrap();
    assert_eq!(ended["state"], "Completed", "{ended:#}");
    assert_eq!(ended["attempt"], 2, "the attempt of the lost worker counts");
    let history = json(&home, &["manifest", "history", manifest]);
    let events: Vec<(&str, &str)> = history
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["event"].as_str().unwrap(), entry["step"].as_str().unwrap_or_default()))
        .collect();
    let count = |event: &str, step: &str| events.iter().filter(|it| **it == (event, step)).count();
    assert_eq!(count("takenOver", ""), 1, "{events:?}");
    assert_eq!(count("stepFinished", "cordon"), 1, "what was done is not done again: {events:?}");
    assert_eq!(count("stepFinished", "pause"), 1, "{events:?}");
    again.signal("TERM");
    assert_eq!(again.end().code, Some(0));
}

#[test]
fn the_walk_through_works_on_a_real_cluster_and_continues_after_a_kill() {
    let Some(cluster) = kube::shared() else {
        return prerequisites::skip(prerequisites::KUBERNETES, kube::MISSING);
    };
    let namespace = cluster.namespace("readme").unwrap();
    let kubectl = |arguments: &[&str]| {
        let answer = CommandOutput::new(cluster.kubectl().args(arguments).output().unwrap());
        assert_eq!(answer.code, Some(0), "{answer:?}");
        answer.stdout
    };
    let home = Home::new();
    let nodes: Vec<String> = (1..=3).map(|number| format!("{namespace}-{number}")).collect();
    for node in &nodes {
        let file = home.directory.path().join("node.json");
        let text = format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{node}"}}}}"#);
        std::fs::write(&file, text).unwrap();
        kubectl(&["create", "-f", file.to_str().unwrap()]);
    }
    let is_cordoned =
        |node: &str| kubectl(&["get", "node", node, "-o", "jsonpath={.spec.unschedulable}"]) == "true";

    let up = home.up(&[]);
    // As printed, but for the cluster, whose nodes have other names and which others use too.
    let script = walk_through_script()
        .replace("~/.local/share/shipshape/sim/sim-1/kubeconfig", cluster.kubeconfig_path().to_str().unwrap())
        .replace(
            "harbour -p node=worker-",
            &format!("harbour -p namespace={namespace} -p node={namespace}-"),
        );
    assert!(!script.contains("/sim/") && !script.contains("worker-"), "{script}");
    walk(&home, &script);
    assert!(nodes.iter().all(|node| !is_cordoned(node)), "whatever was set aside goes on");

    let (node, space) = (format!("node={}", nodes[2]), format!("namespace={namespace}"));
    let run = ["task", "run", "cordon-node", "--cluster", "harbour", "-p", &node, "-p", &space];
    let running = done(&home, &[&run[..], &["-p", "pause=5s", "-o", "name"]].concat());
    let running = running.trim();
    until_in_step(&home, running, "pause");
    assert!(is_cordoned(&nodes[2]));
    up.signal("KILL");
    up.end();

    let again = home.up(&[]);
    let answer = home.run(&["manifest", "show", running, "--wait"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let shown = json(&home, &["manifest", "show", running]);
    assert_eq!((shown["state"].as_str(), shown["attempt"].as_i64()), (Some("Completed"), Some(2)));
    assert!(!is_cordoned(&nodes[2]));
    done(&home, &["cluster", "forget", "harbour", "--yes"]);
    for node in &nodes {
        kubectl(&["delete", "node", node]);
    }
    again.signal("TERM");
    assert_eq!(again.end().code, Some(0));
}

#[test]
fn a_real_cluster_is_imported_worked_on_and_left_as_it_was_after_a_cancel() {
    let Some(cluster) = kube::shared() else {
        return prerequisites::skip(prerequisites::KUBERNETES, kube::MISSING);
    };
    let namespace = cluster.namespace("walk").unwrap();
    let node = format!("node-{namespace}");
    let kubectl = |arguments: &[&str]| {
        let answer = CommandOutput::new(cluster.kubectl().args(arguments).output().unwrap());
        assert_eq!(answer.code, Some(0), "{answer:?}");
        answer.stdout
    };
    let home = Home::new();
    let file = home.directory.path().join("node.json");
    std::fs::write(&file, format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{node}"}}}}"#))
        .unwrap();
    kubectl(&["create", "-f", file.to_str().unwrap()]);
    let is_cordoned = || kubectl(&["get", "node", &node, "-o", "jsonpath={.spec.unschedulable}"]) == "true";

    let up = home.up(&[]);
    let kubeconfig = cluster.kubeconfig_path();
    done(&home, &["cluster", "import", "real", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    done(&home, &["task", "apply", "-f", &walk_through("cordon-node.yaml")]);
    let (node_given, space_given) = (format!("node={node}"), format!("namespace={namespace}"));
    let run = ["task", "run", "cordon-node", "--cluster", "real", "-p", &node_given, "-p", &space_given];
    let answer = home.run(&[&run[..], &["-p", "pause=1s", "--wait"]].concat());
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(answer.stdout.contains(" Completed in "), "{answer:?}");
    assert!(answer.stderr.contains("step create-note done"), "{answer:?}");
    assert_eq!(
        kubectl(&["get", "configmap", "cordon-note", "-n", &namespace, "-o", "jsonpath={.data.node}"]),
        node
    );
    assert!(!is_cordoned());

    let manifest = done(&home, &[&run[..], &["-p", "pause=10m", "-o", "name"]].concat());
    let manifest = manifest.trim();
    until_in_step(&home, manifest, "pause");
    assert!(is_cordoned());
    let why = done(&home, &["why", manifest]);
    assert!(why.contains("is InProgress: in step pause (3 of 4)") && why.contains("may take until"), "{why}");
    let cancelled =
        home.run(&["manifest", "cancel", manifest, "--yes", "--wait", "--reason", "no longer needed"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    assert!(cancelled.stdout.contains("Cancelled"), "{cancelled:?}");
    assert!(cancelled.stderr.contains("step cordon undone"), "{cancelled:?}");
    assert!(!is_cordoned(), "what was cordoned is uncordoned");
    let shown = json(&home, &["cluster", "show", "real"]);
    assert_eq!(shown["properties"]["reachability"]["reachable"], true, "{shown:#}");
    done(&home, &["cluster", "forget", "real", "--yes"]);
    kubectl(&["delete", "node", &node]);
    up.signal("TERM");
    assert_eq!(up.end().code, Some(0));
}

#[test]
fn every_output_format_is_rendered() {
    let home = Home::new();
    let _sim = home.sim(&["--clusters", "2", "--nodes", "1"]);
    let _up = home.up(&[]);
    import_sim(&home, "harbour", 1);
    import_sim(&home, "quay", 2);
    done(&home, &["cluster", "label", "quay", "env=prod", "tier=web"]);
    let table = done(&home, &["cluster", "list"]);
    assert!(table.starts_with("NAME "), "{table}");
    assert!(!table.contains('\u{1b}'), "no colour in a pipe");
    assert_eq!(done(&home, &["cluster", "list", "-o", "name"]), "cluster/harbour\ncluster/quay\n");
    assert_eq!(done(&home, &["cluster", "list", "-l", "env=prod,tier", "-o", "name"]), "cluster/quay\n");
    assert!(done(&home, &["cluster", "list", "-o", "wide"]).contains("env=prod,tier=web"));
    let listed = json(&home, &["cluster", "list"]);
    assert_eq!(listed[0]["name"], "harbour");
    let yaml: Value =
        serde_saphyr::from_str(&done(&home, &["cluster", "show", "quay", "-o", "yaml"])).unwrap();
    assert_eq!(yaml["properties"]["labels"]["tier"], "web");
    let uuid = yaml["properties"]["uuid"].as_str().unwrap();
    assert_eq!(done(&home, &["cluster", "show", &uuid[..18], "-o", "name"]), "cluster/quay\n");

    let tasks = json(&home, &["task", "list"]);
    let health = tasks.as_array().unwrap().iter().find(|it| it["source"] == "builtin").unwrap();
    let (id, name) = (health["id"].as_str().unwrap(), health["name"].as_str().unwrap());
    assert_eq!(json(&home, &["task", "show", &id[..8]])["name"], name);
    assert_eq!(done(&home, &["budget", "set", "fleet", "3"]), "budget/fleet is 3\n");
    assert!(done(&home, &["budget", "list"]).contains("fleet   3"), "the limit is listed");
    assert_eq!(done(&home, &["budget", "clear", "fleet"]), "budget/fleet has no limit\n");
}

#[test]
fn invalid_commands_are_reported_in_one_sentence_with_a_remedy() {
    let home = Home::new();
    assert!(
        rejected(&home, &["cluster", "list"])
            .starts_with("no context is selected; start a server with `shipshape up`")
    );
    let up = home.up(&[]);
    assert_eq!(
        rejected(&home, &["cluster", "show", "x"]),
        "cluster \"x\" not found; run `shipshape cluster list` to list the clusters"
    );
    assert!(rejected(&home, &["why", "x"]).contains("is not the id of a manifest"));
    assert!(rejected(&home, &["why", "00000000"]).starts_with("manifest 00000000 not found"));
    assert!(rejected(&home, &["task", "show", "chek-health"]).starts_with("task \"chek-health\" not found"));
    assert!(
        rejected(&home, &["task", "apply", "-f", "/no/such/file"])
            .starts_with("/no/such/file: cannot be read")
    );
    assert!(
        rejected(&home, &["cluster", "list", "--context", "x"])
            .starts_with("context \"x\" not found; registered contexts: shipshape")
    );
    let nonsense = home.directory.path().join("kubeconfig");
    std::fs::write(&nonsense, "no: kubeconfig").unwrap();
    let sentence = rejected(&home, &["cluster", "import", "x", "--kubeconfig", nonsense.to_str().unwrap()]);
    assert!(sentence.starts_with("cluster x: "), "{sentence}");
    let broken = home.directory.path().join("task.yaml");
    std::fs::write(&broken, "name: t\ntitle: t\nsteps: [{uses: node/explode}]\n").unwrap();
    let sentence = rejected(&home, &["task", "apply", "-f", broken.to_str().unwrap()]);
    assert!(sentence.contains("node/explode") && sentence.contains("steps[0]"), "{sentence}");
    done(&home, &["task", "apply", "-f", &walk_through("cordon-node.yaml")]);
    let sentence = rejected(&home, &["task", "delete", "cordon-node"]);
    assert_eq!(sentence, "Delete task cordon-node? There is no terminal to confirm it; pass --yes");
    done(&home, &["task", "delete", "cordon-node", "--yes"]);
    let usage: [&[&str]; 6] = [
        &["manifest", "create", "--task", "x"],
        &["manifest", "create", "--task", "x", "--cluster", "y", "--run-after", "soon"],
        &["task", "run", "x", "--cluster", "y", "-p", "nonsense"],
        &["budget", "set", "fleet", "many"],
        &["manifest", "list", "--state", "Done"],
        &["cluster", "label", "x", "nonsense"],
    ];
    for arguments in usage {
        let answer = home.run(arguments);
        assert_eq!(answer.code, Some(2), "{arguments:?}: {answer:?}");
    }
    up.signal("KILL");
    up.end();
    let sentence = rejected(&home, &["task", "list"]);
    assert!(sentence.contains(": connection refused; check that `shipshape up` is running"), "{sentence}");
}

#[test]
fn requests_without_a_certificate_are_rejected() {
    let home = Home::new();
    let up = home.up(&[]);
    let context = home.directory.path().join(".local/share/shipshape/context.toml");
    let text = std::fs::read_to_string(&context).unwrap();
    let stranger: String = {
        let mut table: toml::Table = toml::from_str(&text).unwrap();
        table.remove("certificate");
        table.remove("key");
        toml::to_string(&table).unwrap()
    };
    let path = home.directory.path().join("stranger.toml");
    std::fs::write(&path, stranger).unwrap();
    let sentence = rejected(&home, &["task", "list", "--context", path.to_str().unwrap()]);
    assert!(sentence.contains("Forbidden") || sentence.contains("403"), "{sentence}");
    up.signal("TERM");
    assert_eq!(up.end().code, Some(0));
}

#[test]
fn an_insecure_api_prints_a_warning_and_listens_on_loopback_only() {
    let home = Home::new();
    let up = home.up(&["--insecure"]);
    assert!(up.banner.contains("api      http://127.0.0.1:"), "{}", up.banner);
    assert!(done(&home, &["task", "list"]).starts_with("NAME"));
    up.signal("TERM");
    let answer = up.end();
    assert!(answer.stderr.contains("INSECURE: the API requires no authentication"), "{answer:?}");
    let answer = home.run(&["up", "--insecure", "--api", "0.0.0.0:0"]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stderr.contains("is not a loopback address"), "{answer:?}");
}

#[test]
fn two_processes_have_two_contexts_and_the_first_stays_the_current_one() {
    let home = Home::new();
    let first = home.up(&["--data-dir", "one"]);
    let second = home.up(&["--data-dir", "two"]);
    assert!(first.banner.contains("context  one\n"), "{}", first.banner);
    assert!(second.banner.contains("context  two, which is not the current one\n"), "{}", second.banner);
    assert!(second.banner.contains("shipshape task list --context two\n"), "{}", second.banner);
    let names = done(&home, &["context", "list", "-o", "name"]);
    assert_eq!(names, "context/one\ncontext/two\n");
    done(&home, &["budget", "set", "fleet", "7", "--context", "two"]);
    assert!(!done(&home, &["budget", "list", "-o", "json"]).contains('7'));
    assert!(done(&home, &["budget", "list", "--data-dir", "two"]).contains("fleet   7"));
    assert_eq!(done(&home, &["context", "use", "two"]), "context/two set as the current context\n");
    assert!(done(&home, &["budget", "list"]).contains("fleet   7"));
    let shown = json(&home, &["context", "show"]);
    assert_eq!((shown["name"].as_str(), shown["credential"].as_str()), (Some("two"), Some("certificate")));
}

#[test]
fn a_shell_completes_names_that_the_server_knows() {
    let home = Home::new();
    let _up = home.up(&[]);
    done(&home, &["task", "apply", "-f", &walk_through("cordon-node.yaml")]);
    let mut command = home.shipshape(&["--", "shipshape", "task", "show", "cordon-"]);
    command.env("SHIPSHAPE_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "3").env("_CLAP_IFS", "\n");
    let answer = CommandOutput::new(command.output().unwrap());
    assert!(answer.stdout.contains("cordon-node"), "{answer:?}");
}

#[test]
fn a_task_is_tried_without_a_server() {
    let home = Home::new();
    let file = walk_through("cordon-node.yaml");
    let test = ["task", "test", "-f", &file, "-p", "node=node-1", "-p", "pause=10ms"];
    assert!(done(&home, &test).contains("Completed: "));
    let failed = done(&home, &[&test[..], &["--fail-at", "create-note"]].concat());
    assert!(failed.contains("Failed: ") && failed.contains("undone: "), "{failed}");
    let crashed = done(&home, &[&test[..], &["--crash-at", "create-note"]].concat());
    assert!(crashed.contains("the worker was killed; another takes over"), "{crashed}");
    let unknown = rejected(&home, &[&test[..], &["--fail-at", "x"]].concat());
    assert!(unknown.ends_with("its steps are cordon, create-note, pause, uncordon"), "{unknown}");
    let lacking = rejected(&home, &["task", "test", "-f", &file]);
    assert!(lacking.contains("node"), "{lacking}");
}

#[test]
fn each_service_runs_alone_on_one_postgresql() {
    let Some(server) = postgres::shared() else {
        return prerequisites::skip(prerequisites::POSTGRESQL, "no PostgreSQL server was found");
    };
    let database = server.database().unwrap();
    let home = Home::new();
    let _sim = home.sim(&["--clusters", "1", "--nodes", "1"]);
    let store = ["--store", database.url()];
    let open = ["--set", "frontend.insecure=true", "--api", "127.0.0.1:0"];
    let frontend = home.alone("frontend", &[&store[..], &open].concat());
    let workers = ["actuator", "mimo-actuator", "scheduler"].map(|name| home.alone(name, &store));
    let url = frontend.banner.split_whitespace().find(|it| it.starts_with("http://")).unwrap().to_owned();
    let kubeconfig = home.directory.path().join(".local/share/shipshape/sim/sim-1/kubeconfig");
    let there = ["--server", url.as_str()];
    let import = ["cluster", "import", "harbour", "--kubeconfig", kubeconfig.to_str().unwrap()];
    done(&home, &[&import[..], &there].concat());
    done(&home, &[&["task", "apply", "-f", &walk_through("cordon-node.yaml")], &there[..]].concat());
    let run = ["task", "run", "cordon-node", "--cluster", "harbour", "-p", "node=worker-1", "-p", "pause=1s"];
    let ran = done(&home, &[&run[..], &["--wait"], &there].concat());
    assert!(ran.contains(" Completed in "), "{ran}");
    for process in workers.into_iter().chain([frontend]) {
        process.signal("TERM");
        let answer = process.end();
        assert_eq!(answer.code, Some(0), "{answer:?}");
    }
}
