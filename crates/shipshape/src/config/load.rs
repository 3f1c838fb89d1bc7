//! Combines the layers: every value is tried alone against the typed [`Config`], so that one
//! mistake does not hide the next, and then all of them together.

use cli::Environment;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Table, Value};

#[cfg(feature = "services")]
use super::checks;
use super::keys::Keys;
use super::layers::{Flag, Layers, Raw, SettingValue, config_file};
use super::origin::Origin;
use super::{Config, values};

/// The settings of this process and their origins.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The settings, all checked.
    pub(crate) config: Config,
    /// The configuration file, if one was read.
    pub(crate) file: Option<PathBuf>,
    pub(super) origins: BTreeMap<String, Origin>,
    /// A message for each old key in use.
    pub(super) renamed: Vec<String>,
}

/// Everything that is wrong with the configuration; never empty.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConfigErrors(pub(super) Vec<String>);

impl ConfigErrors {
    /// One message per mistake.
    pub(crate) fn sentences(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for ConfigErrors {}

/// Reads and checks the configuration.
pub(crate) fn load(
    file: Option<&Path>,
    environment: &Environment,
    flags: &[Flag],
) -> Result<Loaded, ConfigErrors> {
    let keys = Keys::for_type::<Config>();
    let mut layers = Layers::default();
    let file = config_file(file, environment).map(|(path, named_by)| {
        layers.add_file(&keys, &path, named_by);
        path
    });
    layers.add_environment(&keys, environment);
    layers.add_flags(&keys, flags);
    layers.add_defaults_of_command(flags);
    add_default_paths(&mut layers, environment);

    let mut problems = layers.problems;
    let mut table = Table::new();
    for (key, given) in &layers.given {
        match validate(key, given) {
            Ok(value) => insert(&mut table, key, value),
            Err(problem) => problems.push(problem),
        }
    }
    // Rejected values are missing in the table and have their defaults here, so that the checks
    // between settings still run.
    let config = Config::deserialize(Value::Table(table));
    let config = config.map_err(|error| ConfigErrors(vec![error.message().to_owned()]))?;
    let renamed = layers.renamed;
    let origins = layers.given.into_iter().map(|(key, given)| (key, given.origin)).collect();
    #[cfg(feature = "services")]
    problems.extend(checks::between_settings(&config, &origins));
    if problems.is_empty() {
        Ok(Loaded { config, file, origins, renamed })
    } else {
        Err(ConfigErrors(problems))
    }
}

/// The defaults that depend on the home directory and on `data_dir`.
fn add_default_paths(layers: &mut Layers, environment: &Environment) {
    let base = environment.base_dir("XDG_DATA_HOME", ".local/share").map(|base| base.join("shipshape"));
    match base.as_deref().and_then(Path::to_str) {
        Some(path) => layers.add_default("data_dir", path.to_owned()),
        None if layers.given.contains_key("data_dir") => {}
        None => layers.problems.push(
            "data_dir is not set, and neither XDG_DATA_HOME nor HOME is set; pass --data-dir".to_owned(),
        ),
    }
    let data_dir = layers.given.get("data_dir").and_then(|given| validate("data_dir", given).ok());
    if cfg!(not(feature = "services")) {
        return;
    }
    // An invalid data_dir is reported once, not again for each path inside it.
    let Some(Value::String(data_dir)) = data_dir else { return };
    let inside = |name: &str| format!("{}/{name}", data_dir.trim_end_matches('/'));
    layers.add_default("store.url", format!("sqlite:{}", inside("shipshape.db")));
    layers.add_default("store.key_file", inside("keys"));
}

/// The value if the typed configuration accepts it, else an error message.
fn validate(key: &str, given: &SettingValue) -> Result<Value, String> {
    let candidates = match &given.value {
        Raw::Typed(value) => vec![value.clone()],
        // A variable or flag is text; only the type of the setting decides whether `8` is a number.
        Raw::Text(text) => std::iter::once(Value::String(text.clone())).chain(typed_value(text)).collect(),
    };
    let mut message = String::new();
    for value in candidates {
        let mut alone = Table::new();
        insert(&mut alone, key, value.clone());
        match Config::deserialize(Value::Table(alone)) {
            Ok(_) => return Ok(value),
            Err(error) => message = error.message().trim_end().to_owned(),
        }
    }
    Err(format!("{key}{} ({}): {message}", shown(key, &given.value), given.origin))
}

/// `text` parsed as a TOML value other than a string.
fn typed_value(text: &str) -> Option<Value> {
    let mut table: Table = toml::from_str(&format!("value = {text}")).ok()?;
    table.remove("value").filter(|value| !value.is_str())
}

/// The rejected value as it appears in the error message.
fn shown(key: &str, value: &Raw) -> String {
    const LENGTH_MAX: usize = 120; // a longer value would hide the rest of the message
    let text = match value {
        Raw::Text(text) | Raw::Typed(Value::String(text)) => text.clone(),
        Raw::Typed(value @ (Value::Integer(_) | Value::Float(_) | Value::Boolean(_))) => {
            return format!(" = {value}");
        }
        Raw::Typed(_) => return String::new(),
    };
    if key.ends_with("url") || key.ends_with("endpoint") {
        // A rejected URL could not be parsed, so its password could be anywhere in it.
        let scheme = text.split_once(':').map(|(scheme, _)| scheme);
        let scheme = scheme.filter(|scheme| scheme.bytes().all(|byte| byte.is_ascii_alphabetic()));
        return scheme.map(|scheme| format!(" = \"{scheme}:…\"")).unwrap_or_default();
    }
    let text = values::redacted(&text);
    match text.char_indices().nth(LENGTH_MAX) {
        Some((end, _)) => format!(" = {:?}…", &text[..end]),
        None => format!(" = {text:?}"),
    }
}

/// Inserts `value` at the dotted `key`.
fn insert(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value);
        }
        Some((section, rest)) => {
            let inner = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}
