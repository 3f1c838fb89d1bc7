//! `shipshape up` as a newcomer meets it: the demonstration, what a restart finds again, and what forbids a start.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::tmpfs::SmallDisk;
use testkit::{prerequisites, wait_until};

use super::executable::{CommandOutput, Home, get};
use super::maintenance::done;
use super::pages::{commands, type_into_shell};

/// Far longer than any step here takes on a busy machine; a lease of a killed process runs out after a minute.
const PATIENCE: Duration = Duration::from_secs(600);

/// On an idle machine `up` starts within three seconds and ends within five; here others build and test beside it.
const START_MAX: Duration = Duration::from_secs(9);
const END_MAX: Duration = Duration::from_secs(15);

fn json(home: &Home, arguments: &[&str]) -> Value {
    serde_json::from_str(&done(home, &[arguments, &["-o", "json"]].concat())).unwrap()
}

/// Names and states of all clusters.
fn states(home: &Home) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let clusters = json(home, &["cluster", "list"]);
    let clusters = clusters.as_array().unwrap().iter();
    clusters.map(|it| (text(&it["name"]), text(&it["properties"]["provisioningState"]))).collect()
}

/// The manifests of a cluster that no schedule made, by task, state and what was asked for.
fn by_hand(home: &Home, cluster: &str) -> Vec<(String, String, Value)> {
    let listed = json(home, &["manifest", "list", "--cluster", cluster]);
    let mut found: Vec<(String, String, Value)> = listed
        .as_array()
        .unwrap()
        .iter()
        .filter(|it| it["createdBySchedule"].as_str().unwrap_or_default().is_empty())
        .map(|it| {
            let text = |member: &str| it[member].as_str().unwrap().to_owned();
            (text("taskName"), text("state"), it["parameters"].clone())
        })
        .collect();
    found.sort_by_key(|(task, _, parameters)| (task.clone(), parameters.to_string()));
    found
}

fn until_all_are_ready(home: &Home, count: usize) {
    wait_until(&format!("{count} clusters are ready"), PATIENCE, || {
        let states = states(home);
        assert!(states.values().all(|state| state != "Failed"), "{states:?}");
        (states.len() == count && states.values().all(|state| state == "Succeeded")).then_some(())
    })
    .unwrap();
}

/// Whether a manifest by hand of that task is in that state on that cluster.
fn has(home: &Home, cluster: &str, task: &str, state: &str) -> bool {
    by_hand(home, cluster).iter().any(|(known, at, _)| known == task && at == state)
}

/// Whether a step on that cluster says that this stands in its way.
fn is_held_by(home: &Home, cluster: &str, what: &str) -> bool {
    let listed = json(home, &["manifest", "list", "--cluster", cluster]);
    let mut steps = listed.as_array().unwrap().iter().filter_map(|it| it["step"]["message"].as_str());
    steps.any(|message| message.contains(what))
}

/// Waits until the demo is complete.
fn wait_for_demo(home: &Home) {
    wait_until("the demo is complete", PATIENCE, || {
        let complete = has(home, "anchor", "drain-node", "Completed")
            && has(home, "anchor", "drain-node", "Cancelled")
            && has(home, "beacon", "cluster-health", "Failed")
            && has(home, "capstan", "drain-node", "InProgress")
            && is_held_by(home, "capstan", "shop/web")
            && has(home, "davit", "cluster-health", "Pending")
            && has(home, "ensign", "restart-when-steady", "Completed")
            && has(home, "ensign", "drain-node", "Pending");
        complete.then_some(())
    })
    .unwrap_or_else(|error| {
        let all: Vec<_> =
            ["anchor", "beacon", "capstan", "davit", "ensign"].map(|it| (it, by_hand(home, it))).into();
        panic!("{error}: {all:#?}")
    });
}

