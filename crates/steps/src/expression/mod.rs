//! CEL expressions: compiled when a task is stored, evaluated within limits.
//!
//! An expression sees data only. Its length and depth are limited before it is evaluated, and its work and memory while it is:
//! every evaluation ends soon, whatever the expression and the data, and reports the limit that it exceeded. The data may be
//! secret, so no message quotes a value.

mod error;
mod evaluate;
mod functions;
mod meter;
mod operators;
mod pattern;
mod survey;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cel::Program;
use serde_json::{Map, Value};

use error::{EvaluationError, Limit};
use evaluate::Evaluator;
use meter::Meter;
pub use meter::{MEMORY_MAX, WORK_MAX};
use pattern::Patterns;
pub use pattern::{PATTERN_MAX, Pattern};
use survey::Survey;
use value::Val;

/// Longest expression, in bytes.
pub const LENGTH_MAX: usize = 4096;
/// Deepest nesting of brackets.
const DEPTH_MAX: u32 = 16;
/// The parser recurses much deeper than its input; this suffices for any input within the limits above.
const STACK_BYTES: usize = 64 << 20;

/// A compiled expression. Cheap to clone.
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

/// Result of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub enum Evaluation {
    /// True or false.
    Value(bool),
    /// It cannot be evaluated on this data: a member is missing, or types do not match.
    Undetermined(String),
    /// It can never be true or false: it is no condition, or exceeds a limit of work or memory.
    Invalid(String),
    /// It exceeded its time. That depends on the machine: it may succeed the next time.
    TimedOut(String),
}

impl Expression {
    /// Compiles a condition over the given variables. The error is a sentence.
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
        // On a stack of its own, since a hostile text must not overflow the stack of the process.
        std::thread::scope(|scope| {
            let work = || Expression::parse(text, variables);
            let worker = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
            let parsed = worker.map_err(|_| "there is not enough memory to parse it".to_owned())?.join();
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

    /// Whether it refers to this variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.inner.variables.contains(variable)
    }

    /// Its source text.
    pub fn text(&self) -> &str {
        &self.inner.text
    }

    /// Evaluates it over values for its variables, on the calling thread. It returns soon after `stop` is set.
    pub fn evaluate(&self, variables: &Map<String, Value>, stop: &AtomicBool) -> Evaluation {
        let meter = Meter::new(stop);
        self.evaluate_within(variables, &meter)
    }

    fn evaluate_within<'a>(&'a self, variables: &'a Map<String, Value>, meter: &'a Meter<'a>) -> Evaluation {
        let mut evaluation = Evaluator::new(meter, Patterns::new(&self.inner.patterns), variables);
        match evaluation.value(self.inner.program.expression()) {
            Ok(Val::Bool(truth)) => Evaluation::Value(truth),
            Ok(_) => Evaluation::Invalid("it is neither true nor false".to_owned()),
            Err(EvaluationError::DataError(why)) => Evaluation::Undetermined(why.to_string()),
            Err(EvaluationError::Beyond(limit @ Limit::Time)) => Evaluation::TimedOut(limit.to_string()),
            Err(EvaluationError::Beyond(limit)) => Evaluation::Invalid(limit.to_string()),
        }
    }
}

/// The depth of brackets; those within strings count too, which does no harm.
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
