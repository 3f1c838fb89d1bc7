//! The settings in effect, for people and programs, with passwords masked.

use std::fmt::Write as _;

use serde_json::json;
use toml::{Table, Value};

use super::load::Loaded;
use super::origin::Origin;

impl Loaded {
    /// A message for each old key in use.
    pub(crate) fn renamed(&self) -> &[String] {
        &self.renamed
    }

    /// The text of `config check`: one line, and one more for each old key.
    pub(crate) fn summary(&self) -> String {
        let valid = match &self.file {
            Some(path) => format!("configuration is valid (file {})\n", path.display()),
            None => "configuration is valid (no file; defaults, environment and flags)\n".to_owned(),
        };
        self.renamed.iter().fold(valid, |text, sentence| text + sentence + "\n")
    }

    /// As a configuration file; with `origins`, each line has the origin of its value.
    pub(crate) fn to_toml(&self, origins: bool) -> anyhow::Result<String> {
        let mut text = String::new();
        let table = Table::try_from(&self.config)?;
        self.section(&mut text, "", &table, origins)?;
        Ok(text)
    }

    fn section(&self, text: &mut String, prefix: &str, table: &Table, origins: bool) -> std::fmt::Result {
        // Settings before sections, as TOML demands.
        let (sections, settings): (Vec<_>, Vec<_>) = table.iter().partition(|(_, value)| value.is_table());
        for (name, value) in settings {
            self.line(text, &format!("{prefix}{name}"), name, value, origins)?;
        }
        for (name, section) in sections {
            let Some(section) = section.as_table() else { continue };
            write!(text, "\n[{prefix}{name}]\n")?;
            self.section(text, &format!("{prefix}{name}."), section, origins)?;
        }
        Ok(())
    }

    /// As one JSON object; with `origins`, each value becomes `{"value": …, "origin": …}`.
    pub(crate) fn to_json(&self, origins: bool) -> anyhow::Result<String> {
        let mut document = serde_json::to_value(&self.config)?;
        if let Some(root) = document.as_object_mut() {
            // Unset values are left out, as in TOML, which has no null.
            drop_unset(root);
            if origins {
                self.annotate("", root);
            }
        }
        Ok(format!("{document:#}\n"))
    }

    fn line(
        &self,
        text: &mut String,
        key: &str,
        name: &str,
        value: &Value,
        origins: bool,
    ) -> std::fmt::Result {
        if origins {
            writeln!(text, "{name} = {value}  # {}", self.origin(key))
        } else {
            writeln!(text, "{name} = {value}")
        }
    }

    fn annotate(&self, prefix: &str, object: &mut serde_json::Map<String, serde_json::Value>) {
        for (name, value) in object {
            match value {
                serde_json::Value::Object(inner) => self.annotate(&format!("{prefix}{name}."), inner),
                value => {
                    let origin = self.origin(&format!("{prefix}{name}")).to_string();
                    *value = json!({ "value": value.take(), "origin": origin });
                }
            }
        }
    }

    fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }
}

fn drop_unset(object: &mut serde_json::Map<String, serde_json::Value>) {
    object.retain(|_, value| !value.is_null());
    object.values_mut().filter_map(serde_json::Value::as_object_mut).for_each(drop_unset);
}