#[test]
fn a_demonstration_completes_after_a_kill_and_repeats_nothing() {
    let home = Home::new();
    let up = home.up(&["--demo=6"]);
    assert!(up.banner.contains("  demo     6 simulated clusters"), "{}", up.banner);
    // In the middle of everything: what was asked for is still made, under the same names and once.
    wait_until("some clusters are being made", PATIENCE, || {
        states(&home).values().any(|it| it == "Creating").then_some(())
    })
    .unwrap();
    up.signal("KILL");
    up.end();
    let up = home.up(&["--demo=6"]);
    until_all_are_ready(&home, 6);
    wait_for_demo(&home);

    assert_eq!(json(&home, &["schedule", "list"]).as_array().unwrap().len(), 3);
    let tasks = json(&home, &["task", "list"]);
    let as_data = tasks.as_array().unwrap().iter().filter(|it| it["source"] != "builtin").count();
    assert_eq!(as_data, 2, "{tasks:#}");
    let places: std::collections::BTreeSet<(String, String)> = json(&home, &["cluster", "list"])
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            let subscription = it["id"].as_str().unwrap().split('/').nth(2).unwrap();
            (subscription.to_owned(), it["location"].as_str().unwrap().to_owned())
        })
        .collect();
    assert!(places.len() >= 4, "several subscriptions and locations: {places:?}");
    // `why` names each cause.
    let trouble = |cluster: &str, task: &str, state: &str| {
        let listed = json(&home, &["manifest", "list", "--cluster", cluster]);
        // What the schedules made waits for its time, and is no trouble.
        let by_hand = |it: &&Value| it["createdBySchedule"].as_str().is_none_or(str::is_empty);
        let mut asked = listed.as_array().unwrap().iter().filter(by_hand);
        let found = asked.find(|it| it["taskName"] == task && it["state"] == state);
        found.cloned()
    };
    let sick = trouble("beacon", "cluster-health", "Failed").unwrap();
    assert!(sick["statusText"].as_str().unwrap().contains("-worker-"), "{sick:#}");
    wait_until("the drain says what it waits for", PATIENCE, || {
        let drain = trouble("capstan", "drain-node", "InProgress")?;
        let message = drain["step"]["message"].as_str().unwrap_or_default().to_owned();
        (drain["step"]["name"] == "drain" && message.contains("shop/web")).then_some(())
    })
    .unwrap();
    let drain = trouble("capstan", "drain-node", "InProgress").unwrap();
    let why = done(&home, &["why", drain["id"].as_str().unwrap()]);
    for word in ["in step drain (3 of 6)", "PodDisruptionBudget shop/web allows no disruption", "customer"] {
        assert!(why.contains(word), "{word}: {why}");
    }
    wait_until("the work on davit waits until somebody answers", PATIENCE, || {
        // Now and then it is tried, and is at work for a moment.
        (trouble("davit", "cluster-health", "Pending")?["reason"] == "Unreachable").then_some(())
    })
    .unwrap();
    let shown = json(&home, &["cluster", "show", "davit"]);
    assert_eq!(shown["properties"]["reachability"]["reachable"], false, "{shown:#}");
    assert_eq!(json(&home, &["cluster", "show", "anchor"])["properties"]["reachability"]["reachable"], true);
    // What the schedules want takes seconds, whatever its time limit is, and nothing is late but where nobody answers.
    let plan = json(&home, &["plan", "--for", "7d", "--cluster", "anchor"]);
    assert!(plan["runs"].as_u64().unwrap() > 1000 && plan["misses"] == 0, "{:#}", plan["entries"][0]);
    let plan = done(&home, &["plan", "--for", "7d", "--cluster", "anchor"]);
    assert!(plan.contains("every 5 min, ") && plan.contains("all start in time"), "{plan}");
    let plan = json(&home, &["plan", "--for", "7d", "--cluster", "davit"]);
    assert_eq!(
        (&plan["misses"], &plan["entries"][0]["reason"]),
        (&plan["runs"], &"the cluster is unreachable".into())
    );

    // What its onlooker removes stays removed.
    done(&home, &["cluster", "delete", "fender", "--yes", "--wait"]);
    done(&home, &["schedule", "delete", "restart-web-at-night", "--yes"]);
    let asked: Vec<_> = ["anchor", "beacon", "davit", "ensign"].map(|it| by_hand(&home, it)).into();
    let begun = Instant::now();
    up.signal("INT");
    let ended = up.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(begun.elapsed() < END_MAX, "it ended after {:?}", begun.elapsed());

    let begun = Instant::now();
    let up = home.up(&["--demo=6"]);
    assert!(begun.elapsed() < START_MAX, "it was ready after {:?}", begun.elapsed());
    // Clusters are back with what was in them: the Deployment that the story brought is there to be restarted.
    let again = ["task", "run", "restart-when-steady", "--cluster", "ensign", "--wait"];
    let again = home.run(&again);
    assert_eq!(again.code, Some(0), "{again:?}");
    let anchors = by_hand(&home, "anchor");
    assert_eq!(anchors, asked[0]);
    assert_eq!(by_hand(&home, "beacon"), asked[1]);
    // What waits for davit is tried now and then, so its state at this moment says nothing.
    let without_state = |all: &[(String, String, Value)]| {
        all.iter().map(|it| (it.0.clone(), it.2.clone())).collect::<Vec<_>>()
    };
    assert_eq!(without_state(&by_hand(&home, "davit")), without_state(&asked[2]));
    assert_eq!(states(&home).len(), 5);
    assert_eq!(json(&home, &["schedule", "list"]).as_array().unwrap().len(), 2);
    up.signal("TERM");
    assert_eq!(up.end().code, Some(0));

    // Without the story the fleet is where it was, its locations included.
    let up = home.up(&[]);
    assert!(!up.banner.contains("demo"), "{}", up.banner);
    let made = home.run(&["cluster", "update", "anchor", "--tag", "seen=yes", "--wait"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    up.signal("TERM");
    assert_eq!(up.end().code, Some(0));
    let check = home.run(&["store", "check"]);
    assert_eq!(check.code, Some(0), "{check:?}");
}

#[test]
fn the_tour_works_as_printed() {
    let home = Home::new();
    let up = home.up(&["--demo=5"]);
    until_all_are_ready(&home, 5);
    wait_for_demo(&home);
    let answer = type_into_shell(&home, &commands("tour.md", "tour"), home.directory.path(), &[]);
    answer.shows(&[
        "beacon is not well",
        "shop/web",
        "Cancelled",
        "Unreachable",
        "health-of-canaries",
        "cluster/harbour created",
        "cluster/harbour deleted",
        "sealed records verified",
    ]);
    up.signal("INT");
    let ended = up.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn each_event_is_printed_on_a_line_of_its_own() {
    let home = Home::new();
    let up = home.up(&["--set", "cloud.pace=0"]);
    done(&home, &["cluster", "create", "harbour", "--wait"]);
    done(&home, &["task", "run", "cluster-health", "--cluster", "harbour", "--wait"]);
    for line in [
        "cluster harbour  creating in local",
        "cluster harbour  ready after",
        "cluster-health on harbour  Completed",
    ] {
        wait_until(line, PATIENCE, || up.output().contains(line).then_some(())).unwrap();
    }
    let output = up.output();
    assert!(output.lines().all(|line| line.chars().count() < 180), "{output}");
    up.signal("TERM");
    let answer = up.end();
    assert_eq!(
        (answer.code, answer.stderr.as_str()),
        (Some(0), ""),
        "nothing went wrong, so nothing is logged"
    );
}

#[test]
fn the_portal_is_beside_the_api_and_alone_as_its_client() {
    let home = Home::new();
    let up = home.up(&[]);
    let link = format!("  sign in  https://{}/login/link/", up.at("portal"));
    assert!(up.banner.contains(&link), "{}", up.banner);
    assert_eq!(up.get("/readyz").0, 200);
    // Alone it shows a certificate of its own, or says that it has none.
    let answer =
        home.run(&["portal", "--health", "127.0.0.1:0", "--portal", "127.0.0.1:0", "--log-level", "off"]);
    rejected(
        &answer,
        "portal.certificate and portal.key must name the portal's certificate and its private key",
    );
    let pki = home.directory.path().join(".local/share/shipshape/pki");
    let set = |key: &str, file: &str| format!("portal.{key}={}", pki.join(file).display());
    let (certificate, key) = (set("certificate", "server.crt"), set("key", "server.key"));
    let with = ["--set", &certificate, "--set", &key];
    let answer = home.run(
        &[&["portal", "--health", "127.0.0.1:0", "--portal", "0.0.0.0:0", "--log-level", "off"], &with[..]]
            .concat(),
    );
    rejected(&answer, "requires sign-in; set portal.oidc.issuer");
    let alone = home.portal(&with);
    assert!(
        alone.banner.contains(&format!("sign in  https://{}/login/link/", alone.at("portal"))),
        "{}",
        alone.banner
    );
    assert!(alone.banner.contains(&format!("  api      https://{}\n", up.at("api"))), "{}", alone.banner);
    assert_eq!(alone.get("/readyz").0, 200);
    alone.signal("TERM");
    assert_eq!(alone.end().code, Some(0));
    up.signal("TERM");
    assert_eq!(up.end().code, Some(0));

    let open = home.up(&["--insecure"]);
    assert!(!open.banner.contains("sign in"), "{}", open.banner);
    let (status, page) = get(&open.at("portal"), "/");
    assert!((200..400).contains(&status), "{status} {page}");
    open.signal("TERM");
    assert_eq!(open.end().code, Some(0));
}

/// All files below a directory, with what is in them. Locks, shared memory and empty logs hold nothing that lasts.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                left.push(path);
            } else if !name.ends_with("lock") && !name.ends_with("-shm") {
                let held = std::fs::read(&path).unwrap();
                if !held.is_empty() {
                    files.insert(path, held);
                }
            }
        }
    }
    files
}

