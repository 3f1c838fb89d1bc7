//! Where a value is in an object.

/// A path to a value, as a chain of stack frames: text is made only for errors.
pub(super) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

enum Step<'a> {
    Root,
    Field(&'a str),
    Key(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    pub(super) fn root() -> Path<'a> {
        Path { parent: None, step: Step::Root }
    }

    pub(super) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Field(name) }
    }

    pub(super) fn key(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(name) }
    }

    pub(super) fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(index) }
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

    /// The path inside a message: empty for the whole object.
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
