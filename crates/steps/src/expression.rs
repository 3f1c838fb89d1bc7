//! Expressions in CEL: compiled when a task is stored, evaluated within bounds. Pure.
//!
//! An expression sees data only. How much it may look at is bounded before it begins: by its length, by how deep its loops
//! are nested, and by the size of what it is given.

use std::collections::BTreeSet;
use std::sync::Arc;

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::objects::{Key, Map as CelMap};
use cel::{Context, ExecutionError, Program};
use serde_json::{Map, Value};

/// The longest expression, in bytes.
pub const LENGTH_MAX: usize = 4096;
/// How deep brackets may be nested.
const DEPTH_MAX: u32 = 16;
/// How deep the tree may be that is evaluated, on the stack of whoever asks.
const TREE_MAX: u32 = 48;
/// The parser recurses far deeper than what it parses; this is enough for what the limits above let through.
const STACK_BYTES: usize = 64 << 20;
/// How deep loops (`all`, `exists`, `map`, `filter`) may be nested.
const LOOPS_MAX: u32 = 3;
/// So many turns of loops at most: a second's work.
const TURNS_MAX: u64 = 2_000_000;

/// An expression that was compiled.
#[derive(Debug, Clone)]
pub struct Expression {
    program: Arc<Program>,
    text: String,
    variables: BTreeSet<String>,
    loops: u32,
    /// The longest list or map that is written in the expression itself.
    literal: u64,
}

/// What an expression says.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// True or false.
    Truth(bool),
    /// It could not be evaluated on this data: a member is not there, types do not fit.
    Unclear(String),
    /// It can never say true or false: it is no condition, or looks at too much.
    Never(String),
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
        let mut survey = Survey { known: variables, ..Survey::default() };
        survey.visit(program.expression(), 0)?;
        let Survey { used, loops, literal, .. } = survey;
        Ok(Expression { program: Arc::new(program), text: text.to_owned(), variables: used, loops, literal })
    }

    /// Whether it looks at this variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.variables.contains(variable)
    }

    /// What it was written as.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Evaluates it over values for its variables.
    pub fn evaluate(&self, variables: &Map<String, Value>) -> Said {
        let longest = variables.values().map(longest).max().unwrap_or(0).max(self.literal).max(1);
        if self.loops > 1 && longest.checked_pow(self.loops).is_none_or(|turns| turns > TURNS_MAX) {
            return Said::Never(format!(
                "its {} nested loops over up to {longest} things would take more than {TURNS_MAX} turns",
                self.loops
            ));
        }
        let mut context = Context::default();
        for (name, value) in variables {
            context.add_variable_from_value(name.as_str(), to_cel(value));
        }
        match self.program.execute(&context) {
            Ok(cel::Value::Bool(truth)) => Said::Truth(truth),
            Ok(_) => Said::Never("it says neither true nor false".to_owned()),
            Err(ExecutionError::NoSuchKey(key)) => Said::Unclear(format!("there is no {key}")),
            Err(error) => Said::Unclear(shorten(&error.to_string())),
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

/// An error may hold whole objects.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn longest(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(longest).max().unwrap_or(0).max(items.len() as u64),
        Value::Object(members) => members.values().map(longest).max().unwrap_or(0).max(members.len() as u64),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// JSON as CEL sees it. Whole numbers are `int`, so that they can be compared and counted with literals.
fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(it) => cel::Value::Bool(*it),
        Value::Number(it) => match (it.as_i64(), it.as_u64()) {
            (Some(it), _) => cel::Value::Int(it),
            (None, Some(it)) => cel::Value::UInt(it),
            (None, None) => cel::Value::Float(it.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(it) => cel::Value::String(Arc::new(it.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(to_cel).collect())),
        Value::Object(members) => {
            let members =
                members.iter().map(|(name, value)| (Key::String(Arc::new(name.clone())), to_cel(value)));
            cel::Value::Map(CelMap { map: Arc::new(members.collect()) })
        }
    }
}

/// What an expression names and how deep it loops.
#[derive(Default)]
struct Survey<'a> {
    known: &'a [&'a str],
    bound: Vec<String>,
    tree: u32,
    used: BTreeSet<String>,
    loops: u32,
    literal: u64,
}