/// Fails if a file is new, gone or another than before.
fn untouched(directory: &Path, before: &BTreeMap<PathBuf, Vec<u8>>, after_what: &str) {
    let now = contents(directory);
    let touched: Vec<&PathBuf> =
        before.keys().chain(now.keys()).filter(|path| before.get(*path) != now.get(*path)).collect();
    assert!(touched.is_empty(), "{after_what} touched {touched:?}");
}

/// A home where `up` ran and ended, and its data directory.
fn lived_in() -> (Home, PathBuf) {
    let home = Home::new();
    let up = home.up(&[]);
    up.signal("TERM");
    assert_eq!(up.end().code, Some(0));
    let data = home.directory.path().join(".local/share/shipshape");
    (home, data)
}

/// One sentence, and a code that says so.
fn rejected(answer: &CommandOutput, sentence: &str) {
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(
        answer.stderr.starts_with("error: ") && answer.stderr.contains(sentence),
        "{sentence}: {answer:?}"
    );
    assert_eq!(answer.stderr.lines().count(), 1, "{answer:?}");
}

#[test]
fn whichever_port_is_in_use_nothing_is_touched() {
    let (home, data) = lived_in();
    let before = contents(&data);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (flag, key) in
        [("--health", "health.listen"), ("--api", "frontend.listen"), ("--portal", "portal.listen")]
    {
        let answer = home.failed_up(&[flag, &address]);
        rejected(
            &answer,
            &format!("{key} {address}: the port is in use by another process; pass another with {flag}"),
        );
        untouched(&data, &before, flag);
    }
}

