//! The three sources of values, each read into the same form: key, value, origin.

use cli::Environment;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use toml::Value;
use toml::de::{DeTable, DeValue};

use super::keys::{Keys, Kind, nearest};
use super::origin::Origin;
use super::renamed;
use super::variables::{self, PREFIX};

/// A setting given on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Flag {
    /// A flag of its own, such as `--data-dir D`.
    Named {
        /// The flag as it is written.
        flag: &'static str,
        /// The key of the setting.
        key: &'static str,
        /// Its value.
        value: String,
    },
    /// `--set key=value`, unparsed.
    Set(String),
    /// A default of the subcommand.
    #[cfg_attr(not(feature = "services"), expect(dead_code, reason = "only `up` has defaults of its own"))]
    Default {
        /// The setting.
        key: &'static str,
        /// Its value, in the format of a flag.
        value: String,
    },
}

/// The value of a known setting and its origin.
#[derive(Debug, Clone)]
pub(super) struct SettingValue {
    pub(super) value: Raw,
    pub(super) origin: Origin,
}

/// A value before its type is known.
#[derive(Debug, Clone)]
pub(super) enum Raw {
    /// From the file, where TOML gave it a type.
    Typed(Value),
    /// From a variable or a flag, where everything is text.
    Text(String),
}

/// The values by precedence, and the problems found.
#[derive(Debug, Default)]
pub(super) struct Layers {
    pub(super) given: BTreeMap<String, SettingValue>,
    pub(super) problems: Vec<String>,
    /// A message for each old key in use.
    pub(super) renamed: Vec<String>,
}

impl Layers {
    /// Reads the configuration file. The default file need not exist.
    pub(super) fn add_file(&mut self, keys: &Keys, path: &Path, named_by: Option<&str>) {
        let by = named_by.map(|by| format!(" ({by})")).unwrap_or_default();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                let why = match error.kind() {
                    std::io::ErrorKind::NotFound => "it does not exist".to_owned(),
                    std::io::ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
                    _ => error.to_string(),
                };
                self.problems
                    .push(format!("the configuration file {}{by} cannot be read: {why}", path.display()));
                return;
            }
        };
        let (document, errors) = DeTable::parse_recoverable(&text);
        for error in errors {
            // Only the message: the parser's own display repeats the line, which may hold a password.
            let line = line_at(&text, error.span().map_or(0, |span| span.start));
            self.problems.push(format!("{} line {line} is not TOML: {}", path.display(), error.message()));
        }
        self.add_table(keys, &text, path, "", document.get_ref());
    }

    fn add_table(&mut self, keys: &Keys, text: &str, path: &Path, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table.iter() {
            let key = if prefix.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{prefix}.{}", name.get_ref())
            };
            let origin = Origin::File { path: PathBuf::from(path), line: line_at(text, name.span().start) };
            let key = self.current_key(key, &origin);
            match (keys.kind(&key), value.get_ref()) {
                (Some(Kind::Section), DeValue::Table(inner)) => self.add_table(keys, text, path, &key, inner),
                (Some(Kind::Section), _) => {
                    self.problems.push(format!("{key} ({origin}) is a section; write [{key}]"));
                }
                (Some(Kind::Setting), value) => match typed(value) {
                    Some(value) => self.insert(key, Raw::Typed(value), origin),
                    None => self.problems.push(format!("{key} ({origin}): the number is too large")),
                },
                (None, _) => self.reject_key(keys, &key, &origin),
            }
        }
    }

    /// Reads the `SHIPSHAPE_*` variables.
    pub(super) fn add_environment(&mut self, keys: &Keys, environment: &Environment) {
        let old = renamed::RENAMED.iter().map(|(old, _)| *old);
        let names: BTreeMap<String, &str> =
            keys.settings().chain(old).map(|key| (variable(key), key)).collect();
        for (name, value) in variables::settings(environment) {
            let Some(key) = names.get(&name) else {
                let near = nearest(&name, names.keys().map(String::as_str)).unwrap_or_default();
                self.problems
                    .push(format!("unknown environment variable {name}; the nearest known one is {near}"));
                continue;
            };
            let origin = Origin::Variable(name);
            let key = self.current_key((*key).to_owned(), &origin);
            match value.to_str() {
                Some(text) => self.insert(key, Raw::Text(text.to_owned()), origin),
                None => self.problems.push(format!("{key} ({origin}): the value is not UTF-8 text")),
            }
        }
    }

    /// Reads the flags. A named flag overrides `--set`; the last of several `--set` wins.
    pub(super) fn add_flags(&mut self, keys: &Keys, flags: &[Flag]) {
        for flag in flags {
            let Flag::Set(text) = flag else { continue };
            let origin = Origin::Flag("--set");
            // The message repeats only the key: the rest may be a value, and the value a secret.
            let ends = text.find(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c));
            let (key, rest) = text.split_at(ends.unwrap_or(text.len()));
            let key = self.current_key(key.to_owned(), &origin);
            let key = key.as_str();
            match (rest.strip_prefix('='), keys.kind(key)) {
                (None, _) => self
                    .problems
                    .push(format!("--set {key:?}…: expected KEY=VALUE, such as --set log.level=debug")),
                (Some(value), Some(Kind::Setting)) => {
                    self.insert(key.to_owned(), Raw::Text(value.to_owned()), origin);
                }
                (Some(_), Some(Kind::Section)) => {
                    self.problems.push(format!("{key} ({origin}) is a section; name a setting in it"));
                }
                (Some(_), None) => self.reject_key(keys, key, &origin),
            }
        }
        for flag in flags {
            let Flag::Named { flag, key, value } = flag else { continue };
            self.insert((*key).to_owned(), Raw::Text(value.clone()), Origin::Flag(flag));
        }
    }

    /// Adds the defaults of the subcommand: the lowest layer.
    pub(super) fn add_defaults_of_command(&mut self, flags: &[Flag]) {
        for flag in flags {
            if let Flag::Default { key, value } = flag {
                self.add_default(key, value.clone());
            }
        }
    }

    /// Adds a default unless the setting has a value.
    pub(super) fn add_default(&mut self, key: &str, value: String) {
        let default = SettingValue { value: Raw::Text(value), origin: Origin::Default };
        self.given.entry(key.to_owned()).or_insert(default);
    }

    /// Adds a value, which overrides those of the layers below. One layer holds a setting twice only under its old and its new key.
    fn insert(&mut self, key: String, value: Raw, origin: Origin) {
        let before = self.given.get(&key).map(|given| &given.origin);
        if let Some(before) = before.filter(|before| origin.is_same_layer(before)) {
            self.problems.push(format!(
                "{key} is set twice, by its old and its new name ({before} and {origin}); remove the old one"
            ));
            return;
        }
        self.given.insert(key, SettingValue { value, origin });
    }

    /// The current key of a setting; the use of an old key is recorded.
    fn current_key(&mut self, key: String, origin: &Origin) -> String {
        let Some(current) = renamed::current(&key) else { return key };
        self.renamed.push(format!("{key} ({origin}) is now called {current}"));
        current.to_owned()
    }

    fn reject_key(&mut self, keys: &Keys, key: &str, origin: &Origin) {
        let near = keys.nearest(key);
        self.problems.push(format!("unknown key {key} ({origin}); the nearest known key is {near}"));
    }
}

