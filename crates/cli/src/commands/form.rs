//! How answers are written: tables and descriptions for people, JSON and YAML for programs, names for scripts.

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Desk;
use super::table::{self, Column, View};
use crate::output;

/// How to write what was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct Output {
    /// How to write it [default: for people]
    #[arg(short, long, value_enum, value_name = "FORM")]
    output: Option<Form>,
}

/// The forms that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people, with more columns and with times instead of ages
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Only names, for other commands
    Name,
}

/// Something that can be shown in every form.
pub(super) trait Shown: Serialize {
    /// What it is, in the singular: `cluster`.
    const KIND: &'static str;
    /// The columns of a list.
    const COLUMNS: &'static [Column];
    /// By what commands know it.
    fn name(&self) -> String;
    /// One cell for each column.
    fn cells(&self, view: &View) -> Vec<String>;
    /// What `show` says for people.
    fn facts(&self, view: &View) -> Vec<(&'static str, String)>;
}

impl Output {
    fn view(self, desk: &Desk<'_>) -> View {
        View { now: desk.now(), wide: self.output == Some(Form::Wide) }
    }

    /// Whether it is written for people.
    pub(super) fn is_for_people(self) -> bool {
        matches!(self.output, None | Some(Form::Wide))
    }

    /// Whether one thing is described at length, as people get it who name no form.
    pub(super) fn is_description(self) -> bool {
        self.output.is_none()
    }

    /// Whether the thing itself is written, for programs.
    pub(super) fn is_for_programs(self) -> bool {
        matches!(self.output, Some(Form::Json | Form::Yaml))
    }

    /// Whether only names are written.
    pub(super) fn is_for_names(self) -> bool {
        self.output == Some(Form::Name)
    }

    /// Writes a list.
    pub(super) fn list<T: Shown>(self, desk: &Desk<'_>, items: &[T]) -> anyhow::Result<()> {
        if items.is_empty() && self.is_for_people() {
            output::note(&format!("no {}s found", T::KIND));
            return Ok(());
        }
        output::show(&list(items, self.output, &self.view(desk), true)?)
    }

    /// Writes the rows of a list that is being watched; the heading only once.
    pub(super) fn rows<T: Shown>(self, desk: &Desk<'_>, items: &[T], heading: bool) -> anyhow::Result<()> {
        match self.output {
            None | Some(Form::Wide | Form::Name) => {
                output::show(&list(items, self.output, &self.view(desk), heading)?)
            }
            // Each on its own: a list that never ends has no closing bracket.
            Some(Form::Json | Form::Yaml) => items.iter().try_for_each(|item| self.one(desk, item)),
        }
    }

    /// Writes one thing.
    pub(super) fn one<T: Shown>(self, desk: &Desk<'_>, item: &T) -> anyhow::Result<()> {
        output::show(&one(item, self.output, &self.view(desk))?)
    }

    /// Writes what has no name and no table of its own; `text` makes the form for people, which those get too who ask for names.
    pub(super) fn plain<T: Serialize>(
        self,
        desk: &Desk<'_>,
        item: &T,
        text: impl FnOnce(&View) -> String,
    ) -> anyhow::Result<()> {
        output::show(&match self.output {
            None | Some(Form::Wide | Form::Name) => text(&self.view(desk)),
            Some(Form::Json) => json(item)?,
            Some(Form::Yaml) => yaml(item)?,
        })
    }

    /// Writes that something was done to a thing: a sentence for people, else the thing.
    pub(super) fn done<T: Shown>(self, desk: &Desk<'_>, item: &T, did: &str) -> anyhow::Result<()> {
        match self.output {
            None | Some(Form::Wide) => output::show(&format!("{}/{} {did}\n", T::KIND, item.name())),
            Some(_) => self.one(desk, item),
        }
    }
}

fn list<T: Shown>(items: &[T], form: Option<Form>, view: &View, heading: bool) -> anyhow::Result<String> {
    Ok(match form {
        None | Some(Form::Wide) => {
            let rows: Vec<Vec<String>> = items.iter().map(|item| item.cells(view)).collect();
            table::rows(T::COLUMNS, &rows, view, heading)
        }
        Some(Form::Json) => json(&items)?,
        Some(Form::Yaml) => yaml(&items)?,
        Some(Form::Name) => items.iter().map(|item| format!("{}/{}\n", T::KIND, item.name())).collect(),
    })
}

fn one<T: Shown>(item: &T, form: Option<Form>, view: &View) -> anyhow::Result<String> {
    Ok(match form {
        None => table::facts(&item.facts(view)),
        Some(Form::Wide) => table::rows(T::COLUMNS, &[item.cells(view)], view, true),
        Some(Form::Json) => json(item)?,
        Some(Form::Yaml) => yaml(item)?,
        Some(Form::Name) => format!("{}/{}\n", T::KIND, item.name()),
    })
}

fn json<T: Serialize>(item: &T) -> anyhow::Result<String> {
    Ok(format!("{:#}\n", serde_json::to_value(item)?))
}

fn yaml<T: Serialize>(item: &T) -> anyhow::Result<String> {
    // By way of JSON, so that both show the same.
    let text = serde_saphyr::to_string(&serde_json::to_value(item)?)?;
    Ok(format!("---\n{}\n", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::super::table::Width;
    use super::*;

    #[derive(Serialize)]
    struct Ship {
        name: &'static str,
        masts: u8,
    }

    impl Shown for Ship {
        const KIND: &'static str = "ship";
        const COLUMNS: &'static [Column] = &[Column("NAME", Width::Always), Column("MASTS", Width::Wide)];

        fn name(&self) -> String {
            self.name.to_owned()
        }

        fn cells(&self, _view: &View) -> Vec<String> {
            vec![self.name(), self.masts.to_string()]
        }

        fn facts(&self, _view: &View) -> Vec<(&'static str, String)> {
            vec![("Name", self.name()), ("Masts", self.masts.to_string())]
        }
    }

    #[test]
    fn each_form_is_what_its_reader_expects() {
        let ships = [Ship { name: "yes", masts: 3 }];
        let view = View { now: "2026-01-01T00:00:00Z".parse().unwrap(), wide: false };
        let listed = |form| list(&ships, form, &view, true).unwrap();
        assert_eq!(listed(None), "NAME\nyes\n");
        assert_eq!(listed(Some(Form::Name)), "ship/yes\n");
        let json: serde_json::Value = serde_json::from_str(&listed(Some(Form::Json))).unwrap();
        assert_eq!(json, serde_json::json!([{ "name": "yes", "masts": 3 }]));
        let yaml: serde_json::Value = serde_saphyr::from_str(&listed(Some(Form::Yaml))).unwrap();
        assert_eq!(yaml, json, "a word that YAML 1.1 takes for a truth stays a word");
        assert_eq!(one(&ships[0], None, &view).unwrap(), "Name:   yes\nMasts:  3\n");
        assert_eq!(one(&ships[0], Some(Form::Name), &view).unwrap(), "ship/yes\n");
    }
}