#[test]
fn a_directory_in_use_by_another_process_is_rejected_regardless_of_the_ports() {
    let home = Home::new();
    let up = home.up(&[]);
    let answer = home.failed_up(&[]);
    rejected(&answer, "data_dir ");
    assert!(answer.stderr.contains(": in use by another process (process "), "{answer:?}");
    assert_eq!(up.get("/readyz").0, 200, "the first goes on");
    up.signal("TERM");
    assert_eq!(up.end().code, Some(0));
}

#[test]
fn a_directory_with_foreign_files_is_rejected_and_not_changed() {
    let home = Home::new();
    let theirs = home.directory.path().join("thesis");
    std::fs::create_dir(&theirs).unwrap();
    std::fs::write(theirs.join("chapter-1.tex"), "Call me Ishmael.").unwrap();
    let before = contents(&theirs);
    let answer = home.failed_up(&["--data-dir", theirs.to_str().unwrap()]);
    rejected(&answer, "contains \"chapter-1.tex\" and no file of Shipshape; pass an empty directory");
    untouched(&theirs, &before, "a rejection");

    // A file in the store's place that is no store.
    let (home, data) = lived_in();
    let database = data.join("shipshape.db");
    for extra in ["shipshape.db-wal", "shipshape.db-shm"] {
        let _ = std::fs::remove_file(data.join(extra));
    }
    std::fs::write(&database, "To whom it may concern: this is a letter, and a long one at that.".repeat(40))
        .unwrap();
    let answer = home.failed_up(&[]);
    rejected(&answer, "shipshape.db");
    assert!(std::fs::read_to_string(&database).unwrap().starts_with("To whom it may concern"));
}

#[test]
fn a_store_of_a_newer_release_is_rejected_and_not_changed() {
    let (home, data) = lived_in();
    let database = rusqlite::Connection::open(data.join("shipshape.db")).unwrap();
    raise_schema(&database);
    drop(database);
    let before = contents(&data);
    let answer = home.failed_up(&[]);
    rejected(&answer, "run a newer release");
    untouched(&data, &before, "a rejection");
}

