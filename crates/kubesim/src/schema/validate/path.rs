//! The path of a value in an object, and its previous value.

use serde_json::Value;

/// A path as a chain of stack frames; the text is built only for errors.
pub(super) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    /// The value at this path before an update.
    before: Option<&'a Value>,
    step: Step<'a>,
}

enum Step<'a> {
    Root,
    Field(&'a str),
    Key(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    pub(super) fn root(before: Option<&'a Value>) -> Path<'a> {
        Path { parent: None, before, step: Step::Root }
    }

    pub(super) fn field(&'a self, name: &'a str) -> Path<'a> {
        let before = self.before.and_then(|before| before.get(name));
        Path { parent: Some(self), before, step: Step::Field(name) }
    }

    pub(super) fn key(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), before: None, step: Step::Key(name) }
    }

    pub(super) fn index(&'a self, index: usize) -> Path<'a> {
        self.item(index, None)
    }

    pub(super) fn item(&'a self, index: usize, before: Option<&'a Value>) -> Path<'a> {
        Path { parent: Some(self), before, step: Step::Index(index) }
    }

    pub(super) fn before(&self) -> Option<&'a Value> {
        self.before
    }

    pub(super) fn is_root(&self) -> bool {
        matches!(self.step, Step::Root)
    }

    /// The path as a cause's `field`.
    pub(super) fn text(&self) -> String {
        match self.is_root() {
            true => "<nil>".to_owned(),
            false => self.name(),
        }
    }

    /// The path in a message; empty for the whole object.
    pub(super) fn name(&self) -> String {
        let mut text = self.parent.map(Path::name).unwrap_or_default();
        match self.step {
            Step::Root => {}
            Step::Field(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Step::Key(name) => text.push_str(&format!("[{name}]")),
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
        text
    }
}
