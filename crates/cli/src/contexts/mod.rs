//! Contexts: the server that a command calls and the credential for it, like kubectl's.
//!
//! `up` writes a context file into its data directory: URL, authority, certificate and key, readable by its owner only. The
//! list of contexts (`~/.config/shipshape/contexts.toml`) only refers to such files, so that no key is copied and
//! a deleted data directory removes its context. A context is named after its data directory. A new context becomes
//! the current one only if there is none or the file of the current one no longer exists.

mod file;
mod list;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use client::Client;

use crate::Environment;
pub use file::ContextFile;
pub use list::Contexts;

/// The context file of a data directory.
const FILE: &str = "context.toml";

/// Environment variable that names the context; not a setting.
const VARIABLE: &str = "SHIPSHAPE_CONTEXT";

/// The flags that select a server.
#[derive(Debug, Clone, Default)]
pub struct ServerSelection {
    /// `--context`.
    pub context: Option<String>,
    /// `--server`.
    pub server: Option<String>,
    /// `--data-dir`: the server that runs in this data directory.
    pub data_dir: Option<PathBuf>,
}

/// The selected context.
#[derive(Debug, Clone)]
pub struct SelectedContext {
    /// Its name, or the path of its file.
    pub name: String,
    /// The server and credential.
    pub context: client::Context,
    /// The context file, in the data directory of a server on this machine; none for a bare `--server`.
    pub file: Option<PathBuf>,
}

/// A client of the selected server.
pub fn connect(selection: &ServerSelection, environment: &Environment) -> anyhow::Result<Client> {
    let selected = select(selection, environment)?;
    Client::new(&selected.context).with_context(|| format!("context {}", selected.name))
}

/// The selected context: `--context`, else `SHIPSHAPE_CONTEXT`, else that of `--data-dir`, else the current one.
/// `--server` replaces its URL; no credential is sent over plain HTTP.
pub fn select(selection: &ServerSelection, environment: &Environment) -> anyhow::Result<SelectedContext> {
    let mut selected = match (find(selection, environment), &selection.server) {
        (Ok(Some(selected)), _) => selected,
        (Err(error), _) => return Err(error),
        (Ok(None), Some(server)) => {
            let context = client::Context {
                server: server.clone(),
                authority: None,
                credential: client::Credential::None,
            };
            SelectedContext { name: "--server".to_owned(), context, file: None }
        }
        (Ok(None), None) => bail!(
            "no context is selected; start a server with `shipshape up`, select a context with `shipshape context use NAME`, or pass --server URL"
        ),
    };
    if let Some(server) = &selection.server {
        selected.context.server = server.clone();
        if client::is_plain_http(server) {
            selected.context.credential = client::Credential::None;
        }
    }
    Ok(selected)
}

fn find(selection: &ServerSelection, environment: &Environment) -> anyhow::Result<Option<SelectedContext>> {
    let variable = environment.text(VARIABLE);
    if let Some(name) = selection.context.as_ref().or(variable.as_ref()) {
        return find_by_name(name, environment).map(Some);
    }
    if let Some(data_dir) = &selection.data_dir {
        let path = data_dir.join(FILE);
        if !path.exists() {
            bail!(
                "{}: not found; run `shipshape up --data-dir {}` to create the context",
                path.display(),
                data_dir.display()
            );
        }
        return read(path.display().to_string(), &path).map(Some);
    }
    let contexts = Contexts::load(environment)?;
    let Some(name) = contexts.current() else { return Ok(None) };
    find_by_name(name, environment).map(Some)
}

/// A registered context by name, or any context by the path of its file.
fn find_by_name(name: &str, environment: &Environment) -> anyhow::Result<SelectedContext> {
    if name.contains('/') {
        return read(name.to_owned(), Path::new(name));
    }
    let contexts = Contexts::load(environment)?;
    match contexts.get(name) {
        Some(path) => read(name.to_owned(), path).with_context(|| {
            format!("context {name} cannot be used; `shipshape context list` shows the others")
        }),
        None => {
            let names: Vec<&str> = contexts.names().collect();
            match names.is_empty() {
                true => bail!(
                    "context {name:?} not found: no context is registered; run `shipshape up` to create one"
                ),
                false => bail!("context {name:?} not found; registered contexts: {}", names.join(", ")),
            }
        }
    }
}

fn read(name: String, path: &Path) -> anyhow::Result<SelectedContext> {
    Ok(SelectedContext {
        name,
        context: ContextFile::read(path)?.context(path)?,
        file: Some(path.to_owned()),
    })
}

/// A context that was written and registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedContext {
    /// Its name, or the path of its file if there is no list.
    pub name: String,
    /// Whether it is the current context.
    pub current: bool,
}

/// Writes and registers the context of the server that runs in `data_dir`, so that commands in other terminals find
/// it.
pub fn publish(
    data_dir: &Path,
    file: &ContextFile,
    environment: &Environment,
) -> anyhow::Result<PublishedContext> {
    let data_dir = data_dir
        .canonicalize()
        .with_context(|| format!("data_dir {}: cannot be resolved", data_dir.display()))?;
    let path = data_dir.join(FILE);
    file.write(&path)?;
    match Contexts::register(&path, environment) {
        Ok(published) => Ok(published),
        Err(error) => {
            // A service account may have no home directory. The path of the file still names its context.
            tracing::warn!("The context is not registered: {error:#}");
            Ok(PublishedContext { name: path.display().to_string(), current: false })
        }
    }
}
