//! Checks an expression before it is evaluated: its names, its depth and its patterns.

use std::collections::{BTreeMap, BTreeSet};

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};

use super::functions::FUNCTIONS;
use super::pattern::Pattern;

/// Deepest tree, which is evaluated recursively.
const TREE_MAX: u32 = 48;
/// Deepest nesting of loops (`all`, `exists`, `map`, `filter`).
const LOOPS_MAX: u32 = 3;
/// Largest size of all compiled patterns of one expression, in bytes.
const PATTERNS_MAX: usize = 4 << 20;

/// The names of types are values too: `type(x) == string`.
const TYPES: [(&str, &str); 12] = [
    ("bool", "bool"),
    ("int", "int"),
    ("uint", "uint"),
    ("double", "double"),
    ("string", "string"),
    ("bytes", "bytes"),
    ("list", "list"),
    ("map", "map"),
    ("null_type", "null_type"),
    ("type", "type"),
    ("duration", "google.protobuf.Duration"),
    ("timestamp", "google.protobuf.Timestamp"),
];

/// The type that a name stands for.
pub(super) fn type_of_name(name: &str) -> Option<&'static str> {
    TYPES.iter().find(|(known, _)| *known == name).map(|(_, it)| *it)
}

/// What one pass over the tree found.
#[derive(Default)]
pub(super) struct Survey<'a> {
    known: &'a [&'a str],
    bound: Vec<String>,
    tree: u32,
    pub(super) used: BTreeSet<String>,
    pub(super) patterns: BTreeMap<String, Pattern>,
}

impl<'a> Survey<'a> {
    /// Checks a tree over these variables. The error is a sentence.
    pub(super) fn of(tree: &IdedExpr, known: &'a [&'a str]) -> Result<Survey<'a>, String> {
        let mut survey = Survey { known, ..Survey::default() };
        survey.visit(tree, 0)?;
        Ok(survey)
    }

    fn visit(&mut self, at: &IdedExpr, depth: u32) -> Result<(), String> {
        // A loop is expanded into several levels of the tree.
        if self.tree > TREE_MAX {
            return Err(format!("it is nested more than {TREE_MAX} deep; split it into shorter parts"));
        }
        self.tree += 1;
        let found = self.look(at, depth);
        self.tree -= 1;
        found
    }

    fn look(&mut self, at: &IdedExpr, depth: u32) -> Result<(), String> {
        match &at.expr {
            Expr::Unspecified => Err("it is not an expression in CEL: a part of it is missing".to_owned()),
            Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.named(name),
            Expr::Select(select) => self.visit(&select.operand, depth),
            Expr::Call(call) => {
                self.called(call)?;
                if let Some(target) = &call.target {
                    self.visit(target, depth)?;
                }
                call.args.iter().try_for_each(|argument| self.visit(argument, depth))
            }
            Expr::List(list) => list.elements.iter().try_for_each(|element| self.visit(element, depth)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| self.entry(&entry.expr, depth)),
            Expr::Struct(it) => Err(format!("it makes a {}, and only plain data can be made", it.type_name)),
            Expr::Comprehension(it) => {
                self.visit(&it.iter_range, depth)?;
                self.visit(&it.accu_init, depth)?;
                let depth = depth + 1;
                if depth > LOOPS_MAX {
                    return Err(format!("its loops are nested more than {LOOPS_MAX} deep"));
                }
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
        if type_of_name(name).is_some() {
            return Ok(());
        }
        Err(format!("{name} is not known; there are {}", self.known.join(", ")))
    }

    fn called(&mut self, call: &CallExpr) -> Result<(), String> {
        let function = call.func_name.as_str();
        let is_operator = !function.starts_with(|c: char| c.is_ascii_alphabetic());
        if !is_operator && !FUNCTIONS.contains(&function) {
            return Err(format!("there is no function {function}"));
        }
        if function == "matches"
            && let Some(Expr::Literal(LiteralValue::String(pattern))) = call.args.last().map(|it| &it.expr)
        {
            return self.pattern(pattern.inner());
        }
        Ok(())
    }

    /// Compiles a pattern that is a literal of the expression.
    fn pattern(&mut self, text: &str) -> Result<(), String> {
        if self.patterns.contains_key(text) {
            return Ok(());
        }
        let pattern = Pattern::compile(text).map_err(|why| format!("matches {why}: {text:?}"))?;
        let size = pattern.size() + self.patterns.values().map(Pattern::size).sum::<usize>();
        if size > PATTERNS_MAX {
            let limit = PATTERNS_MAX >> 20;
            return Err(format!("its patterns together take more than {limit} MiB; make them smaller"));
        }
        self.patterns.insert(text.to_owned(), pattern);
        Ok(())
    }
}
