//! Reads what a step is given, member by member, and refuses what no one asked for. Pure.
//!
//! A task is read twice: when it is stored, where templates still stand for values that nobody knows yet, and when a plan is
//! made, where everything is known. A kind reads its members once for both; while a template stands there, it is handed a
//! sample.

use std::time::Duration;

use api::duration::TimeSpan;
use serde_json::{Map, Value};

use super::labels;
use crate::problem::Problem;
use crate::template::has_template;

/// When a step is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// When the task is stored: templates stand for values.
    Stored,
    /// When the plan is made: all values are there.
    Planned,
}

/// The members of a `with`.
#[derive(Debug)]
pub(super) struct With<'a> {
    place: &'a str,
    members: &'a Map<String, Value>,
    stage: Stage,
    asked: Vec<&'static str>,
}

/// Which objects a step is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Which {
    Named(String),
    Labelled(String),
}

impl<'a> With<'a> {
    pub(super) fn new(place: &'a str, members: &'a Map<String, Value>, stage: Stage) -> With<'a> {
        With { place, members, stage, asked: Vec::new() }
    }

    /// A problem with one of the members.
    pub(super) fn problem(&self, name: &str, message: impl Into<String>) -> Problem {
        Problem::at(format!("{}.{name}", self.place), message)
    }

    /// Whether a member is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|value| !value.is_null())
    }

    /// Whether a template stands for a member, or for a part of it.
    pub(super) fn is_template(&self, name: &str) -> bool {
        self.stage == Stage::Stored && self.members.get(name).is_some_and(has_template)
    }

    /// A member that `read` understands; `sample` while a template stands for it.
    pub(super) fn member<T>(
        &mut self,
        name: &'static str,
        sample: T,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Result<Option<T>, Problem> {
        self.asked.push(name);
        if !self.has(name) {
            return Ok(None);
        }
        if self.is_template(name) {
            return Ok(Some(sample));
        }
        let value = self.members.get(name).unwrap_or(&Value::Null);
        read(value).map(Some).map_err(|message| self.problem(name, message))
    }

    /// A member as it is, templates and all.
    pub(super) fn raw(&mut self, name: &'static str) -> Option<&'a Value> {
        self.asked.push(name);
        self.members.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<String>, Problem> {
        self.member(name, "sample".to_owned(), text)
    }

    /// The name of an object, a namespace or a part of a path: nothing that could lead elsewhere.
    pub(super) fn name(&mut self, name: &'static str) -> Result<Option<String>, Problem> {
        self.member(name, "sample".to_owned(), |value| object_name(text(value)?))
    }

    pub(super) fn truth(&mut self, name: &'static str) -> Result<Option<bool>, Problem> {
        self.member(name, false, |value| {
            value.as_bool().ok_or_else(|| "true or false is expected".to_owned())
        })
    }

    pub(super) fn duration(&mut self, name: &'static str) -> Result<Option<Duration>, Problem> {
        self.member(name, Duration::from_secs(1), |value| {
            let span: TimeSpan = text(value)?.parse().map_err(|error| format!("{error}"))?;
            Ok(span.duration())
        })
    }

    pub(super) fn selector(&mut self, name: &'static str) -> Result<Option<String>, Problem> {
        self.member(name, "sample".to_owned(), |value| {
            let selector = text(value)?;
            labels::check_selector(&selector)?;
            Ok(selector)
        })
    }

    pub(super) fn texts(&mut self, name: &'static str) -> Result<Option<Vec<String>>, Problem> {
        self.member(name, Vec::new(), |value| {
            let items = value.as_array().ok_or("a list of texts is expected")?;
            items.iter().map(text).collect()
        })
    }

    /// `named` or `selector`, one of the two.
    pub(super) fn which(&mut self, named: &'static str) -> Result<Which, Problem> {
        let (name, selector) = (self.name(named)?, self.selector("selector")?);
        let either = self.is_template(named) || self.is_template("selector");
        match (name, selector) {
            (Some(name), None) => Ok(Which::Named(name)),
            (None, Some(selector)) => Ok(Which::Labelled(selector)),
            (Some(name), Some(_)) if either => Ok(Which::Named(name)),
            (Some(_), Some(_)) => {
                Err(self.problem("selector", format!("{named} and selector exclude each other")))
            }
            (None, None) => Err(self.problem(named, format!("{named} or selector is required"))),
        }
    }

    /// `apiVersion` and `kind`.
    pub(super) fn kind(&mut self) -> Result<(String, String), Problem> {
        let api_version = self.member("apiVersion", "v1".to_owned(), |value| {
            let found = text(value)?;
            let part = |part: &str, dots: bool| {
                !part.is_empty()
                    && part
                        .chars()
                        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || dots && c == '.')
            };
            let fits = match found.split_once('/') {
                Some((group, version)) => part(group, true) && part(version, false),
                None => part(&found, false),
            };
            if fits {
                Ok(found)
            } else {
                Err(format!("{found:?} is not an apiVersion such as v1 or apps/v1"))
            }
        })?;
        let kind = self.member("kind", "Sample".to_owned(), |value| {
            let found = text(value)?;
            let fits = !found.is_empty() && found.chars().all(|c| c.is_ascii_alphanumeric());
            if fits { Ok(found) } else { Err(format!("{found:?} is not a kind such as Deployment")) }
        })?;
        Ok((self.required("apiVersion", api_version)?, self.required("kind", kind)?))
    }

    /// The value of a member that must be there.
    pub(super) fn required<T>(&self, name: &str, found: Option<T>) -> Result<T, Problem> {
        found.ok_or_else(|| self.problem(name, format!("{name} is required")))
    }

    /// Refuses members that no one asked for.
    pub(super) fn finish(self) -> Result<(), Problem> {
        let unknown =
            |(name, value): &(&String, &Value)| !value.is_null() && !self.asked.contains(&name.as_str());
        match self.members.iter().find(unknown) {
            Some((unknown, _)) => {
                let known = self.asked.join(", ");
                Err(self.problem(unknown, format!("{unknown} is not known here; there are {known}")))
            }
            None => Ok(()),
        }
    }
}

pub(super) fn text(value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| "a text is expected".to_owned())
}

/// What the API server takes as a name and what cannot change the path of a request.
pub(super) fn object_name(name: String) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
    if name.is_empty() || name.len() > 253 || !name.chars().all(fits) || name.chars().all(|c| c == '.') {
        return Err(format!("{name:?} is not the name of an object"));
    }
    Ok(name)
}
