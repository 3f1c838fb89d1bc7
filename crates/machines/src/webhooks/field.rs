//! Errors of fields, with the texts of Kubernetes' own validation: `path: Required value: detail`.

use std::fmt;

use serde_json::Value;

/// The class of a [`FieldError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// A field without a value that must have one.
    Required,
    /// A value that is not accepted.
    Invalid,
    /// A value that is not among those of a list.
    NotSupported,
    /// A value that may not be given here.
    Forbidden,
    /// A list with too many items.
    TooMany,
    /// A fault of the validation.
    Internal,
}

impl FieldErrorKind {
    /// The text of the class.
    pub fn as_str(self) -> &'static str {
        match self {
            FieldErrorKind::Required => "Required value",
            FieldErrorKind::Invalid => "Invalid value",
            FieldErrorKind::NotSupported => "Unsupported value",
            FieldErrorKind::Forbidden => "Forbidden",
            FieldErrorKind::TooMany => "Too many",
            FieldErrorKind::Internal => "Internal error",
        }
    }
}

/// One rule that an object violates.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// The field, such as `providerSpec.osDisk.diskSizeGB`.
    pub path: String,
    /// The class.
    pub kind: FieldErrorKind,
    /// The rejected value; none where the text does not quote it.
    pub value: Option<Value>,
    /// What is accepted.
    pub detail: String,
}

impl FieldError {
    /// A field without a value that must have one.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(path, FieldErrorKind::Required, None, detail)
    }

    /// A value that is not accepted.
    pub fn invalid(
        path: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError::new(path, FieldErrorKind::Invalid, Some(value.into()), detail)
    }

    /// A value that is not accepted and that the detail describes.
    pub fn malformed(path: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(path, FieldErrorKind::Invalid, None, detail)
    }

    /// A value that is not among those of a list.
    pub fn not_supported(path: impl Into<String>, value: &str, supported: &[&str]) -> FieldError {
        let supported: Vec<String> = supported.iter().map(|it| format!("{it:?}")).collect();
        let detail = format!("supported values: {}", supported.join(", "));
        FieldError::new(path, FieldErrorKind::NotSupported, Some(value.into()), detail)
    }

    /// A value that may not be given here.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(path, FieldErrorKind::Forbidden, None, detail)
    }

    /// A list with more than `most` items.
    pub fn too_many(path: impl Into<String>, count: usize, most: usize) -> FieldError {
        let items = if most == 1 { "item" } else { "items" };
        FieldError::new(
            path,
            FieldErrorKind::TooMany,
            Some(count.into()),
            format!("must have at most {most} {items}"),
        )
    }

    /// A fault of the validation.
    pub fn internal(path: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(path, FieldErrorKind::Internal, None, detail)
    }

    fn new(
        path: impl Into<String>,
        kind: FieldErrorKind,
        value: Option<Value>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError { path: path.into(), kind, value, detail: detail.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.kind.as_str())?;
        if let Some(value) = &self.value {
            write!(f, ": {value}")?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for FieldError {}

/// The text of several errors: that of a single one, or `[a, b]` without repetition.
pub(crate) fn aggregate(errors: &[FieldError]) -> String {
    let mut texts: Vec<String> = Vec::with_capacity(errors.len());
    for text in errors.iter().map(FieldError::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [only] => only.clone(),
        _ => format!("[{}]", texts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_class_has_the_text_of_kubernetes() {
        let check = |error: FieldError, text: &str| assert_eq!(error.to_string(), text);
        check(FieldError::required("a.b", "must be given"), "a.b: Required value: must be given");
        check(FieldError::invalid("a", "x\"y", "is wrong"), r#"a: Invalid value: "x\"y": is wrong"#);
        check(FieldError::invalid("a", 5, "is wrong"), "a: Invalid value: 5: is wrong");
        check(FieldError::invalid("a", json!({"k": "v"}), ""), r#"a: Invalid value: {"k":"v"}"#);
        check(FieldError::malformed("a", "not a list"), "a: Invalid value: not a list");
        check(FieldError::forbidden("a", "is immutable"), "a: Forbidden: is immutable");
        check(FieldError::too_many("a", 2, 1), "a: Too many: 2: must have at most 1 item");
        check(FieldError::too_many("a", 12, 10), "a: Too many: 12: must have at most 10 items");
        check(FieldError::internal("a", "broken"), "a: Internal error: broken");
        check(
            FieldError::not_supported("a", "z", &["x", "y"]),
            r#"a: Unsupported value: "z": supported values: "x", "y""#,
        );
    }

    #[test]
    fn several_errors_are_a_list_without_repetition() {
        let (a, b) = (FieldError::required("a", "x"), FieldError::forbidden("b", "y"));
        assert_eq!(aggregate(std::slice::from_ref(&a)), "a: Required value: x");
        assert_eq!(aggregate(&[a.clone(), a.clone()]), "a: Required value: x");
        assert_eq!(aggregate(&[a, b]), "[a: Required value: x, b: Forbidden: y]");
    }
}
