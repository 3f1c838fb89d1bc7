//! `anyOf`, `oneOf`, `allOf` and `not`.

use serde_json::Value;

use super::path::Path;
use crate::schema::node::{Limits, NodeId, Origin};
use crate::schema::{FieldError, Schema, quoted};

impl Schema {
    pub(super) fn check_alternatives(
        &self,
        value: &Value,
        limits: &Limits,
        path: &Path<'_>,
        errors: &mut Vec<FieldError>,
        left: usize,
    ) -> usize {
        // In built-in kinds these only list the types of a value.
        if self.origin == Origin::BuiltIn {
            return 0;
        }
        let mut matches = 0;
        let attempt = |id: NodeId| {
            let mut errors = Vec::new();
            let matches = self.check_value(value, id, path, &mut errors, left);
            (errors, matches)
        };
        let name = quoted(&path.name());
        let complain = |errors: &mut Vec<FieldError>, detail: String| {
            // The real server loses the path here.
            errors.push(FieldError::invalid("<nil>", &Value::from(""), &detail));
        };
        if !limits.any_of.is_empty() {
            let mut best: Option<(Vec<FieldError>, usize)> = None;
            let mut is_satisfied = false;
            for id in &limits.any_of {
                let (found, count) = attempt(*id);
                if found.is_empty() {
                    is_satisfied = true;
                    matches += count;
                    break;
                }
                if best.as_ref().is_none_or(|(_, most)| count > *most) {
                    best = Some((found, count));
                }
            }
            if !is_satisfied {
                complain(errors, format!("{name} must validate at least one schema (anyOf)"));
                errors.extend(best.into_iter().flat_map(|(found, _)| found));
            }
        }
        if !limits.one_of.is_empty() {
            let mut best: Option<(Vec<FieldError>, usize)> = None;
            let mut valid = 0;
            for id in &limits.one_of {
                let (found, count) = attempt(*id);
                if found.is_empty() {
                    valid += 1;
                    best = None;
                } else if valid == 0 && best.as_ref().is_none_or(|(_, most)| count > *most) {
                    best = Some((found, count));
                }
            }
            if valid != 1 {
                let detail = match valid {
                    0 => "Found none valid".to_owned(),
                    count => format!("Found {count} valid alternatives"),
                };
                complain(errors, format!("{name} must validate one and only one schema (oneOf). {detail}"));
                errors.extend(best.into_iter().flat_map(|(found, _)| found));
            }
        }
        if !limits.all_of.is_empty() {
            let mut valid = 0;
            for id in &limits.all_of {
                let (found, count) = attempt(*id);
                valid += usize::from(found.is_empty());
                matches += count;
                errors.extend(found);
            }
            if valid != limits.all_of.len() {
                let detail = if valid == 0 { ". None validated" } else { "" };
                complain(errors, format!("{name} must validate all the schemas (allOf){detail}"));
            }
        }
        if let Some(not) = limits.not
            && attempt(not).0.is_empty()
        {
            complain(errors, format!("{name} must not validate the schema (not)"));
        }
        matches
    }
}
