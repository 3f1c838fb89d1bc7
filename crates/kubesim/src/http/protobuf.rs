//! Protobuf bodies, which kubectl sends where it uses typed clients (create, drain, auth can-i). They are converted
//! to JSON with a table that `tools/kube/messages` generates from the Go source of the API types. A kind that is not
//! in the table cannot be read. Responses are never protobuf.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The prefix of every body.
const MAGIC: &[u8] = b"k8s\0";
/// Limit on the nesting of messages.
const DEPTH_MAX: usize = 64;

#[derive(Deserialize)]
struct Table {
    /// Messages by API version and kind.
    roots: HashMap<String, HashMap<String, String>>,
    messages: HashMap<String, Vec<Field>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Field {
    number: u64,
    name: String,
    pointer: bool,
    repeated: bool,
    map: bool,
    inline: bool,
    omit: bool,
    scalar: Option<String>,
    special: Option<String>,
    message: Option<String>,
}

fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        serde_json::from_str(include_str!("../../data/messages.json"))
            .expect("the table is embedded, and a test reads it")
    });
    &TABLE
}

/// Why a body cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProtobufError {
    /// The bytes are not valid protobuf of the kind.
    Malformed,
    /// Its kind is not in the table.
    UnknownKind,
}

/// Decodes a protobuf body to JSON.
pub(super) fn object(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(ProtobufError::Malformed)?;
    let (mut version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for part in parts(envelope) {
        match part? {
            (1, Wire::Bytes(meta)) => {
                for part in parts(meta) {
                    match part? {
                        (1, Wire::Bytes(text)) => version = text_of(text)?,
                        (2, Wire::Bytes(text)) => kind = text_of(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let table = table();
    // DeleteOptions have no group of their own: clients send them with the group of the object.
    let options = (kind == "DeleteOptions").then_some("meta.DeleteOptions");
    let known = table.roots.get(&version).and_then(|kinds| kinds.get(&kind)).map(String::as_str);
    let name = known.or(options).ok_or(ProtobufError::UnknownKind)?;
    let mut object = message(table, name, raw, DEPTH_MAX)?;
    object.insert("apiVersion".into(), version.into());
    object.insert("kind".into(), kind.into());
    Ok(Value::Object(object))
}

fn message(
    table: &Table,
    name: &str,
    bytes: &[u8],
    depth: usize,
) -> Result<Map<String, Value>, ProtobufError> {
    let depth = depth.checked_sub(1).ok_or(ProtobufError::Malformed)?;
    let fields = table.messages.get(name).ok_or(ProtobufError::UnknownKind)?;
    let mut object = Map::new();
    for part in parts(bytes) {
        let (number, wire) = part?;
        let Some(field) = fields.iter().find(|field| field.number == number) else { continue };
        if field.map {
            let (key, value) = entry(table, field, &wire, depth)?;
            if let Some(map) = object.entry(&field.name).or_insert_with(|| json!({})).as_object_mut() {
                map.insert(key, value);
            }
            continue;
        }
        let value = value(table, field, &wire, depth)?;
        if field.inline {
            if let Value::Object(inner) = value {
                object.extend(inner);
            }
        } else if field.repeated {
            if let Some(list) = object.entry(&field.name).or_insert_with(|| json!([])).as_array_mut() {
                list.push(value);
            }
        } else if field.pointer || !field.omit || !is_zero(&value) {
            object.insert(field.name.clone(), value);
        }
    }
    Ok(object)
}

/// Values that Go omits from JSON with `omitempty`.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    }
}

fn entry(
    table: &Table,
    field: &Field,
    wire: &Wire<'_>,
    depth: usize,
) -> Result<(String, Value), ProtobufError> {
    let Wire::Bytes(bytes) = wire else { return Err(ProtobufError::Malformed) };
    let (mut key, mut content) = (String::new(), None);
    for part in parts(bytes) {
        match part? {
            (1, Wire::Bytes(text)) => key = text_of(text)?,
            (2, wire) => content = Some(value(table, field, &wire, depth)?),
            _ => {}
        }
    }
    let content = match content {
        Some(content) => content,
        None => value(table, field, &Wire::Bytes(&[]), depth)?,
    };
    Ok((key, content))
}

fn value(table: &Table, field: &Field, wire: &Wire<'_>, depth: usize) -> Result<Value, ProtobufError> {
    if let Some(name) = &field.message {
        let Wire::Bytes(bytes) = wire else { return Err(ProtobufError::Malformed) };
        return message(table, name, bytes, depth).map(Value::Object);
    }
    if let Some(special) = &field.special {
        let Wire::Bytes(bytes) = wire else { return Err(ProtobufError::Malformed) };
        return self::special(special, bytes);
    }
    match (field.scalar.as_deref().unwrap_or_default(), wire) {
        ("string", Wire::Bytes(text)) => text_of(text).map(Value::from),
        ("bytes", Wire::Bytes(bytes)) => Ok(json!(STANDARD.encode(bytes))),
        ("bool", Wire::Number(number)) => Ok(json!(*number != 0)),
        ("int", Wire::Number(number)) => Ok(json!(number.cast_signed())),
        ("double", Wire::Fixed(bits)) => Ok(json!(f64::from_bits(*bits))),
        _ => Err(ProtobufError::Malformed),
    }
}

/// Decodes types with a JSON form of their own.
fn special(name: &str, bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut numbers, mut texts) = (HashMap::new(), HashMap::<u64, Vec<String>>::new());
    for part in parts(bytes) {
        match part? {
            (number, Wire::Number(value)) => {
                numbers.insert(number, value.cast_signed());
            }
            (number, Wire::Bytes(text)) => texts.entry(number).or_default().push(text_of(text)?),
            _ => {}
        }
    }
    let number = |field: u64| numbers.get(&field).copied().unwrap_or(0);
    let text = |field: u64| texts.get(&field).and_then(|texts| texts.first()).cloned().unwrap_or_default();
    match name {
        "time" | "microtime" if numbers.is_empty() => Ok(Value::Null),
        "time" => Timestamp::from_second(number(1))
            .map(|time| json!(time.to_string()))
            .map_err(|_| ProtobufError::Malformed),
        "microtime" => {
            let nanos = i32::try_from(number(2)).map_err(|_| ProtobufError::Malformed)?;
            let time = Timestamp::new(number(1), nanos).map_err(|_| ProtobufError::Malformed)?;
            Ok(json!(format!("{time:.6}")))
        }
        "quantity" => Ok(json!(text(1))),
        "intorstring" if number(1) == 0 => Ok(json!(number(2))),
        "intorstring" => Ok(json!(text(3))),
        "raw" | "fields" => Ok(serde_json::from_str(&text(1)).unwrap_or_default()),
        "duration" => Ok(json!(format!("{}ns", number(1)))),
        "items" => Ok(json!(texts.remove(&1).unwrap_or_default())),
        _ => Err(ProtobufError::UnknownKind),
    }
}

fn text_of(bytes: &[u8]) -> Result<String, ProtobufError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Malformed)
}

/// A value on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wire<'a> {
    Number(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in order.
fn parts(mut bytes: &[u8]) -> impl Iterator<Item = Result<(u64, Wire<'_>), ProtobufError>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let next = part(&mut bytes).ok_or(ProtobufError::Malformed);
        if next.is_err() {
            bytes = &[];
        }
        Some(next)
    })
}

fn part<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Wire<'a>)> {
    let tag = varint(bytes)?;
    let wire = match tag & 7 {
        0 => Wire::Number(varint(bytes)?),
        1 => {
            let (fixed, rest) = bytes.split_at_checked(8)?;
            *bytes = rest;
            Wire::Fixed(u64::from_le_bytes(fixed.try_into().ok()?))
        }
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            let (content, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Wire::Bytes(content)
        }
        5 => {
            let (fixed, rest) = bytes.split_at_checked(4)?;
            *bytes = rest;
            Wire::Fixed(u64::from(u32::from_le_bytes(fixed.try_into().ok()?)))
        }
        _ => return None,
    };
    Some((tag >> 3, wire))
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    fn body(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, raw)].concat()
    }

    #[test]
    fn a_configmap_is_converted_to_json() {
        let metadata = [field(1, b"a"), field(2, b""), field(8, b"")].concat();
        let data = [field(1, b"key"), field(2, b"value")].concat();
        let binary = [field(1, b"blob"), field(2, &[0xff])].concat();
        let raw = [field(1, &metadata), field(2, &data), field(3, &binary)].concat();
        let expect = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
            "data": {"key": "value"}, "binaryData": {"blob": "/w=="},
        });
        assert_eq!(object(&body("v1", "ConfigMap", &raw)), Ok(expect));
    }

    #[test]
    fn a_kind_that_is_not_in_the_table_is_rejected() {
        assert_eq!(object(&body("v1", "Endpoints", &[])), Err(ProtobufError::UnknownKind));
        assert_eq!(object(b"{}"), Err(ProtobufError::Malformed));
    }

    #[test]
    fn every_message_of_the_table_is_complete() {
        let table = table();
        for (name, fields) in &table.messages {
            for field in fields {
                let known = field.message.as_ref().is_none_or(|message| table.messages.contains_key(message));
                assert!(known, "{name}.{}", field.name);
            }
        }
        assert!(table.roots.values().flat_map(HashMap::values).all(|root| table.messages.contains_key(root)));
    }

    proptest! {
        #[test]
        fn no_body_panics(raw in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut framed = body("v1", "Pod", &[]);
            framed.extend([0x12, u8::try_from(raw.len().min(127)).unwrap()]);
            framed.extend(&raw[..raw.len().min(127)]);
            let _ = object(&framed);
        }
    }
}
