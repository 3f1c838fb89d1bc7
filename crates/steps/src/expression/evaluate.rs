//! Evaluates an expression's tree over values, and counts every step.
//!
//! The tree and the meaning of operators are those of the `cel` crate. Its own interpreter can neither be stopped nor measured,
//! which is why the evaluation is implemented here.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, operators,
};
use serde_json::{Map, Value};

use super::error::{DataError, EvaluationError};
use super::functions::call;
use super::meter::{Held, Meter, Tracked};
use super::operators::{arithmetic, negate};
use super::pattern::Patterns;
use super::value::{Bytes, Entries, Key, List, Mapping, Text, Val};

/// One evaluation.
#[derive(Debug)]
pub(super) struct Evaluator<'a> {
    pub(super) meter: &'a Meter<'a>,
    pub(super) patterns: Patterns<'a>,
    given: &'a Map<String, Value>,
    /// The variables bound by loops, the innermost last.
    bound: Vec<(&'a str, Val<'a>)>,
}

type Found<'a> = Result<Val<'a>, EvaluationError>;

impl<'a> Evaluator<'a> {
    pub(super) fn new(
        meter: &'a Meter<'a>,
        patterns: Patterns<'a>,
        given: &'a Map<String, Value>,
    ) -> Evaluator<'a> {
        Evaluator { meter, patterns, given, bound: Vec::new() }
    }

    pub(super) fn value(&mut self, at: &'a IdedExpr) -> Found<'a> {
        self.meter.charge(1)?;
        match &at.expr {
            Expr::Literal(literal) => Ok(of_literal(literal)),
            Expr::Ident(name) => self.named(name),
            Expr::Select(select) => {
                let operand = self.value(&select.operand)?;
                match select.test {
                    true => has(&operand, &select.field).map(Val::Bool),
                    false => member(&operand, &select.field),
                }
            }
            Expr::Call(it) => self.call(it),
            Expr::List(it) => self.list(it),
            Expr::Map(it) => self.map(it),
            Expr::Comprehension(it) => {
                let depth = self.bound.len();
                let found = self.comprehension(it);
                self.bound.truncate(depth);
                found
            }
            Expr::Struct(_) | Expr::Unspecified => {
                Err(EvaluationError::failed("the expression", "has a part without a value"))
            }
        }
    }

    fn named(&self, name: &'a str) -> Found<'a> {
        if let Some((_, value)) = self.bound.iter().rev().find(|(bound, _)| *bound == name) {
            return Ok(value.clone());
        }
        if let Some(value) = self.given.get(name) {
            return Ok(Val::of(value));
        }
        super::survey::type_of_name(name).map(Val::Type).ok_or_else(|| EvaluationError::missing(name))
    }

    fn truth(&mut self, at: &'a IdedExpr, operator: &str) -> Result<bool, EvaluationError> {
        match self.value(at)? {
            Val::Bool(truth) => Ok(truth),
            other => Err(EvaluationError::types(operator, vec![other.type_name()])),
        }
    }

    fn call(&mut self, it: &'a CallExpr) -> Found<'a> {
        let name = it.func_name.as_str();
        if it.target.is_none() {
            match (name, it.args.as_slice()) {
                (operators::CONDITIONAL, [condition, yes, no]) => {
                    let chosen = if self.truth(condition, name)? { yes } else { no };
                    return self.value(chosen);
                }
                (operators::LOGICAL_AND, [a, b]) => return self.logical(a, b, name, false),
                (operators::LOGICAL_OR, [a, b]) => return self.logical(a, b, name, true),
                (operators::LOGICAL_NOT, [a]) => return Ok(Val::Bool(!self.truth(a, name)?)),
                (operators::NOT_STRICTLY_FALSE, [a]) => {
                    return match self.truth(a, name) {
                        Err(EvaluationError::Beyond(limit)) => Err(EvaluationError::Beyond(limit)),
                        Err(EvaluationError::DataError(_)) => Ok(Val::Bool(true)),
                        Ok(truth) => Ok(Val::Bool(truth)),
                    };
                }
                (operators::NEGATE, [a]) => return negate(self.value(a)?),
                (_, [a, b]) if !name.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                    let (a, b) = (self.value(a)?, self.value(b)?);
                    return self.binary(name, a, b, &it.args[1]);
                }
                _ => {}
            }
        }
        let mut args = Vec::with_capacity(it.args.len() + 1);
        if let Some(target) = &it.target {
            args.push(self.value(target)?);
        }
        for argument in &it.args {
            args.push(self.value(argument)?);
        }
        call(self, name, it.target.is_some(), &args)
    }

    /// `&&` and `||`: one side that decides outweighs an error of the other.
    fn logical(&mut self, a: &'a IdedExpr, b: &'a IdedExpr, operator: &str, decides: bool) -> Found<'a> {
        let left = match self.truth(a, operator) {
            Err(EvaluationError::Beyond(limit)) => return Err(EvaluationError::Beyond(limit)),
            Ok(truth) if truth == decides => return Ok(Val::Bool(decides)),
            left => left,
        };
        let right = self.truth(b, operator)?;
        match left {
            Ok(_) => Ok(Val::Bool(right)),
            Err(_) if right == decides => Ok(Val::Bool(decides)),
            Err(error) => Err(error),
        }
    }

    fn binary(&mut self, name: &str, a: Val<'a>, b: Val<'a>, written: &IdedExpr) -> Found<'a> {
        let ordered = |is: fn(std::cmp::Ordering) -> bool| {
            a.compare(&b, name, self.meter).map(|order| Val::Bool(is(order)))
        };
        match name {
            operators::EQUALS => a.equals(&b, self.meter).map(Val::Bool),
            operators::NOT_EQUALS => a.equals(&b, self.meter).map(|same| Val::Bool(!same)),
            operators::LESS => ordered(std::cmp::Ordering::is_lt),
            operators::LESS_EQUALS => ordered(std::cmp::Ordering::is_le),
            operators::GREATER => ordered(std::cmp::Ordering::is_gt),
            operators::GREATER_EQUALS => ordered(std::cmp::Ordering::is_ge),
            operators::IN => a.is_in(&b, self.meter).map(Val::Bool),
            operators::INDEX => a.at(&b, name, self.meter).map_err(|error| named_key(error, written)),
            _ => arithmetic(name, &a, &b, self.meter),
        }
    }

    fn list(&mut self, it: &'a ListExpr) -> Found<'a> {
        let mut held = Held::nothing(self.meter);
        held.grow(it.elements.len() * size_of::<Val<'_>>())?;
        let mut items = Vec::with_capacity(it.elements.len());
        for element in &it.elements {
            items.push(self.value(element)?);
        }
        Ok(Val::List(List::Owned(Tracked::new(items, held))))
    }

    fn map(&mut self, it: &'a MapExpr) -> Found<'a> {
        let mut held = Held::nothing(self.meter);
        let mut entries = Entries::new();
        for entry in &it.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err(EvaluationError::failed(
                    "the expression",
                    "makes something other than plain data",
                ));
            };
            let (written, value) = (self.value(&entry.key)?, self.value(&entry.value)?);
            let Some(key) = Key::of(&written) else {
                return Err(EvaluationError::types("the key of a map", vec![written.type_name()]));
            };
            let text = if let Key::Text(text) = &key { text.len() } else { 0 };
            self.meter.charge_bytes(text)?;
            held.grow(text + size_of::<(Key, (Val<'_>, Val<'_>))>())?;
            if entries.insert(key, (written, value)).is_some() {
                return Err(EvaluationError::DataError(DataError::Repeated));
            }
        }
        Ok(Val::Map(Mapping::Owned(Tracked::new(entries, held))))
    }

    fn comprehension(&mut self, it: &'a ComprehensionExpr) -> Found<'a> {
        let accumulated = self.value(&it.accu_init)?;
        let over = match self.value(&it.iter_range)? {
            Val::List(list) => list,
            Val::Map(map) => map.keys(self.meter)?,
            other => return Err(EvaluationError::types("a loop", vec![other.type_name()])),
        };
        match Appending::of(it) {
            Some(appending) if matches!(&accumulated, Val::List(list) if list.len() == 0) => {
                self.append(it, &appending, &over)
            }
            _ => self.fold(it, accumulated, &over),
        }
    }

    /// `map` and `filter`: the list grows in place.
    fn append(&mut self, it: &'a ComprehensionExpr, appending: &Appending<'a>, over: &List<'a>) -> Found<'a> {
        let mut held = Held::nothing(self.meter);
        let mut items = Vec::new();
        let at = self.bound.len();
        self.bound.push((&it.iter_var, Val::Null));
        for index in 0..over.len() {
            self.meter.charge(1)?;
            self.bound[at].1 = over.get(index).unwrap_or(Val::Null);
            if let Some(guard) = appending.guard
                && !self.truth(guard, operators::CONDITIONAL)?
            {
                continue;
            }
            if let Val::List(more) = self.value(appending.items)? {
                held.grow(more.len() * size_of::<Val<'_>>())?;
                items.extend((0..more.len()).filter_map(|index| more.get(index)));
            }
        }
        Ok(Val::List(List::Owned(Tracked::new(items, held))))
    }

    /// Any other loop. In `all` and `exists` a later element may outweigh an error of an earlier one.
    fn fold(&mut self, it: &'a ComprehensionExpr, accumulated: Val<'a>, over: &List<'a>) -> Found<'a> {
        let decides = decides(it);
        let mut error = None;
        let at = self.bound.len();
        self.bound.push((&it.accu_var, accumulated));
        self.bound.push((&it.iter_var, Val::Null));
        for index in 0..over.len() {
            if !self.truth(&it.loop_cond, "a loop")? {
                break;
            }
            self.bound[at + 1].1 = over.get(index).unwrap_or(Val::Null);
            match (self.value(&it.loop_step), decides) {
                (Err(EvaluationError::DataError(why)), Some(_)) => error = Some(why),
                (Err(error), _) => return Err(error),
                (Ok(Val::Bool(truth)), Some(decides)) if error.is_some() && truth != decides => {}
                (Ok(value), _) => {
                    error = None;
                    self.bound[at].1 = value;
                }
            }
        }
        if let Some(why) = error {
            return Err(EvaluationError::DataError(why));
        }
        self.bound.truncate(at + 1);
        self.value(&it.result)
    }
}

/// The steps of `map` and `filter`: `@result + [expr]`, perhaps under a condition.
struct Appending<'a> {
    guard: Option<&'a IdedExpr>,
    items: &'a IdedExpr,
}

impl<'a> Appending<'a> {
    fn of(it: &'a ComprehensionExpr) -> Option<Appending<'a>> {
        let is_result = |at: &IdedExpr| matches!(&at.expr, Expr::Ident(name) if *name == it.accu_var);
        let items = |at: &'a IdedExpr| match &at.expr {
            Expr::Call(call) if call.func_name == operators::ADD && call.target.is_none() => {
                match call.args.as_slice() {
                    [before, more] if is_result(before) && matches!(more.expr, Expr::List(_)) => Some(more),
                    _ => None,
                }
            }
            _ => None,
        };
        if !is_result(&it.result) || !matches!(it.loop_cond.expr, Expr::Literal(_)) {
            return None;
        }
        if let Expr::Call(call) = &it.loop_step.expr
            && call.func_name == operators::CONDITIONAL
            && let [guard, step, otherwise] = call.args.as_slice()
        {
            return is_result(otherwise)
                .then_some(())
                .and_then(|()| Some(Appending { guard: Some(guard), items: items(step)? }));
        }
        Some(Appending { guard: None, items: items(&it.loop_step)? })
    }
}

/// The value that decides `all` and `exists` whatever the other elements are.
fn decides(it: &ComprehensionExpr) -> Option<bool> {
    let Expr::Call(call) = &it.loop_step.expr else { return None };
    match (call.func_name.as_str(), call.args.first().map(|first| &first.expr)) {
        (operators::LOGICAL_AND, Some(Expr::Ident(name))) if *name == it.accu_var => Some(false),
        (operators::LOGICAL_OR, Some(Expr::Ident(name))) if *name == it.accu_var => Some(true),
        _ => None,
    }
}

fn of_literal(literal: &LiteralValue) -> Val<'_> {
    match literal {
        LiteralValue::Null => Val::Null,
        LiteralValue::Boolean(it) => Val::Bool(*it.inner()),
        LiteralValue::Int(it) => Val::Int(*it.inner()),
        LiteralValue::UInt(it) => Val::UInt(*it.inner()),
        LiteralValue::Double(it) => Val::Double(*it.inner()),
        LiteralValue::String(it) => Val::Text(Text::Borrowed(it.inner())),
        LiteralValue::Bytes(it) => Val::Bytes(Bytes::Borrowed(it.inner())),
    }
}

/// `operand.field`.
fn member<'a>(operand: &Val<'a>, field: &str) -> Found<'a> {
    match operand {
        Val::Map(map) => map.member(field).ok_or_else(|| EvaluationError::missing(field)),
        other => Err(EvaluationError::types(&format!(".{field}"), vec![other.type_name()])),
    }
}

/// `has(operand.field)`.
fn has(operand: &Val<'_>, field: &str) -> Result<bool, EvaluationError> {
    match operand {
        Val::Map(map) => Ok(map.member(field).is_some()),
        other => Err(EvaluationError::types(&format!("has(.{field})"), vec![other.type_name()])),
    }
}

/// A key that is written in the expression may be part of a message.
fn named_key(error: EvaluationError, written: &IdedExpr) -> EvaluationError {
    match (&error, &written.expr) {
        (EvaluationError::DataError(DataError::MissingKey), Expr::Literal(LiteralValue::String(key))) => {
            EvaluationError::missing(key.inner())
        }
        _ => error,
    }
}
