//! Provider specs as JSON: reading them into a type, finding the fields that the type does not have, and filling in fields.
//!
//! The given JSON stays what it is: a default is added to it, and nothing is rewritten that was given in another form.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::field::FieldError;

/// The path of provider specs in the texts of errors, whatever object they are in.
pub(crate) const PATH: &str = "providerSpec.value";

/// The most unknown fields that are named in warnings; a server shows at most 4 KiB of warnings.
const UNKNOWN_FIELDS_MAX: usize = 20;

/// A provider spec that was read.
#[derive(Debug)]
pub(crate) struct DecodedSpec<T> {
    /// The spec.
    pub(crate) spec: T,
    /// The given JSON without null values and unknown fields.
    pub(crate) known: Map<String, Value>,
    /// The unknown fields.
    pub(crate) unknown: Vec<String>,
}

/// Reads a provider spec. The type must serialize all its fields, also those without a value.
pub(crate) fn decode<T: DeserializeOwned + Serialize>(
    value: Option<&Value>,
) -> Result<DecodedSpec<T>, FieldError> {
    let Some(value) = value.filter(|it| !it.is_null()) else {
        return Err(FieldError::required(PATH, "a value must be provided"));
    };
    let mut known = value.clone();
    remove_nulls(&mut known);
    let spec: T = serde_path_to_error::deserialize(known.clone()).map_err(|error| {
        let (path, error) = (error.path().to_string(), error.into_inner());
        let at = if path == "." { String::new() } else { format!("{path}: ") };
        FieldError::malformed(PATH, format!("{at}{error}"))
    })?;
    let all_fields = serde_json::to_value(&spec)
        .map_err(|error| FieldError::internal(PATH, format!("cannot write it as JSON: {error}")))?;
    let mut comparison = Comparison::default();
    comparison.retain_known(&mut known, &all_fields, "");
    let Comparison { unknown, list } = comparison;
    match (known, list) {
        (Value::Object(known), None) => Ok(DecodedSpec { spec, known, unknown }),
        (_, Some(path)) if !path.is_empty() => {
            Err(FieldError::malformed(PATH, format!("{path}: it must be an object")))
        }
        _ => Err(FieldError::malformed(PATH, "it must be an object")),
    }
}

impl<T> DecodedSpec<T> {
    /// The warnings about unknown fields.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.unknown.iter().take(UNKNOWN_FIELDS_MAX).map(|field| {
            format!("{PATH}: Unsupported value: {field:?}: Unknown field ({field}) will be ignored")
        })
    }
}

/// Removes the fields of objects whose value is null: they are the same as absent ones.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// A comparison of given JSON with all fields that its type has.
#[derive(Default)]
struct Comparison {
    /// The paths of fields that the type does not have.
    unknown: Vec<String>,
    /// The path of a list in the place of an object, which serde accepts for a struct.
    list: Option<String>,
}

impl Comparison {
    /// Removes the fields of `given` that are not in `known`.
    fn retain_known(&mut self, given: &mut Value, known: &Value, path: &str) {
        match (given, known) {
            (Value::Object(given), Value::Object(known)) => {
                given.retain(|name, value| {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    match known.get(name) {
                        Some(known) => self.retain_known(value, known, &path),
                        None => self.unknown.push(path),
                    }
                    known.contains_key(name)
                });
            }
            (Value::Array(given), Value::Array(known)) => {
                for (index, (given, known)) in given.iter_mut().zip(known).enumerate() {
                    self.retain_known(given, known, &format!("{path}[{index}]"));
                }
            }
            (Value::Array(_), Value::Object(_)) => self.list = Some(path.to_owned()),
            _ => {}
        }
    }
}

/// Sets a field that has no value, or an empty one.
pub(crate) fn set_if_empty(fields: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    let is_empty = match fields.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Number(number)) => number.as_f64() == Some(0.0),
        Some(Value::Bool(_) | Value::Object(_)) => false,
    };
    if is_empty {
        fields.insert(name.to_owned(), value.into());
    }
}

/// Sets a field that is absent.
pub(crate) fn set_if_absent(fields: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    if !fields.contains_key(name) {
        fields.insert(name.to_owned(), value.into());
    }
}

