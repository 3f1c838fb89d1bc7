//! Expressions in CEL: compiled when a task is stored, evaluated within bounds.
//!
//! An expression sees data only. It is bounded before it begins, by its length and by how deep it is, and while it is
//! evaluated, by the work that it does and by the memory that it holds: whatever it says and whatever it looks at, it ends soon,
//! and says which limit it met. What it looks at may be secret, so no message quotes a value.

mod evaluate;
mod functions;
mod meter;
mod operators;
mod pattern;
mod survey;
mod trouble;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cel::Program;
use serde_json::{Map, Value};

use evaluate::Evaluation;
use meter::Meter;
pub use meter::{MEMORY_MAX, WORK_MAX};
use pattern::Patterns;
pub use pattern::{PATTERN_MAX, Pattern};
use survey::Survey;
use trouble::{Limit, Trouble};
use value::Val;

/// The longest expression, in bytes.
pub const LENGTH_MAX: usize = 4096;
/// How deep brackets may be nested.
const DEPTH_MAX: u32 = 16;
/// The parser recurses far deeper than what it parses; this is enough for what the limits above let through.
const STACK_BYTES: usize = 64 << 20;

/// An expression that was compiled. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Expression {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    program: Program,
    text: String,
    variables: BTreeSet<String>,
    patterns: BTreeMap<String, Pattern>,
}

/// What an expression says.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// True or false.
    Truth(bool),
    /// It could not be evaluated on this data: a member is not there, types do not fit.
    Unclear(String),
    /// It can never say true or false: it is no condition, or goes beyond a limit of work or memory.
    Never(String),
    /// Its time was over. That depends on the machine: it may have an answer the next time.
    TimedOut(String),
}

impl Expression {
    /// Compiles a condition over the given variables; else says in a sentence what is wrong.
    pub fn compile(text: &str, variables: &[&str]) -> Result<Expression, String> {
        if text.trim().is_empty() {
            return Err("the expression is empty".to_owned());
        }
        if text.len() > LENGTH_MAX {
            return Err(format!(
                "the expression has {} bytes, and at most {LENGTH_MAX} are accepted",
                text.len()
            ));
        }
        if brackets(text) > DEPTH_MAX {
            return Err(format!("its brackets are nested more than {DEPTH_MAX} deep"));
        }
        // On a stack of its own, for a hostile text must not be able to end the process.
        std::thread::scope(|scope| {
            let work = || Expression::parse(text, variables);
            let worker = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
            let parsed = worker.map_err(|_| "there is no room to read it in".to_owned())?.join();
            parsed.map_err(|_| "it is not an expression in CEL".to_owned())?
        })
    }

    fn parse(text: &str, variables: &[&str]) -> Result<Expression, String> {
        let program = Program::compile(text).map_err(|errors| {
            let first = errors.errors.first();
            let place =
                first.map(|it| format!(" at line {}, column {}", it.pos.0, it.pos.1)).unwrap_or_default();
            let said = first.map_or("", |it| it.msg.lines().next().unwrap_or_default());
            format!("it is not an expression in CEL{place}: {said}")
        })?;
        let Survey { used, patterns, .. } = Survey::of(program.expression(), variables)?;
        let inner = Inner { program, text: text.to_owned(), variables: used, patterns };
        Ok(Expression { inner: Arc::new(inner) })
    }

    /// Whether it looks at this variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.inner.variables.contains(variable)
    }

    /// What it was written as.
    pub fn text(&self) -> &str {
        &self.inner.text
    }

    /// Evaluates it over values for its variables, on the thread that calls. It ends soon after `stop` was set.
    pub fn evaluate(&self, variables: &Map<String, Value>, stop: &AtomicBool) -> Said {
        let meter = Meter::new(stop);
        self.evaluate_within(variables, &meter)
    }

    fn evaluate_within<'a>(&'a self, variables: &'a Map<String, Value>, meter: &'a Meter<'a>) -> Said {
        let mut evaluation = Evaluation::new(meter, Patterns::new(&self.inner.patterns), variables);
        match evaluation.value(self.inner.program.expression()) {
            Ok(Val::Bool(truth)) => Said::Truth(truth),
            Ok(_) => Said::Never("it says neither true nor false".to_owned()),
            Err(Trouble::Unclear(why)) => Said::Unclear(why.to_string()),
            Err(Trouble::Beyond(limit @ Limit::Time)) => Said::TimedOut(limit.to_string()),
            Err(Trouble::Beyond(limit)) => Said::Never(limit.to_string()),
        }
    }
}

/// How deep brackets are nested; those in texts count too, which is no loss.
fn brackets(text: &str) -> u32 {
    let (mut depth, mut deepest) = (0_u32, 0);
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

#[cfg(test)]
mod tests;
