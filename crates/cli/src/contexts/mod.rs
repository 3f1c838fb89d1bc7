//! Contexts: which server a command speaks with, and as whom, in kubectl's manner.
//!
//! `up` writes a context file into its data directory: address, authority, certificate and key, for its owner only. The
//! list of known contexts (`~/.config/shipshape/contexts.toml`) only points at such files, so that no key is copied and
//! a deleted data directory takes its context with it. A context is named after its data directory. The newest becomes
//! the current one only if there is none or the current one is gone: whoever chose a context keeps it.

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

/// Names the context; not a setting.
const VARIABLE: &str = "SHIPSHAPE_CONTEXT";

/// What the command line says about which server is meant.
#[derive(Debug, Clone, Default)]
pub struct ServerSelection {
    /// `--context`.
    pub context: Option<String>,
    /// `--server`.
    pub server: Option<String>,
    /// `--data-dir`: the server that keeps its things there.
    pub data_dir: Option<PathBuf>,
}

/// A context that was found, and how it is called.
#[derive(Debug, Clone)]
pub struct SelectedContext {
    /// Its name, or the path of its file.
    pub name: String,
    /// What it says.
    pub context: client::Context,
    /// Its file, which is in the server's data directory when that is on this machine; none for a bare --server.
    pub file: Option<PathBuf>,
}

/// A client of the server that is meant.
pub fn connect(selection: &ServerSelection, environment: &Environment) -> anyhow::Result<Client> {
    let selected = select(selection, environment)?;
    Client::new(&selected.context).with_context(|| format!("context {}", selected.name))
}

/// The context that is meant: `--context`, else `SHIPSHAPE_CONTEXT`, else that of `--data-dir`, else the current one. With
/// `--server` its address is another; over plain HTTP no credential is sent.
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
            "no server is known; `shipshape up` starts one and makes a context, `shipshape context use NAME` chooses one, --server URL names another"
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
        return named(name, environment).map(Some);
    }
    if let Some(data_dir) = &selection.data_dir {
        let path = data_dir.join(FILE);
        if !path.exists() {
            bail!(
                "{}: there is no context; `shipshape up --data-dir {}` makes it",
                path.display(),
                data_dir.display()
            );
        }
        return read(path.display().to_string(), &path).map(Some);
    }
    let contexts = Contexts::load(environment)?;
    let Some(name) = contexts.current() else { return Ok(None) };
    named(name, environment).map(Some)
}

/// A known context by its name, or any by the path of its file.
fn named(name: &str, environment: &Environment) -> anyhow::Result<SelectedContext> {
    if name.contains('/') {
        return read(name.to_owned(), Path::new(name));
    }
    let contexts = Contexts::load(environment)?;
    match contexts.get(name) {
        Some(path) => read(name.to_owned(), path).with_context(|| {
            format!("context {name} cannot be used; `shipshape context list` shows the others")
        }),
        None => {
            let known: Vec<&str> = contexts.names().collect();
            match known.is_empty() {
                true => bail!("there is no context {name:?}; none is known yet: `shipshape up` makes one"),
                false => bail!("there is no context {name:?}; there are {}", known.join(", ")),
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

/// A context that was made known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedContext {
    /// Its name, or the path of its file where there is no list.
    pub name: String,
    /// Whether commands use it when nobody says otherwise.
    pub current: bool,
}

/// Writes the context of the server that runs in `data_dir` and makes it known, so that a command in another terminal finds
/// it.
pub fn publish(
    data_dir: &Path,
    file: &ContextFile,
    environment: &Environment,
) -> anyhow::Result<PublishedContext> {
    let data_dir = data_dir
        .canonicalize()
        .with_context(|| format!("data_dir {}: has no full path", data_dir.display()))?;
    let path = data_dir.join(FILE);
    file.write(&path)?;
    match Contexts::register(&path, environment) {
        Ok(published) => Ok(published),
        Err(error) => {
            // A service account may have no home. Its context can still be named by its path.
            tracing::warn!("The context is not in the list of known ones: {error:#}");
            Ok(PublishedContext { name: path.display().to_string(), current: false })
        }
    }
}
