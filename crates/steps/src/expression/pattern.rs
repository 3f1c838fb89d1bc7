//! Patterns of `matches`: compiled once, within limits, and charged for their cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use regex_automata::meta::{Config, Regex};

use super::error::EvaluationError;
use super::meter::Meter;

/// Longest pattern, in bytes.
pub const PATTERN_MAX: usize = 512;
/// Largest compiled pattern, in bytes.
const COMPILED_MAX: usize = 1 << 20;
/// Cost of compiling a pattern that is not a literal of the expression, in units of work.
const COMPILE_COST: u64 = 2_000_000;
/// Most memory of a pattern while it matches, in bytes.
const CACHE_MAX: usize = 512 << 10;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    regex: Regex,
    /// Units of work for 16 bytes of text.
    weight: u64,
}

impl Pattern {
    /// Compiles a pattern; the error says why it is rejected.
    pub fn measure(text: &str) -> Option<(u64, usize)> {
        let pattern = Pattern::build(text).ok()?;
        Some((pattern.weight, pattern.size()))
    }

    pub(super) fn compile(text: &str) -> Result<Pattern, &'static str> {
        if text.len() > PATTERN_MAX {
            return Err("is given a pattern of more than 512 bytes");
        }
        Pattern::build(text)
    }

    fn build(text: &str) -> Result<Pattern, &'static str> {
        let config =
            Config::new().nfa_size_limit(Some(COMPILED_MAX)).onepass(false).hybrid_cache_capacity(CACHE_MAX);
        let regex =
            Regex::builder().configure(config).build(text).map_err(|error| match error.size_limit() {
                Some(_) => "is given a pattern that is too large",
                None => "is given a pattern that is not a regular expression",
            })?;
        let weight = 1 + regex.memory_usage() as u64 / 1024;
        Ok(Pattern { regex, weight })
    }

    /// Its size in bytes.
    pub(super) fn size(&self) -> usize {
        self.regex.memory_usage()
    }

    fn is_match(&self, text: &str, meter: &Meter<'_>) -> Result<bool, EvaluationError> {
        meter.charge((1 + text.len() as u64 / 16).saturating_mul(self.weight))?;
        Ok(self.regex.is_match(text))
    }
}

/// The patterns of one evaluation: the literals of the expression, and those that it computed.
#[derive(Debug)]
pub(super) struct Patterns<'a> {
    written: &'a BTreeMap<String, Pattern>,
    made: BTreeMap<String, Result<Arc<Pattern>, &'static str>>,
}

impl<'a> Patterns<'a> {
    pub(super) fn new(written: &'a BTreeMap<String, Pattern>) -> Patterns<'a> {
        Patterns { written, made: BTreeMap::new() }
    }

    pub(super) fn is_match(
        &mut self,
        text: &str,
        pattern: &str,
        meter: &Meter<'_>,
    ) -> Result<bool, EvaluationError> {
        if let Some(pattern) = self.written.get(pattern) {
            return pattern.is_match(text, meter);
        }
        meter.charge_bytes(pattern.len())?;
        if pattern.len() > PATTERN_MAX {
            return Err(EvaluationError::failed("matches", "is given a pattern of more than 512 bytes"));
        }
        if !self.made.contains_key(pattern) {
            meter.charge(COMPILE_COST)?;
            self.made.insert(pattern.to_owned(), Pattern::compile(pattern).map(Arc::new));
        }
        match self.made.get(pattern) {
            Some(Ok(pattern)) => pattern.is_match(text, meter),
            Some(Err(why)) => Err(EvaluationError::failed("matches", why)),
            None => Ok(false),
        }
    }
}
