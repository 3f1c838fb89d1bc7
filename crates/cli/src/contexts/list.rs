//! The list of registered contexts and the current one.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use super::PublishedContext;
use crate::Environment;
use crate::private_file;

/// The registered contexts: names and the paths of their files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Contexts {
    current: Option<String>,
    contexts: BTreeMap<String, ContextEntry>,
}

/// The path of a context file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextEntry {
    /// Path of the context file.
    pub file: PathBuf,
}

impl ContextEntry {
    /// Whether the file no longer exists.
    pub fn is_missing(&self) -> bool {
        !self.file.exists()
    }
}

impl Contexts {
    /// Reads the list; a missing list is empty.
    pub fn load(environment: &Environment) -> anyhow::Result<Contexts> {
        match list_file(environment) {
            Ok(path) => Contexts::read(&path),
            Err(_) => Ok(Contexts::default()),
        }
    }

    fn read(path: &Path) -> anyhow::Result<Contexts> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Contexts::default()),
            Err(error) => {
                return Err(error).with_context(|| format!("{}: cannot be read", path.display()));
            }
        };
        toml::from_str(&text).map_err(|error| {
            anyhow::anyhow!(
                "{}: not a list of contexts: {}; correct or remove the file",
                path.display(),
                error.message()
            )
        })
    }

    /// The name of the current context.
    pub fn current(&self) -> Option<&str> {
        self.current.as_deref().filter(|name| self.contexts.contains_key(*name))
    }

    /// The path of a context file.
    pub fn get(&self, name: &str) -> Option<&Path> {
        self.contexts.get(name).map(|entry| entry.file.as_path())
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.contexts.keys().map(String::as_str)
    }

    /// All entries, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ContextEntry)> {
        self.contexts.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// Makes `name` the current context.
    pub fn set_current(name: &str, environment: &Environment) -> anyhow::Result<()> {
        Contexts::change(environment, |contexts| {
            if !contexts.contexts.contains_key(name) {
                let names: Vec<&str> = contexts.names().collect();
                bail!("context {name:?} not found; registered contexts: {}", names.join(", "));
            }
            contexts.current = Some(name.to_owned());
            Ok(())
        })
    }

    /// Registers a context file.
    pub(super) fn register(file: &Path, environment: &Environment) -> anyhow::Result<PublishedContext> {
        Contexts::change(environment, |contexts| {
            let name = contexts.add(file, |entry| !entry.is_missing());
            let current = contexts.current() == Some(name.as_str());
            Ok(PublishedContext { name, current })
        })
    }

    /// Adds `file` under a name derived from its directory. It becomes the current context unless another existing one is.
    pub(super) fn add(&mut self, file: &Path, exists: impl Fn(&ContextEntry) -> bool) -> String {
        let base = base_name(file);
        let numbered = |number: usize| match number {
            1 => base.clone(),
            number => format!("{base}-{number}"),
        };
        let registered =
            self.contexts.iter().find(|(_, entry)| entry.file == file).map(|(name, _)| name.clone());
        let is_free = |name: &String| self.contexts.get(name).is_none_or(|entry| !exists(entry));
        let name = registered.unwrap_or_else(|| {
            // There are fewer contexts than numbers.
            (1..).map(numbered).find(is_free).unwrap_or_else(|| base.clone())
        });
        self.contexts.insert(name.clone(), ContextEntry { file: file.to_owned() });
        let current = self.current.as_ref().and_then(|current| self.contexts.get(current));
        if current.is_none_or(|entry| !exists(entry)) {
            self.current = Some(name.clone());
        }
        name
    }

    /// Reads, changes and writes the list under a file lock.
    fn change<T>(
        environment: &Environment,
        change: impl FnOnce(&mut Contexts) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let path = list_file(environment)?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .with_context(|| format!("{}: cannot be created", directory.display()))?;
        let lock = path.with_extension("lock");
        let lock = private_file::open_lock(&lock)
            .and_then(|file| file.lock().map(|()| file))
            .with_context(|| format!("{}: cannot be locked", lock.display()))?;
        let mut contexts = Contexts::read(&path)?;
        let changed = change(&mut contexts)?;
        private_file::write(
            &path,
            &toml::to_string(&contexts).context("contexts cannot be written as TOML")?,
        )?;
        drop(lock);
        Ok(changed)
    }
}

/// The last segment of the data directory's path, restricted to characters that need no quoting in a shell.
fn base_name(file: &Path) -> String {
    let directory = file.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let name: String = directory
        .unwrap_or_default()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' })
        .collect();
    match name.trim_matches('.').trim_start_matches('-') {
        "" => "shipshape".to_owned(),
        name => name.to_owned(),
    }
}

fn list_file(environment: &Environment) -> anyhow::Result<PathBuf> {
    let base = environment.base_dir("XDG_CONFIG_HOME", ".config");
    let base =
        base.context("the list of contexts cannot be located: neither XDG_CONFIG_HOME nor HOME is set")?;
    Ok(base.join("shipshape").join("contexts.toml"))
}