/// A field that is an object; it is created when it is absent.
pub(crate) fn object<'a>(
    fields: &'a mut Map<String, Value>,
    name: &str,
) -> Option<&'a mut Map<String, Value>> {
    fields.entry(name).or_insert_with(|| Value::Object(Map::new())).as_object_mut()
}

/// A reference to a Secret in the namespace of the Machine.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct LocalSecretReference {
    pub(crate) name: String,
}

/// The type of an object inside of another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpectedType {
    /// The kind.
    pub(crate) kind: &'static str,
    /// The group that providers had before they shared one.
    pub(crate) earlier_group: &'static str,
}

impl ExpectedType {
    /// The warning about a provider spec of another type.
    pub(crate) fn warning(self, api_version: &str, kind: &str) -> Option<String> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let is_expected = kind == self.kind
            && (group == "machine.openshift.io" || group == self.earlier_group)
            && matches!(version, "v1" | "v1beta1");
        let expected = self.kind;
        (!is_expected).then(|| {
            format!("incorrect GroupVersionKind for {expected} object: {group}/{version}, Kind={kind}")
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, Deserialize, Serialize)]
    #[serde(default)]
    struct Spec {
        size: i32,
        disks: Vec<Disk>,
        labels: std::collections::BTreeMap<String, String>,
        metadata: Value,
    }

    #[derive(Debug, Default, Deserialize, Serialize)]
    #[serde(default)]
    struct Disk {
        name: String,
    }

    #[test]
    fn unknown_fields_are_found_at_every_depth_and_removed() {
        let given = json!({
            "size": 3, "colour": "red", "nothing": null, "disks": [{"name": "a"}, {"name": "b", "speed": 1}],
            "labels": {"any": "thing"}, "metadata": {"any": ["thing"]}
        });
        let decoded: DecodedSpec<Spec> = decode(Some(&given)).unwrap();
        assert_eq!(decoded.unknown, ["colour", "disks[1].speed"]);
        assert_eq!(
            decoded.warnings().next().unwrap(),
            "providerSpec.value: Unsupported value: \"colour\": Unknown field (colour) will be ignored"
        );
        let known = json!({
            "size": 3, "disks": [{"name": "a"}, {"name": "b"}], "labels": {"any": "thing"},
            "metadata": {"any": ["thing"]}
        });
        assert_eq!(Value::Object(decoded.known), known);
        assert_eq!(decoded.spec.disks[1].name, "b");
    }

    #[test]
    fn an_error_of_the_type_names_the_field() {
        let check = |given: Option<Value>, text: &str| {
            assert_eq!(decode::<Spec>(given.as_ref()).unwrap_err().to_string(), text);
        };
        check(None, "providerSpec.value: Required value: a value must be provided");
        check(Some(Value::Null), "providerSpec.value: Required value: a value must be provided");
        check(
            Some(json!({"disks": [{"name": 5}]})),
            "providerSpec.value: Invalid value: disks[0].name: invalid type: integer `5`, expected a string",
        );
        check(
            Some(json!("text")),
            "providerSpec.value: Invalid value: invalid type: string \"text\", expected struct Spec",
        );
        // Serde accepts a list of the fields' values for a struct.
        check(Some(json!([3])), "providerSpec.value: Invalid value: it must be an object");
        check(
            Some(json!({"disks": [["a"]]})),
            "providerSpec.value: Invalid value: disks[0]: it must be an object",
        );
    }

    #[test]
    fn a_type_of_another_group_version_or_kind_is_a_warning() {
        let expected = ExpectedType { kind: "Spec", earlier_group: "old.openshift.io" };
        for group in ["machine.openshift.io", "old.openshift.io"] {
            for version in ["v1", "v1beta1"] {
                assert_eq!(expected.warning(&format!("{group}/{version}"), "Spec"), None);
            }
        }
        let warning = |version: &str, kind: &str| expected.warning(version, kind).unwrap();
        assert_eq!(
            warning("machine.openshift.io/v2", "Spec"),
            "incorrect GroupVersionKind for Spec object: machine.openshift.io/v2, Kind=Spec"
        );
        assert_eq!(warning("", ""), "incorrect GroupVersionKind for Spec object: /, Kind=");
        assert_eq!(warning("v1", "Pod"), "incorrect GroupVersionKind for Spec object: /v1, Kind=Pod");
    }
}
