//! Output of results: tables and descriptions for people, JSON and YAML for programs, names for scripts.

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Invocation;
use super::table::{self, Column, View};
use crate::output;

/// The output format flag.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct Output {
    /// Output format [default: a table or description]
    #[arg(short, long, value_enum, value_name = "FORM")]
    output: Option<OutputFormat>,
}

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// A table with more columns, and timestamps instead of ages
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Names only, for scripts
    Name,
}

/// A resource that can be printed in every format.
pub(super) trait Printable: Serialize {
    /// Kind in the singular, such as `cluster`.
    const KIND: &'static str;
    /// Kind in the plural; empty for the singular with an `s`.
    const KIND_PLURAL: &'static str = "";
    /// The columns of a list.
    const COLUMNS: &'static [Column];
    /// Name by which commands accept the resource.
    fn name(&self) -> String;
    /// One cell for each column.
    fn cells(&self, view: &View) -> Vec<String>;
    /// Names and values of a description.
    fn details(&self, view: &View) -> Vec<(&'static str, String)>;
}

impl Output {
    fn view(self, invocation: &Invocation<'_>) -> View {
        View { now: invocation.now(), wide: self.output == Some(OutputFormat::Wide) }
    }

    /// Whether the format is a table or a description.
    pub(super) fn is_human(self) -> bool {
        matches!(self.output, None | Some(OutputFormat::Wide))
    }

    /// Whether a single resource is printed as a description.
    pub(super) fn is_description(self) -> bool {
        self.output.is_none()
    }

    /// Whether the format is JSON or YAML.
    pub(super) fn is_structured(self) -> bool {
        matches!(self.output, Some(OutputFormat::Json | OutputFormat::Yaml))
    }

    /// Whether only names are printed.
    pub(super) fn is_names(self) -> bool {
        self.output == Some(OutputFormat::Name)
    }

    /// Prints a list.
    pub(super) fn print_list<T: Printable>(
        self,
        invocation: &Invocation<'_>,
        items: &[T],
    ) -> anyhow::Result<()> {
        if items.is_empty() && self.is_human() {
            let kinds = match T::KIND_PLURAL {
                "" => format!("{}s", T::KIND),
                plural => plural.to_owned(),
            };
            output::note(&format!("no {kinds} found"));
            return Ok(());
        }
        output::show(&list(items, self.output, &self.view(invocation), true)?)
    }

    /// Prints rows of a watched list; `heading` says whether the header is printed.
    pub(super) fn print_rows<T: Printable>(
        self,
        invocation: &Invocation<'_>,
        items: &[T],
        heading: bool,
    ) -> anyhow::Result<()> {
        match self.output {
            None | Some(OutputFormat::Wide | OutputFormat::Name) => {
                output::show(&list(items, self.output, &self.view(invocation), heading)?)
            }
            // One document per item, because an endless list has no closing bracket.
            Some(OutputFormat::Json | OutputFormat::Yaml) => {
                items.iter().try_for_each(|item| self.print(invocation, item))
            }
        }
    }

    /// Prints one resource.
    pub(super) fn print<T: Printable>(self, invocation: &Invocation<'_>, item: &T) -> anyhow::Result<()> {
        output::show(&single(item, self.output, &self.view(invocation))?)
    }

    /// Prints a value that has neither a name nor a table; `text` renders it for all formats but JSON and YAML.
    pub(super) fn print_value<T: Serialize>(
        self,
        invocation: &Invocation<'_>,
        item: &T,
        text: impl FnOnce(&View) -> String,
    ) -> anyhow::Result<()> {
        output::show(&match self.output {
            None | Some(OutputFormat::Wide | OutputFormat::Name) => text(&self.view(invocation)),
            Some(OutputFormat::Json) => json(item)?,
            Some(OutputFormat::Yaml) => yaml(item)?,
        })
    }

    /// Prints the change of a resource: `kind/name changed` for people, else the resource.
    pub(super) fn print_change<T: Printable>(
        self,
        invocation: &Invocation<'_>,
        item: &T,
        did: &str,
    ) -> anyhow::Result<()> {
        match self.output {
            None | Some(OutputFormat::Wide) => output::show(&format!("{}/{} {did}\n", T::KIND, item.name())),
            Some(_) => self.print(invocation, item),
        }
    }
}

fn list<T: Printable>(
    items: &[T],
    form: Option<OutputFormat>,
    view: &View,
    heading: bool,
) -> anyhow::Result<String> {
    Ok(match form {
        None | Some(OutputFormat::Wide) => {
            let rows: Vec<Vec<String>> = items.iter().map(|item| item.cells(view)).collect();
            table::rows(T::COLUMNS, &rows, view, heading)
        }
        Some(OutputFormat::Json) => json(&items)?,
        Some(OutputFormat::Yaml) => yaml(&items)?,
        Some(OutputFormat::Name) => {
            items.iter().map(|item| format!("{}/{}\n", T::KIND, item.name())).collect()
        }
    })
}

fn single<T: Printable>(item: &T, form: Option<OutputFormat>, view: &View) -> anyhow::Result<String> {
    Ok(match form {
        None => table::details(&item.details(view)),
        Some(OutputFormat::Wide) => table::rows(T::COLUMNS, &[item.cells(view)], view, true),
        Some(OutputFormat::Json) => json(item)?,
        Some(OutputFormat::Yaml) => yaml(item)?,
        Some(OutputFormat::Name) => format!("{}/{}\n", T::KIND, item.name()),
    })
}

fn json<T: Serialize>(item: &T) -> anyhow::Result<String> {
    Ok(format!("{:#}\n", serde_json::to_value(item)?))
}

fn yaml<T: Serialize>(item: &T) -> anyhow::Result<String> {
    // Converted by way of JSON, so that both formats have the same members.
    let text = serde_saphyr::to_string(&serde_json::to_value(item)?)?;
    Ok(format!("---\n{}\n", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::super::table::Width;
    use super::*;

    #[derive(Serialize)]
    struct Sample {
        name: &'static str,
        count: u8,
    }

    impl Printable for Sample {
        const KIND: &'static str = "ship";
        const COLUMNS: &'static [Column] = &[Column("NAME", Width::Always), Column("MASTS", Width::Wide)];

        fn name(&self) -> String {
            self.name.to_owned()
        }

        fn cells(&self, _view: &View) -> Vec<String> {
            vec![self.name(), self.count.to_string()]
        }

        fn details(&self, _view: &View) -> Vec<(&'static str, String)> {
            vec![("Name", self.name()), ("Masts", self.count.to_string())]
        }
    }

    #[test]
    fn each_output_format_is_rendered() {
        let samples = [Sample { name: "yes", count: 3 }];
        let view = View { now: "2026-01-01T00:00:00Z".parse().unwrap(), wide: false };
        let listed = |form| list(&samples, form, &view, true).unwrap();
        assert_eq!(listed(None), "NAME\nyes\n");
        assert_eq!(listed(Some(OutputFormat::Name)), "ship/yes\n");
        let json: serde_json::Value = serde_json::from_str(&listed(Some(OutputFormat::Json))).unwrap();
        assert_eq!(json, serde_json::json!([{ "name": "yes", "count": 3 }]));
        let yaml: serde_json::Value = serde_saphyr::from_str(&listed(Some(OutputFormat::Yaml))).unwrap();
        assert_eq!(yaml, json, "a word that YAML 1.1 takes for a truth stays a word");
        assert_eq!(single(&samples[0], None, &view).unwrap(), "Name:   yes\nMasts:  3\n");
        assert_eq!(single(&samples[0], Some(OutputFormat::Name), &view).unwrap(), "ship/yes\n");
    }
}
