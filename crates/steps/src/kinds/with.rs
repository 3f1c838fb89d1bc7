//! Reads the parameters of a step, member by member, and rejects unknown ones. Pure.
//!
//! A task is read twice: when it is stored, with templates in place of values that are not known yet, and when a plan is made,
//! with all values. A kind reads its members by the same code for both; in place of a template it receives a sample.

use std::time::Duration;

use api::duration::TimeSpan;
use kubelink::names;
use serde_json::{Map, Value};

use super::labels;
use crate::problem::Problem;
use crate::template::has_template;

/// When a step is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadStage {
    /// When the task is stored: templates stand for values.
    Stored,
    /// When the plan is made: all values are known.
    Planned,
}

/// The members of a `with`.
#[derive(Debug)]
pub(super) struct With<'a> {
    place: &'a str,
    members: &'a Map<String, Value>,
    stage: ReadStage,
    asked: Vec<&'static str>,
}

/// The objects of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ObjectSelector {
    Named(String),
    Labelled(String),
}

impl<'a> With<'a> {
    pub(super) fn new(place: &'a str, members: &'a Map<String, Value>, stage: ReadStage) -> With<'a> {
        With { place, members, stage, asked: Vec::new() }
    }

    /// A problem with one of the members.
    pub(super) fn problem(&self, name: &str, message: impl Into<String>) -> Problem {
        Problem::at(format!("{}.{name}", self.place), message)
    }

    /// Whether a member exists.
    pub(super) fn has(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|value| !value.is_null())
    }

    /// Whether a member is a template, or contains one.
    pub(super) fn is_template(&self, name: &str) -> bool {
        self.stage == ReadStage::Stored && self.members.get(name).is_some_and(has_template)
    }

    /// A member that `read` parses; `sample` in place of a template.
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

    /// A member as it is written, including templates.
    pub(super) fn raw(&mut self, name: &'static str) -> Option<&'a Value> {
        self.asked.push(name);
        self.members.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<String>, Problem> {
        self.member(name, "sample".to_owned(), text)
    }

    /// The name of an object or a segment of a path, which cannot change the path.
    pub(super) fn name(&mut self, name: &'static str) -> Result<Option<String>, Problem> {
        self.member(name, "sample".to_owned(), |value| {
            let found = text(value)?;
            names::check_name(&found).map(|()| found)
        })
    }

    /// The name of a namespace.
    pub(super) fn namespace(&mut self) -> Result<Option<String>, Problem> {
        self.member("namespace", "sample".to_owned(), |value| {
            let found = text(value)?;
            names::check_namespace(&found).map(|()| found)
        })
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

    /// Exactly one of `named` and `selector`.
    pub(super) fn which(&mut self, named: &'static str) -> Result<ObjectSelector, Problem> {
        let (name, selector) = (self.name(named)?, self.selector("selector")?);
        let either = self.is_template(named) || self.is_template("selector");
        match (name, selector) {
            (Some(name), None) => Ok(ObjectSelector::Named(name)),
            (None, Some(selector)) => Ok(ObjectSelector::Labelled(selector)),
            (Some(name), Some(_)) if either => Ok(ObjectSelector::Named(name)),
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
            names::check_api_version(&found).map(|()| found)
        })?;
        let kind = self.member("kind", "Sample".to_owned(), |value| {
            let found = text(value)?;
            names::check_kind(&found).map(|()| found)
        })?;
        Ok((self.required("apiVersion", api_version)?, self.required("kind", kind)?))
    }

    /// The value of a required member.
    pub(super) fn required<T>(&self, name: &str, found: Option<T>) -> Result<T, Problem> {
        found.ok_or_else(|| self.problem(name, format!("{name} is required")))
    }

    /// Rejects unknown members.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use api::admin::StepForm;
    use serde_json::json;

    use super::super::{build_step, check_step};
    use super::*;
    use crate::template::{TemplateNames, TemplateValues};

    fn form(uses: &str, with: Value) -> StepForm {
        serde_json::from_value(json!({"uses": uses, "with": with})).unwrap()
    }

    fn stored(form: &StepForm) -> Result<(), String> {
        let names = TemplateNames { parameters: BTreeSet::from(["x".to_owned()]) };
        check_step(form, "steps[0]", &names).map_err(|problem| problem.to_string())
    }

    fn planned(form: &StepForm, x: &str) -> Result<(), String> {
        let (parameters, cluster) = (json!({"x": x}), json!({}));
        let given = TemplateValues { parameters: parameters.as_object().unwrap(), cluster: &cluster };
        build_step(form, "steps[0]", given).map(drop).map_err(|problem| problem.to_string())
    }

    /// A segment of a request's path is checked when the task is stored, and again when a template is filled in.
    #[test]
    fn no_member_of_a_step_changes_the_path_of_a_request() {
        let object = |member: &str, value: &str| {
            let mut with = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "a", "name": "b"});
            with[member] = json!(value);
            with
        };
        let applied = |member: &str, value: &str| {
            let mut object =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "a", "name": "b"}});
            match member {
                "apiVersion" | "kind" => object[member] = json!(value),
                _ => object["metadata"][member] = json!(value),
            }
            json!({"manifests": [object]})
        };
        let patched = |member: &str, value: &str| {
            let mut with = object(member, value);
            with["patch"] = json!({"data": {}});
            with
        };
        let waited = |member: &str, value: &str| {
            let mut with = object(member, value);
            with["until"] = json!("true");
            with
        };
        for member in ["apiVersion", "kind", "namespace", "name"] {
            for (uses, with) in [
                ("kubernetes/delete", &object as &dyn Fn(&str, &str) -> Value),
                ("kubernetes/patch", &patched),
                ("kubernetes/wait", &waited),
                ("kubernetes/apply", &applied),
            ] {
                for value in ["../x", "..", "a/../b", "a?b=c", "a%2f..", "a b"] {
                    let written = stored(&form(uses, with(member, value))).unwrap_err();
                    assert!(written.contains(&format!("{value:?} is not")), "{uses} {member}: {written}");
                    let template = form(uses, with(member, "${{ parameters.x }}"));
                    assert_eq!(stored(&template), Ok(()), "{uses} {member}");
                    let filled = planned(&template, value).unwrap_err();
                    assert!(filled.contains(&format!("{value:?} is not")), "{uses} {member}: {filled}");
                }
                let template = form(uses, with(member, "${{ parameters.x }}"));
                assert_eq!(planned(&template, "v1"), Ok(()), "{uses} {member}");
            }
        }
        let job = json!({"manifest": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "../x"},
            "spec": {"template": {}}}});
        assert!(
            stored(&form("kubernetes/job", job))
                .unwrap_err()
                .contains("\"../x\" is not the name of a namespace")
        );
    }
}