/// The variable of a setting: `store.key_file` is `SHIPSHAPE_STORE_KEY_FILE`.
pub(super) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_ascii_uppercase())
}

fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// The value without its places in the file, or nothing if a number does not fit.
fn typed(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => {
            Value::Integer(i64::from_str_radix(number.as_str(), number.radix()).ok()?)
        }
        DeValue::Float(number) => Value::Float(number.as_str().parse().ok()?),
        DeValue::Boolean(truth) => Value::Boolean(*truth),
        DeValue::Datetime(time) => Value::Datetime(*time),
        DeValue::Array(items) => {
            Value::Array(items.iter().map(|item| typed(item.get_ref())).collect::<Option<_>>()?)
        }
        DeValue::Table(table) => {
            let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<_>)| {
                Some((name(key), typed(value.get_ref())?))
            };
            Value::Table(table.iter().map(entry).collect::<Option<_>>()?)
        }
    })
}

fn name(key: &toml::Spanned<std::borrow::Cow<'_, str>>) -> String {
    key.get_ref().to_string()
}

/// The file to read and what named it: the flag, else the variable, else the default path if it exists.
pub(super) fn config_file(
    flag: Option<&Path>,
    environment: &Environment,
) -> Option<(PathBuf, Option<&'static str>)> {
    let by_flag = flag.map(|path| (path.to_owned(), Some("--config")));
    let by_variable = || {
        environment.get(variables::CONFIG_FILE).map(|path: &OsStr| (path.into(), Some("SHIPSHAPE_CONFIG")))
    };
    let usual = || {
        let base = environment.base_dir("XDG_CONFIG_HOME", ".config")?;
        let path = base.join("shipshape").join("config.toml");
        path.exists().then_some((path, None))
    };
    by_flag.or_else(by_variable).or_else(usual)
}
