//! Compiled expressions, shared by all clusters of the process.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::{Context, ExecutionError};
use serde_json::Value;

/// Longest expression, in bytes.
const LENGTH_MAX: usize = 4096;
/// Deepest nesting of brackets.
const DEPTH_MAX: u32 = 32;
/// The parser recurses much deeper than its input; this suffices for any input within the limits above.
const STACK_BYTES: usize = 64 << 20;
/// Highest number of expressions that are kept; beyond it they are compiled again.
const PROGRAMS_MAX: usize = 2000;
/// Functions that mean here what they mean in the real server. Operators start with a sign.
const FUNCTIONS: [&str; 15] = [
    "bool",
    "bytes",
    "contains",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "int",
    "matches",
    "size",
    "startsWith",
    "string",
    "timestamp",
    "type",
    "uint",
];

/// A compiled expression.
#[derive(Debug)]
pub(super) struct Program {
    program: cel::Program,
    /// Whether it compares with the previous value.
    pub(super) uses_old_self: bool,
    /// The number of nodes of the expression.
    nodes: u64,
    /// How many loops are within each other.
    loops: u32,
}

/// The compiled expression, or why it cannot be enforced.
type Compiled = Result<Arc<Program>, String>;

impl Program {
    /// The compiled expression, or why it cannot be enforced.
    pub(super) fn compiled(text: &str) -> Compiled {
        static PROGRAMS: LazyLock<Mutex<HashMap<String, Compiled>>> = LazyLock::new(Mutex::default);
        let known = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner).get(text).cloned();
        if let Some(known) = known {
            return known;
        }
        let compiled = Program::compile(text).map(Arc::new);
        let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
        if programs.len() >= PROGRAMS_MAX {
            programs.clear();
        }
        programs.insert(text.to_owned(), compiled.clone());
        compiled
    }

    fn compile(text: &str) -> Result<Program, String> {
        if text.len() > LENGTH_MAX {
            return Err(format!("it has more than {LENGTH_MAX} bytes"));
        }
        if brackets(text) > DEPTH_MAX {
            return Err(format!("its brackets are nested more than {DEPTH_MAX} deep"));
        }
        let program = std::thread::scope(|scope| {
            let parse =
                || cel::Program::compile(text).map_err(|_| "it is not an expression in CEL".to_owned());
            let worker = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, parse);
            let parsed = worker.map_err(|_| "there is not enough memory to parse it".to_owned())?.join();
            parsed.map_err(|_| "it is not an expression in CEL".to_owned())?
        })?;
        let references = program.references();
        let is_known =
            |name: &str| !name.starts_with(|c: char| c.is_ascii_alphabetic()) || FUNCTIONS.contains(&name);
        if let Some(unknown) = references.functions().into_iter().find(|name| !is_known(name)) {
            return Err(format!("the function {unknown} is not supported"));
        }
        let uses_old_self = references.has_variable("oldSelf");
        let (mut nodes, mut loops) = (0, 0);
        measure(program.expression(), 0, &mut nodes, &mut loops);
        Ok(Program { program, uses_old_self, nodes, loops })
    }

    /// An upper estimate of the steps of an evaluation: each loop passes over as much as the value has.
    pub(super) fn steps(&self, value: &Value) -> u64 {
        let size = size(value).max(1);
        self.nodes.saturating_mul(size.saturating_pow(self.loops)).saturating_add(size)
    }

    pub(super) fn execute(&self, context: &Context<'_, '_>) -> Result<cel::Value, ExecutionError> {
        self.program.execute(context)
    }
}

/// The deepest nesting of brackets, within strings too.
fn brackets(text: &str) -> u32 {
    let (mut depth, mut deepest) = (0_u32, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Counts nodes, and loops within each other.
fn measure(at: &IdedExpr, depth: u32, nodes: &mut u64, loops: &mut u32) {
    *nodes += 1;
    *loops = (*loops).max(depth);
    let mut below = |inner: &IdedExpr, depth: u32| measure(inner, depth, nodes, loops);
    match &at.expr {
        Expr::Call(call) => {
            call.target.as_deref().into_iter().chain(&call.args).for_each(|inner| below(inner, depth));
        }
        Expr::Comprehension(one) => {
            below(&one.iter_range, depth);
            for inner in [&one.accu_init, &one.loop_cond, &one.loop_step, &one.result] {
                below(inner, depth + 1);
            }
        }
        Expr::List(list) => list.elements.iter().for_each(|inner| below(inner, depth)),
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    below(&entry.key, depth);
                    below(&entry.value, depth);
                }
            }
        }
        Expr::Select(select) => below(&select.operand, depth),
        Expr::Struct(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

/// The number of values in a value; a long text counts as several.
fn size(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<u64>(),
        Value::Object(fields) => 1 + fields.values().map(size).sum::<u64>(),
        Value::String(text) => 1 + text.len() as u64 / 64,
        _ => 1,
    }
}
