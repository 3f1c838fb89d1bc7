//! `shipshape cluster kubeconfig` and `credentials`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use api::admin::AdminCluster;
use clap::{Args, ValueEnum as _};
use clap_complete::engine::ArgValueCandidates;
use client::Client;
use serde_json::{Value, json};

use super::super::print::{Output, OutputFormat};
use super::super::{Connect, Invocation, complete, find, input};
use super::create::with_remedy;
use super::require_created_here;
use crate::{output, private_file};

/// Flags of `shipshape cluster kubeconfig`.
#[derive(Debug, Args)]
pub struct KubeconfigFlags {
    /// The cluster, by its name or resource id
    #[arg(add = ArgValueCandidates::new(complete::clusters))]
    cluster: String,
    /// Write it to this file, readable by its owner only [default: standard output]
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Add it to the kubeconfig that kubectl uses, and make it the current context there
    #[arg(long, conflicts_with = "file")]
    merge: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Writes a kubeconfig.
pub(super) async fn kubeconfig(flags: &KubeconfigFlags, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    flags.file.as_deref().map_or(Ok(()), reject_format_name)?;
    let client = invocation.client(&flags.connect)?;
    let cluster = find::cluster(&client, &flags.cluster).await?;
    let cluster = require_created_here(
        cluster,
        "the kubeconfig of an imported cluster stays with the person who imported it",
    )?;
    let name = &cluster.name;
    let text = client.kubeconfig(&cluster.id).await.map_err(|error| with_remedy(error, name))?;
    let Some(text) = text else {
        bail!("cluster {name} has no kubeconfig yet; run `shipshape cluster show {name}` to see its state");
    };
    if flags.merge {
        let file = kubectl_file(invocation).context("--merge")?;
        let present = match file.exists() {
            true => input::read_file(&file)?.value,
            false => json!({ "apiVersion": "v1", "kind": "Config" }),
        };
        let merged = merged(present, &parse(name, text.expose())?, name);
        write_private(&file, &serde_saphyr::to_string(&merged)?)?;
        return output::show(&format!(
            "context {name} added to {} and set as the current context\n",
            file.display()
        ));
    }
    match &flags.file {
        Some(file) if file != Path::new("-") => {
            write_private(file, text.expose())?;
            output::show(&format!("kubeconfig of cluster/{name} written to {}\n", file.display()))
        }
        _ => output::show(text.expose()),
    }
}

/// Rejects the name of an output format: `-o yaml` names a format in all other commands, so a key in a file of that name is a mistake.
fn reject_format_name(file: &Path) -> anyhow::Result<()> {
    match file.to_str().filter(|name| OutputFormat::from_str(name, false).is_ok()) {
        None => Ok(()),
        Some(name) => bail!(
            "-o names a file here, and {name} is an output format; omit -o to write the kubeconfig, which is always YAML, to standard output, or pass -o ./{name} for a file of that name"
        ),
    }
}

/// Shows the credentials of kubeadmin.
pub(super) async fn credentials(
    client: &Client,
    cluster: &AdminCluster,
    invocation: &Invocation<'_>,
    form: Output,
) -> anyhow::Result<()> {
    // Names need no request for the secret.
    if form.is_names() {
        return form.print(invocation, cluster);
    }
    let found = client.credentials(&cluster.id).await.map_err(|error| with_remedy(error, &cluster.name))?;
    let (username, password) = (&found.username, found.password.expose());
    let item = json!({ "kubeadminUsername": username, "kubeadminPassword": password });
    form.print_value(invocation, &item, |_| format!("Username:  {username}\nPassword:  {password}\n"))
}

/// The file that kubectl would write to: the first of KUBECONFIG, else ~/.kube/config.
fn kubectl_file(invocation: &Invocation<'_>) -> anyhow::Result<PathBuf> {
    if let Some(list) = invocation.environment.get("KUBECONFIG")
        && let Some(first) = std::env::split_paths(list).find(|path| !path.as_os_str().is_empty())
    {
        return Ok(first);
    }
    let home = invocation.environment.get("HOME").context("HOME is not set; pass -o FILE")?;
    Ok(Path::new(home).join(".kube/config"))
}

fn parse(name: &str, text: &str) -> anyhow::Result<Value> {
    // Without the parser's own message, which repeats the text: it holds a key.
    serde_saphyr::from_str(text).map_err(|_| anyhow::anyhow!("the kubeconfig of cluster {name} is not YAML"))
}

/// Adds the current context of `added` to `present` under the name `name` and makes it the current one. An entry with that
/// name is replaced; all others stay.
fn merged(mut present: Value, added: &Value, name: &str) -> Value {
    let user = format!("{name}-admin");
    let current = added["current-context"].as_str().unwrap_or_default();
    let entry = |list: &str, name: &str| {
        let found = added[list].as_array().into_iter().flatten().find(|it| it["name"] == name);
        found.or_else(|| added[list].get(0)).cloned().unwrap_or_default()
    };
    let context = entry("contexts", current)["context"].clone();
    let context_member = |member: &str| context[member].as_str().unwrap_or_default().to_owned();
    let cluster = entry("clusters", &context_member("cluster"))["cluster"].clone();
    let credentials = entry("users", &context_member("user"))["user"].clone();
    let mut context = json!({ "cluster": name, "user": user });
    if !context_member("namespace").is_empty() {
        context["namespace"] = json!(context_member("namespace"));
    }
    for (list, member, entry_name, value) in [
        ("clusters", "cluster", name, cluster),
        ("users", "user", user.as_str(), credentials),
        ("contexts", "context", name, context),
    ] {
        let mut entries = present[list].as_array().cloned().unwrap_or_default();
        entries.retain(|it| it["name"] != entry_name);
        entries.push(json!({ "name": entry_name, member: value }));
        present[list] = entries.into();
    }
    present["current-context"] = json!(name);
    present
}

/// Writes a file that only its owner can read, and creates its directory.
fn write_private(file: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("{}: cannot be created", directory.display()))?;
    }
    private_file::write(file, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_added_beside_others_and_replaces_itself() {
        let added = json!({
            "clusters": [{ "name": "c", "cluster": { "server": "https://new" } }],
            "users": [{ "name": "u", "user": { "token": "t" } }],
            "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
            "current-context": "x",
        });
        let present = json!({
            "apiVersion": "v1",
            "preferences": {},
            "clusters": [
                { "name": "other", "cluster": { "server": "https://other" } },
                { "name": "harbour", "cluster": { "server": "https://old" } },
            ],
            "current-context": "other",
        });
        let once = merged(present, &added, "harbour");
        assert_eq!(once["clusters"].as_array().unwrap().len(), 2, "{once:#}");
        assert_eq!(once["clusters"][1], json!({ "name": "harbour", "cluster": { "server": "https://new" } }));
        assert_eq!(once["users"], json!([{ "name": "harbour-admin", "user": { "token": "t" } }]));
        assert_eq!(
            once["contexts"],
            json!([{ "name": "harbour", "context": { "cluster": "harbour", "user": "harbour-admin" } }])
        );
        assert_eq!(once["current-context"], "harbour");
        assert_eq!(once["preferences"], json!({}), "other members stay");
        assert_eq!(merged(once.clone(), &added, "harbour"), once, "a second merge changes nothing");
    }

    #[test]
    fn a_file_named_like_an_output_format_is_rejected_unless_it_has_a_directory() {
        for name in ["json", "yaml", "wide", "name"] {
            let error = reject_format_name(Path::new(name)).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("-o names a file here, and {name} is an output format")),
                "{error}"
            );
            assert!(error.ends_with(&format!("pass -o ./{name} for a file of that name")), "{error}");
            assert!(reject_format_name(&Path::new(".").join(name)).is_ok(), "./{name}");
        }
        for name in ["-", "harbour.yaml", "YAML", "yaml/harbour", "/tmp/yaml"] {
            assert!(reject_format_name(Path::new(name)).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_written_file_is_readable_by_its_owner_only_even_if_it_replaces_another() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("deep/config");
        std::fs::create_dir(place.path().join("deep")).unwrap();
        std::fs::write(&file, "open to all").unwrap();
        write_private(&file, "secret").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "secret");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
