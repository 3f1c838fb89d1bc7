//! The OpenAPI v2 document in protobuf, the only form in which Go clients read it. The numbers are those of the
//! messages of `openapi.v2`.

use serde_json::Value;

/// Encodes a document.
pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut message = Message::default();
    message.text(1, &document["swagger"]);
    message.message(2, |info| {
        info.text(1, &document["info"]["title"]);
        info.text(2, &document["info"]["version"]);
    });
    message.message(8, |paths| {
        for (path, operations) in entries(&document["paths"]) {
            paths.named(2, path, |item| path_item(item, operations));
        }
    });
    message.message(9, |definitions| {
        for (name, definition) in entries(&document["definitions"]) {
            definitions.named(1, name, |value| schema(value, definition));
        }
    });
    message.0
}

fn path_item(message: &mut Message, operations: &Value) {
    for (number, verb) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if operations[verb].is_object() {
            message.message(number, |inner| operation(inner, &operations[verb]));
        }
    }
}

fn operation(message: &mut Message, operation: &Value) {
    for media in items(&operation["consumes"]) {
        message.text(7, media);
    }
    for one in items(&operation["parameters"]) {
        message.message(8, |item| item.message(1, |inner| parameter(inner, one)));
    }
    message.message(9, |responses| {
        for (code, response) in entries(&operation["responses"]) {
            responses
                .named(1, code, |value| value.message(1, |inner| inner.text(1, &response["description"])));
        }
    });
    extensions(message, 13, operation);
}

fn parameter(message: &mut Message, parameter: &Value) {
    if parameter["in"] == "body" {
        message.message(1, |body| {
            body.text(2, &parameter["name"]);
            body.text(3, &parameter["in"]);
            body.flag(4, &parameter["required"]);
            body.message(5, |inner| schema(inner, &parameter["schema"]));
        });
        return;
    }
    message.message(2, |other| {
        other.message(3, |query| {
            query.text(2, &parameter["in"]);
            query.text(4, &parameter["name"]);
            query.text(6, &parameter["type"]);
            query.flag(20, &parameter["uniqueItems"]);
        });
    });
}

fn schema(message: &mut Message, value: &Value) {
    for (number, keyword) in [(1, "$ref"), (2, "format"), (3, "title"), (4, "description"), (13, "pattern")] {
        message.text(number, &value[keyword]);
    }
    if !value["default"].is_null() {
        message.message(5, |any| any.yaml(&value["default"]));
    }
    for (number, keyword) in [(6, "multipleOf"), (7, "maximum"), (9, "minimum")] {
        message.double(number, &value[keyword]);
    }
    for (number, keyword) in [(8, "exclusiveMaximum"), (10, "exclusiveMinimum"), (16, "uniqueItems")] {
        message.flag(number, &value[keyword]);
    }
    for (number, keyword) in [
        (11, "maxLength"),
        (12, "minLength"),
        (14, "maxItems"),
        (15, "minItems"),
        (17, "maxProperties"),
        (18, "minProperties"),
    ] {
        message.number(number, &value[keyword]);
    }
    for name in items(&value["required"]) {
        message.text(19, name);
    }
    for one in items(&value["enum"]) {
        message.message(20, |any| any.yaml(one));
    }
    match &value["additionalProperties"] {
        Value::Bool(_) => message.message(21, |any| any.flag(2, &value["additionalProperties"])),
        Value::Object(_) => {
            message.message(21, |any| any.message(1, |inner| schema(inner, &value["additionalProperties"])));
        }
        _ => {}
    }
    if value["type"].is_string() {
        message.message(22, |item| item.text(1, &value["type"]));
    }
    if value["items"].is_object() {
        message.message(23, |item| item.message(1, |inner| schema(inner, &value["items"])));
    }
    if value["properties"].is_object() {
        message.message(25, |properties| {
            for (name, property) in entries(&value["properties"]) {
                properties.named(1, name, |inner| schema(inner, property));
            }
        });
    }
    extensions(message, 31, value);
}

/// The keywords that start with `x-`.
fn extensions(message: &mut Message, number: u32, value: &Value) {
    for (name, extension) in entries(value).filter(|(name, _)| name.starts_with("x-")) {
        message.named(number, name, |any| any.yaml(extension));
    }
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A message under construction. Fields with a missing value are left out.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, number: u32, wire: u32) {
        self.varint(u64::from(number << 3 | wire));
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.key(number, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, number: u32, value: &Value) {
        if let Some(text) = value.as_str() {
            self.bytes(number, text.as_bytes());
        }
    }

    fn flag(&mut self, number: u32, value: &Value) {
        if let Some(truth) = value.as_bool() {
            self.key(number, 0);
            self.varint(truth.into());
        }
    }

    fn number(&mut self, number: u32, value: &Value) {
        if let Some(value) = value.as_u64() {
            self.key(number, 0);
            self.varint(value);
        }
    }

    fn double(&mut self, number: u32, value: &Value) {
        if let Some(value) = value.as_f64() {
            self.key(number, 1);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn message(&mut self, number: u32, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(number, &inner.0);
    }

    /// An entry of a map: its name and its value.
    fn named(&mut self, number: u32, name: &str, fill: impl FnOnce(&mut Message)) {
        self.message(number, |entry| {
            entry.bytes(1, name.as_bytes());
            entry.message(2, fill);
        });
    }

    /// The text of a value of any type; JSON is YAML.
    fn yaml(&mut self, value: &Value) {
        self.bytes(2, value.to_string().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_is_encoded_field_by_field() {
        let small = json!({
            "swagger": "2.0", "info": { "title": "t", "version": "v" }, "paths": {},
            "definitions": { "A": { "type": "string", "x-b": true } },
        });
        let expect = [
            b"\x0a\x032.0\x12\x06\x0a\x01t\x12\x01v\x42\x00\x4a\x22\x0a\x20\x0a\x01A\x12\x1b".as_slice(),
            b"\xb2\x01\x08\x0a\x06string\xfa\x01\x0d\x0a\x03x-b\x12\x06\x12\x04true",
        ];
        assert_eq!(document(&small), expect.concat());
    }
}
