//! The functions of CEL's standard library. Those on numbers, times and durations are the `cel` crate's own; those on strings,
//! lists and maps are implemented here, since their cost is counted.

use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, Expr, IdedExpr};
use cel::{Context, Env, ExecutionError};

use super::error::EvaluationError;
use super::evaluate::Evaluator;
use super::meter::Meter;
use super::value::Val;

/// The available functions, by name.
pub(super) const FUNCTIONS: [&str; 25] = [
    "bool",
    "bytes",
    "contains",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "int",
    "matches",
    "size",
    "startsWith",
    "string",
    "timestamp",
    "type",
    "uint",
];

/// Longest text of a number, time or duration, in bytes.
const SCALAR_MAX: usize = 256;

static LIBRARY: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// Calls a function; the first of the arguments is the target of a method.
pub(super) fn call<'a>(
    evaluation: &mut Evaluator<'a>,
    name: &str,
    is_method: bool,
    args: &[Val<'a>],
) -> Result<Val<'a>, EvaluationError> {
    let meter = evaluation.meter;
    match (name, is_method, args) {
        ("size", _, [Val::Text(text)]) => {
            meter.charge_bytes(text.as_str().len())?;
            Ok(count(text.as_str().chars().count()))
        }
        ("size", _, [Val::Bytes(bytes)]) => Ok(count(bytes.as_slice().len())),
        ("size", _, [Val::List(list)]) => Ok(count(list.len())),
        ("size", _, [Val::Map(map)]) => Ok(count(map.len())),
        ("contains" | "startsWith" | "endsWith", true, [Val::Text(text), Val::Text(part)]) => {
            let (text, part) = (text.as_str(), part.as_str());
            meter.charge_bytes(text.len() + part.len())?;
            Ok(Val::Bool(match name {
                "contains" => text.contains(part),
                "startsWith" => text.starts_with(part),
                _ => text.ends_with(part),
            }))
        }
        ("matches", _, [Val::Text(text), Val::Text(pattern)]) => {
            evaluation.patterns.is_match(text.as_str(), pattern.as_str(), meter).map(Val::Bool)
        }
        ("type", false, [value]) => Ok(Val::Type(value.type_name())),
        ("dyn", false, [value])
        | ("string", false, [value @ Val::Text(_)])
        | ("bytes", false, [value @ Val::Bytes(_)]) => Ok(value.clone()),
        ("bytes", false, [Val::Text(text)]) => {
            meter.charge_bytes(text.as_str().len())?;
            Val::bytes(text.as_str().as_bytes().to_vec(), meter)
        }
        ("string", false, [Val::Bytes(bytes)]) => {
            meter.charge_bytes(bytes.as_slice().len())?;
            let text = std::str::from_utf8(bytes.as_slice());
            Val::text(
                text.map_err(|_| EvaluationError::failed(name, "is given bytes that are not UTF-8"))?
                    .to_owned(),
                meter,
            )
        }
        ("bool" | "int" | "uint" | "double" | "string" | "timestamp" | "duration", false, [_]) => {
            library(name, false, args, meter)
        }
        (_, true, [Val::Moment(_), ..]) if name.starts_with("get") => library(name, true, args, meter),
        _ => Err(EvaluationError::types(name, args.iter().map(Val::type_name).collect())),
    }
}

fn count<'a>(count: usize) -> Val<'a> {
    Val::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Calls the `cel` crate for small values. Its messages quote them, and are dropped.
pub(super) fn library<'a>(
    name: &str,
    is_method: bool,
    args: &[Val<'a>],
    meter: &'a Meter<'a>,
) -> Result<Val<'a>, EvaluationError> {
    let types = || EvaluationError::types(name, args.iter().map(Val::type_name).collect());
    meter.charge(10)?;
    let mut context = Context::with_env(LIBRARY.clone());
    let mut idents = Vec::with_capacity(args.len());
    for (index, value) in args.iter().enumerate() {
        let value = match value {
            Val::Bool(it) => cel::Value::Bool(*it),
            Val::Int(it) => cel::Value::Int(*it),
            Val::UInt(it) => cel::Value::UInt(*it),
            Val::Double(it) => cel::Value::Float(*it),
            Val::Moment(it) => it.clone(),
            Val::Text(it) if it.as_str().len() > SCALAR_MAX => {
                return Err(EvaluationError::failed(name, "is given a string that is too long"));
            }
            Val::Text(it) => cel::Value::String(Arc::new(it.as_str().to_owned())),
            _ => return Err(types()),
        };
        let ident = format!("a{index}");
        context.add_variable_from_value(ident.as_str(), value);
        idents.push(IdedExpr { id: index as u64, expr: Expr::Ident(ident) });
    }
    let target = is_method.then(|| Box::new(idents.remove(0)));
    let call = Expr::Call(CallExpr { func_name: name.to_owned(), target, args: idents });
    match cel::Value::resolve(&IdedExpr { id: u64::MAX, expr: call }, &context) {
        Ok(cel::Value::Bool(it)) => Ok(Val::Bool(it)),
        Ok(cel::Value::Int(it)) => Ok(Val::Int(it)),
        Ok(cel::Value::UInt(it)) => Ok(Val::UInt(it)),
        Ok(cel::Value::Float(it)) => Ok(Val::Double(it)),
        Ok(cel::Value::String(it)) => Val::text((*it).clone(), meter),
        Ok(it @ (cel::Value::Timestamp(_) | cel::Value::Duration(_))) => Ok(Val::Moment(it)),
        Err(ExecutionError::Overflow(..)) => Err(EvaluationError::range(name)),
        Err(ExecutionError::FunctionError { .. }) => {
            Err(EvaluationError::failed(name, "cannot convert its argument"))
        }
        Ok(_) | Err(_) => Err(types()),
    }
}