/// A small disk as a data directory must be: writable for its owner only.
fn private_disk(size_bytes: u64) -> Option<SmallDisk> {
    let disk = SmallDisk::new(size_bytes)?;
    std::fs::set_permissions(disk.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    Some(disk)
}

#[test]
fn a_directory_writable_by_others_is_reported_in_one_sentence() {
    let (home, data) = (Home::new(), tempfile::tempdir().unwrap());
    std::fs::set_permissions(data.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let directory = data.path().to_str().unwrap();
    rejected(&home.failed_up(&["--data-dir", directory]), &format!("run `chmod 700 {directory}`"));
    assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_full_disk_is_reported_in_one_sentence() {
    let Some(disk) = private_disk(1 << 20) else {
        return prerequisites::skip(prerequisites::SMALL_DISK, "this user may not mount a tmpfs");
    };
    let home = Home::new();
    let directory = disk.path().to_str().unwrap();
    let filler = disk.path().join(".filler");
    std::fs::write(&filler, vec![1; 2 << 20]).unwrap_err();
    let answer = home.failed_up(&["--data-dir", directory]);
    rejected(&answer, "its disk is full");
    assert_eq!(std::fs::read_dir(disk.path()).unwrap().count(), 1, "nothing is left behind");
    // With a little room the start fails later, and just as clearly.
    std::fs::write(&filler, vec![1; (1 << 20) - (48 << 10)]).unwrap();
    let answer = home.failed_up(&["--data-dir", directory]);
    rejected(&answer, "full");
}

#[test]
fn a_full_disk_fails_only_the_requests_of_that_time() {
    let Some(disk) = private_disk(24 << 20) else {
        return prerequisites::skip(prerequisites::SMALL_DISK, "this user may not mount a tmpfs");
    };
    let home = Home::new();
    let directory = disk.path().to_str().unwrap();
    let at = |arguments: &[&str]| home.run(&[arguments, &["--data-dir", directory]].concat());
    let up = home.up(&["--data-dir", directory]);
    assert_eq!(at(&["budget", "set", "fleet", "3"]).code, Some(0));
    let filler = disk.path().join(".filler");
    let _ = std::fs::write(&filler, vec![1; 32 << 20]);
    // What is acknowledged is kept: a log that has room left may take a few more, then none.
    let mut last = 3;
    wait_until("a write is rejected", PATIENCE, || {
        let answer = at(&["budget", "set", "fleet", &(last + 1).to_string()]);
        if answer.code == Some(0) {
            last += 1;
            return None;
        }
        assert_eq!(answer.stderr.lines().count(), 1, "{answer:?}");
        Some(())
    })
    .unwrap();
    assert!(at(&["budget", "list"]).stdout.contains(&format!("fleet   {last}")), "reading goes on");
    std::fs::remove_file(&filler).unwrap();
    wait_until("there is room again", PATIENCE, || {
        (at(&["budget", "set", "fleet", "99"]).code == Some(0)).then_some(())
    })
    .unwrap();
    up.signal("TERM");
    let ended = up.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let again = home.up(&["--data-dir", directory]);
    assert!(at(&["budget", "list"]).stdout.contains("fleet   99"));
    again.signal("TERM");
    assert_eq!(again.end().code, Some(0));
}

#[test]
fn an_invalid_number_of_demo_clusters_is_rejected() {
    let home = Home::new();
    for (arguments, word) in [
        (&["up", "--demo=0"][..], "0 is not in 1..=500"),
        (&["up", "--demo=many"], "many"),
        (&["up", "--demo", "5"], "5"),
        (
            &["up", "--portal", "nowhere"],
            "portal.listen = \"nowhere\" (flag --portal): expected an IP address and a port",
        ),
        (
            &["up", "--insecure", "--portal", "0.0.0.0:0"],
            "portal.listen = 0.0.0.0:0 (flag --portal) is not a loopback address",
        ),
    ] {
        let answer = home.run(arguments);
        assert_eq!(answer.code, Some(2), "{answer:?}");
        assert!(answer.stderr.contains(word), "{word}: {answer:?}");
    }
    assert!(!home.directory.path().join(".local").exists(), "nothing was made");
}

fn raise_schema(database: &rusqlite::Connection) {
    let added = "insert into schema (number, name, checksum, applied)
        select max(number) + 9, 'of the future', 'x', 0 from schema";
    assert_eq!(database.execute(added, []).unwrap(), 1);
}
