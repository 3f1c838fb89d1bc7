//! The layers of ARCHITECTURE.md, compared with the manifests of the crates: a dependency that the picture does not show fails here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// Each crate of the workspace and the crates that it may depend on. Knowledge points downward only; services do not know each other.
const LAYERS: &[(&str, &[&str])] = &[
    // Types that cross a process.
    ("api", &[]),
    // What reaches outside: a database, a cluster, a cloud, a socket. They do not know each other.
    ("store", &["api"]),
    ("kubelink", &["api"]),
    ("controller", &["api"]),
    ("cloud", &["api"]),
    ("cloud-azure", &["api", "cloud"]),
    // Outside of the default members.
    ("cloud-aws", &["api", "cloud"]),
    ("serve", &[]),
    ("client", &["api"]),
    ("cli", &["api", "client", "cloud", "cloud-azure", "cloudsim"]),
    // Work on a cluster, and decisions about it.
    ("steps", &["api", "store", "kubelink", "cloud"]),
    ("planner", &["api", "steps"]),
    // Services.
    ("frontend", &["api", "store", "kubelink", "cloud", "serve", "steps", "planner"]),
    ("backend", &["api", "store", "kubelink", "cloud", "steps"]),
    ("maintenance", &["api", "store", "kubelink", "cloud", "steps", "planner"]),
    ("monitor", &["api", "store", "kubelink", "steps"]),
    ("portal", &["api", "client", "serve"]),
    ("machines", &["api", "cloud", "controller", "kubelink", "serve"]),
    // Simulators.
    ("kubesim", &["api", "serve"]),
    ("cloudsim", &["api", "cloud", "cloud-azure", "kubesim", "serve"]),
    // The binary knows all of them; the kit for tests knows none.
    (
        "shipshape",
        &[
            "api",
            "store",
            "kubelink",
            "cloud",
            "cloud-aws",
            "cloud-azure",
            "serve",
            "client",
            "cli",
            "steps",
            "planner",
            "frontend",
            "backend",
            "maintenance",
            "monitor",
            "controller",
            "machines",
            "portal",
            "kubesim",
            "cloudsim",
        ],
    ),
    ("testkit", &[]),
];

/// External crates that one crate alone may use: what is heavy or dangerous stays behind one fence.
const FENCES: &[(&str, &[&str])] = &[
    ("rusqlite", &["store", "cloudsim"]),
    ("tokio-postgres", &["store"]),
    ("deadpool-postgres", &["store"]),
    ("maud", &["portal"]),
    ("aws-sdk-ec2", &["cloud-aws"]),
    ("clap", &["cli", "shipshape"]),
];

/// External crates that mean I/O; `api` has none of them. It has `kube-core`, which is the traits of `kube` without a client.
const IO: &[&str] = &[
    "tokio",
    "hyper",
    "hyper-util",
    "axum",
    "kube",
    "kube-client",
    "kube-runtime",
    "rusqlite",
    "tokio-postgres",
    "tokio-rustls",
];

#[test]
fn every_dependency_between_our_crates_is_in_the_picture_of_the_layers() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        LAYERS.iter().map(|(name, below)| (*name, below.iter().copied().collect())).collect();
    let manifests = manifests();
    let known: BTreeSet<&str> = allowed.keys().copied().collect();
    let found: BTreeSet<&str> = manifests.keys().map(String::as_str).collect();
    assert_eq!(found, known, "LAYERS must list exactly the crates of the workspace");
    for (name, manifest) in &manifests {
        for dependency in dependencies(manifest).filter(|it| known.contains(it.as_str())) {
            assert!(
                allowed[name.as_str()].contains(dependency.as_str()),
                "crate {name} depends on {dependency}, which ARCHITECTURE.md forbids"
            );
        }
    }
}

#[test]
fn no_edge_of_the_picture_is_unused() {
    let manifests = manifests();
    for (name, below) in LAYERS {
        let used: BTreeSet<String> = dependencies(&manifests[*name]).collect();
        for dependency in *below {
            assert!(
                used.contains(*dependency),
                "crate {name} no longer depends on {dependency}: remove the edge"
            );
        }
    }
}

#[test]
fn the_picture_has_no_cycle() {
    let mut placed: BTreeSet<&str> = BTreeSet::new();
    while placed.len() < LAYERS.len() {
        let next = LAYERS
            .iter()
            .find(|(name, below)| !placed.contains(name) && below.iter().all(|it| placed.contains(it)))
            .expect("a crate whose dependencies are all placed");
        placed.insert(next.0);
    }
}

#[test]
fn fenced_crates_are_used_by_their_owners_only() {
    for (name, manifest) in manifests() {
        for dependency in dependencies(&manifest) {
            let owners = FENCES.iter().find(|(fenced, _)| *fenced == dependency).map(|(_, owners)| *owners);
            assert!(
                owners.is_none_or(|owners| owners.contains(&name.as_str())),
                "crate {name} depends on {dependency}, which only {owners:?} may use"
            );
        }
    }
}

#[test]
fn api_does_no_input_or_output() {
    let found: Vec<String> =
        dependencies(&manifests()["api"]).filter(|it| IO.contains(&it.as_str())).collect();
    assert!(found.is_empty(), "api depends on {found:?}");
}

#[test]
fn only_serve_accepts_connections() {
    for (name, _) in manifests().iter().filter(|(name, _)| *name != "serve") {
        for file in source_files(&directory(name).join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            assert!(
                !text.contains(".accept()"),
                "{} accepts connections without the limits of serve",
                file.display()
            );
        }
    }
}

/// The source files of a directory and those below it.
fn source_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let below = directories.iter().flat_map(|it| source_files(it));
    files.into_iter().filter(|path| path.extension().is_some_and(|it| it == "rs")).chain(below).collect()
}

/// The folders of crates: those of every build, and those that are heavy and not always wanted.
fn folders() -> [PathBuf; 2] {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    [crates.clone(), crates.join("../optional")]
}

/// The directory of a crate.
fn directory(name: &str) -> PathBuf {
    let all = folders().map(|it| it.join(name));
    all.into_iter().find(|it| it.is_dir()).unwrap_or_else(|| panic!("crate {name} has no directory"))
}

/// The manifests of the workspace's crates by name.
fn manifests() -> BTreeMap<String, Table> {
    let entries = folders().into_iter().flat_map(|it| fs::read_dir(it).unwrap());
    entries
        .map(|entry| entry.unwrap().path().join("Cargo.toml"))
        .filter(|path| path.is_file())
        .map(|path| {
            let manifest: Table = fs::read_to_string(&path).unwrap().parse().unwrap();
            let name = manifest["package"]["name"].as_str().unwrap().to_owned();
            (name, manifest)
        })
        .collect()
}

/// What a crate depends on outside of its tests, features and targets included.
fn dependencies(manifest: &Table) -> impl Iterator<Item = String> {
    const SECTIONS: [&str; 2] = ["dependencies", "build-dependencies"];
    let own = SECTIONS.iter().filter_map(|section| manifest.get(*section));
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let of_targets = targets.flat_map(|target| SECTIONS.iter().filter_map(|section| target.get(*section)));
    let names = own.chain(of_targets).filter_map(Value::as_table).flat_map(Table::keys);
    names.cloned().collect::<BTreeSet<String>>().into_iter()
}
