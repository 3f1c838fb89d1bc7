//! Numbers of provider specs that may be given in several forms.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A quantity of bytes, such as `16Gi`. Absent is zero.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Quantity {
    text: String,
    value: f64,
}

impl Quantity {
    /// The amount in units of `unit` bytes, without the rest.
    pub(crate) fn in_units_of(&self, unit: f64) -> f64 {
        (self.value / unit).trunc()
    }

    /// The amount in bytes.
    pub(crate) fn value(&self) -> f64 {
        self.value
    }

    fn parse(text: &str) -> Option<Quantity> {
        let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')));
        let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
        let number: f64 = number.parse().ok()?;
        let factor = match suffix {
            "" => 1.0,
            "n" => 1e-9,
            "u" => 1e-6,
            "m" => 1e-3,
            "k" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            "T" => 1e12,
            "P" => 1e15,
            "E" => 1e18,
            "Ki" => 1024.0,
            "Mi" => 1024f64.powi(2),
            "Gi" => 1024f64.powi(3),
            "Ti" => 1024f64.powi(4),
            "Pi" => 1024f64.powi(5),
            "Ei" => 1024f64.powi(6),
            exponent => 10f64.powi(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
        };
        let value = number * factor;
        value.is_finite().then(|| Quantity { text: text.to_owned(), value })
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
        struct QuantityVisitor;

        impl Visitor<'_> for QuantityVisitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 16Gi")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                Quantity::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
        }

        deserializer.deserialize_any(QuantityVisitor)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// A whole number, or a number in a string.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub(crate) enum IntOrString {
    /// A whole number.
    Int(i32),
    /// A string.
    String(String),
}

impl Default for IntOrString {
    fn default() -> IntOrString {
        IntOrString::Int(0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_quantity_is_read_in_every_form_of_kubernetes() {
        let check = |given: Value, bytes: f64| {
            let quantity: Quantity = serde_json::from_value(given.clone()).unwrap();
            assert!((quantity.value() - bytes).abs() < 1e-6, "{given}: {quantity:?}");
        };
        check(json!("2048Mi"), 2_147_483_648.0);
        check(json!("20Gi"), 21_474_836_480.0);
        check(json!("1.5k"), 1500.0);
        check(json!("500m"), 0.5);
        check(json!("1e3"), 1000.0);
        check(json!("2E"), 2e18);
        check(json!(7), 7.0);
        check(json!(0.5), 0.5);
        check(json!("-1"), -1.0);
    }

    #[test]
    fn other_text_is_no_quantity() {
        for given in ["", "Gi", "1 Gi", "1GiB", "abc", "1e", "1e999", "--1"] {
            let error = serde_json::from_value::<Quantity>(json!(given)).unwrap_err().to_string();
            assert!(error.ends_with("expected a quantity such as 16Gi"), "{given}: {error}");
        }
    }
}