impl Survey<'_> {
    fn visit(&mut self, at: &IdedExpr, depth: u32) -> Result<(), String> {
        // A loop is several levels of the tree that it is made into.
        if self.tree > TREE_MAX {
            return Err(format!("it is nested more than {TREE_MAX} deep; make it of shorter parts"));
        }
        self.tree += 1;
        let found = self.look(at, depth);
        self.tree -= 1;
        found
    }

    fn look(&mut self, at: &IdedExpr, depth: u32) -> Result<(), String> {
        match &at.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.named(name),
            Expr::Select(select) => self.visit(&select.operand, depth),
            Expr::Call(call) => {
                self.called(&call.func_name)?;
                if let Some(target) = &call.target {
                    self.visit(target, depth)?;
                }
                call.args.iter().try_for_each(|argument| self.visit(argument, depth))
            }
            Expr::List(list) => {
                self.literal = self.literal.max(list.elements.len() as u64);
                list.elements.iter().try_for_each(|element| self.visit(element, depth))
            }
            Expr::Map(map) => {
                self.literal = self.literal.max(map.entries.len() as u64);
                map.entries.iter().try_for_each(|entry| self.entry(&entry.expr, depth))
            }
            Expr::Struct(it) => Err(format!("it makes a {}, and only plain data can be made", it.type_name)),
            Expr::Comprehension(it) => {
                self.visit(&it.iter_range, depth)?;
                self.visit(&it.accu_init, depth)?;
                let depth = depth + 1;
                if depth > LOOPS_MAX {
                    return Err(format!("its loops are nested more than {LOOPS_MAX} deep"));
                }
                self.loops = self.loops.max(depth);
                let before = self.bound.len();
                self.bound.extend([it.iter_var.clone(), it.accu_var.clone()]);
                self.bound.extend(it.iter_var2.clone());
                self.visit(&it.loop_cond, depth)?;
                self.visit(&it.loop_step, depth)?;
                self.visit(&it.result, depth)?;
                self.bound.truncate(before);
                Ok(())
            }
        }
    }

    fn entry(&mut self, entry: &EntryExpr, depth: u32) -> Result<(), String> {
        match entry {
            EntryExpr::StructField(field) => self.visit(&field.value, depth),
            EntryExpr::MapEntry(entry) => {
                self.visit(&entry.key, depth)?;
                self.visit(&entry.value, depth)
            }
        }
    }

    fn named(&mut self, name: &str) -> Result<(), String> {
        if name.starts_with('@') || self.bound.iter().any(|bound| bound == name) {
            return Ok(());
        }
        if self.known.contains(&name) {
            self.used.insert(name.to_owned());
            return Ok(());
        }
        // The names of types are values too: `type(x) == string`.
        const TYPES: [&str; 12] = [
            "bool",
            "int",
            "uint",
            "double",
            "string",
            "bytes",
            "list",
            "map",
            "null_type",
            "type",
            "duration",
            "timestamp",
        ];
        if TYPES.contains(&name) {
            return Ok(());
        }
        Err(format!("{name} is not known; there are {}", self.known.join(", ")))
    }

    fn called(&self, function: &str) -> Result<(), String> {
        let operator = !function.starts_with(|c: char| c.is_ascii_alphabetic());
        // A name that is taken in the standard environment cannot be declared again: so it is known.
        let known = operator || Context::default().add_function(function, || true).is_err();
        if known { Ok(()) } else { Err(format!("there is no function {function}")) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const NAMES: [&str; 3] = ["cluster", "nodes", "object"];

    fn said(text: &str, data: Value) -> Said {
        Expression::compile(text, &NAMES).expect(text).evaluate(data.as_object().unwrap())
    }

    #[test]
    fn conditions_are_true_false_or_unclear() {
        let data = json!({"cluster": {"version": "v1.37.1", "labels": {"ring": "1"}},
            "nodes": [{"name": "a", "ready": true}, {"name": "b", "ready": false}],
            "object": {"spec": {"replicas": 3}, "status": {"readyReplicas": 2}}});
        let check =
            |text: &str, expect: bool| assert_eq!(said(text, data.clone()), Said::Truth(expect), "{text}");
        check("nodes.all(n, n.ready)", false);
        check("nodes.exists(n, n.name == 'a' && n.ready)", true);
        check("size(nodes) == 2", true);
        check("nodes.size() > 1 && cluster.version.startsWith('v1.')", true);
        check("object.status.readyReplicas + 1 == object.spec.replicas", true);
        check("has(object.status.updatedReplicas)", false);
        check("cluster.labels['ring'] == '1'", true);
        check("nodes.filter(n, !n.ready).map(n, n.name) == ['b']", true);
        check("cluster.version.matches('^v1[.]3[0-9]')", true);
        check("nodes.all(a, nodes.exists(b, a.name == b.name))", true);
        check("'type' in {'type': 1}", true);
        assert_eq!(
            said("object.status.gone == 1", data.clone()),
            Said::Unclear("there is no gone".to_owned())
        );
        assert!(matches!(
            said("object.spec.replicas == 1 || nodes[9].ready", data.clone()),
            Said::Unclear(_)
        ));
        assert_eq!(said("size(nodes)", data), Said::Never("it says neither true nor false".to_owned()));
    }

    #[test]
    fn what_cannot_be_an_expression_is_refused_in_a_sentence() {
        let check = |text: &str, expect: &str| {
            let error = Expression::compile(text, &NAMES).expect_err(text);
            assert!(error.contains(expect), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        };
        check("", "is empty");
        check("nodes.all(n, ", "it is not an expression in CEL at line 1");
        check("node.size() > 1", "node is not known; there are cluster, nodes, object");
        check("nodes.al(n, n.ready)", "there is no function al");
        check("launch(nodes)", "there is no function launch");
        check("nodes.all(n, m.ready)", "m is not known");
        check(&"nodes.all(a, ".repeat(4), "it is not an expression");
        let deep = "nodes.all(a, nodes.all(b, nodes.all(c, nodes.all(d, true))))";
        check(deep, "nested more than 3 deep");
        check(&format!("[{}] == []", "1,".repeat(3000)), "has 6008 bytes");
        check(
            &format!("{}1{} == 1", "(".repeat(1500), ")".repeat(1500)),
            "its brackets are nested more than 16",
        );
        check(&format!("1{} > 0", " + 1".repeat(1000)), "it is nested more than 48 deep");
        check(&format!("cluster{}", ".a".repeat(2000)), "it is nested more than 48 deep");
    }

    #[test]
    fn the_deepest_that_is_taken_can_be_evaluated_on_a_small_stack() {
        let sum = format!("1{} > 0", " + 1".repeat(45));
        let nested = format!("{}1 > 0{}", "(true && ".repeat(15), ")".repeat(15));
        let many = vec!["size(nodes) == 0"; 200].join(" && ");
        let not = format!("{}true", "!".repeat(4000));
        for text in [sum, nested, many, not] {
            let evaluate = move || said(&text, json!({"nodes": []}));
            let worker = std::thread::Builder::new().stack_size(2 << 20).spawn(evaluate).unwrap();
            assert_eq!(worker.join().unwrap(), Said::Truth(true));
        }
    }

    #[test]
    fn an_expression_that_would_look_at_too_much_never_begins() {
        let nodes: Vec<Value> = (0..3000).map(|n| json!({"name": n})).collect();
        let found = said("nodes.all(a, nodes.all(b, true))", json!({"nodes": nodes}));
        assert!(matches!(found, Said::Never(ref why) if why.contains("3000 things")), "{found:?}");
        let nodes: Vec<Value> = (0..1000).map(|n| json!({"name": n})).collect();
        assert_eq!(said("nodes.all(a, nodes.exists(b, a == b))", json!({"nodes": nodes})), Said::Truth(true));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_compiler_panic(text in "[a-z0-9 .()\\[\\]{}'\"&|!=<>+,?:-]{0,60}") {
            let _ = Expression::compile(&text, &NAMES);
        }
    }
}
