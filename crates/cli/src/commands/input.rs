//! Documents from files: YAML or JSON, several in one, `-` for standard input.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::Value;

/// The server accepts no larger body.
const BYTES_MAX: u64 = 8 << 20;

/// Flags that name documents.
#[derive(Debug, Clone, Args)]
pub struct Documents {
    /// A file of YAML or JSON, with one or several documents; - for standard input; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// A document and its source.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The file and the number of the document in it, for error messages.
    pub place: String,
    /// The content; always a map.
    pub value: Value,
}

impl Documents {
    /// Reads all documents.
    pub(super) fn read(&self) -> anyhow::Result<Vec<Document>> {
        let mut documents = Vec::new();
        for file in &self.files {
            let name =
                if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() };
            let text = read_text(file).with_context(|| format!("{name}: cannot be read"))?;
            documents.extend(parse(&name, &text)?);
        }
        Ok(documents)
    }

    /// Reads exactly one document.
    pub fn read_single(&self) -> anyhow::Result<Document> {
        let mut documents = self.read()?;
        match (documents.pop(), documents.is_empty()) {
            (Some(document), true) => Ok(document),
            _ => bail!("expected one document, found {}", documents.len() + 1),
        }
    }
}

/// Reads a file with exactly one document.
pub(super) fn read_file(file: &Path) -> anyhow::Result<Document> {
    Documents { files: vec![file.to_owned()] }.read_single()
}

/// The text of a file, or of standard input.
pub(super) fn read_text(file: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        std::io::stdin().lock().take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    } else {
        std::fs::File::open(file)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    }
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > BYTES_MAX {
        bail!("it is larger than 8 MiB");
    }
    String::from_utf8(bytes).context("it is not UTF-8 text")
}

fn parse(name: &str, text: &str) -> anyhow::Result<Vec<Document>> {
    let values: Vec<Value> = if text.trim_start().starts_with('{') {
        // JSON may contain tabs, which YAML rejects.
        let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
        values.with_context(|| format!("{name}: invalid JSON"))?
    } else {
        serde_saphyr::from_multiple(text).map_err(|error| {
            let sentence = error.to_string();
            anyhow::anyhow!("{name}: invalid YAML: {}", sentence.lines().next().unwrap_or_default())
        })?
    };
    let values: Vec<Value> = values.into_iter().filter(|value| !value.is_null()).collect();
    if values.is_empty() {
        bail!("{name}: contains no document");
    }
    let several = values.len() > 1;
    let placed = |(number, value): (usize, Value)| {
        let place = if several { format!("{name} document {}", number + 1) } else { name.to_owned() };
        if !value.is_object() {
            bail!("{place}: expected a map of names and values");
        }
        Ok(Document { place, value })
    };
    values.into_iter().enumerate().map(placed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<Value> {
        parse("f", text).unwrap().into_iter().map(|document| document.value).collect()
    }

    #[test]
    fn single_and_multiple_documents_are_read_from_yaml_and_json() {
        let one = serde_json::json!({ "a": 1 });
        assert_eq!(values("a: 1\n"), vec![one.clone()]);
        assert_eq!(values("---\na: 1\n---\n---\na: 1\n"), [one.clone(), one.clone()]);
        assert_eq!(values("{\"a\":1}"), vec![one.clone()]);
        assert_eq!(values("{\"a\":\t1}\n{\"a\": 1}"), [one.clone(), one]);
    }

    #[test]
    fn an_invalid_document_is_an_error_that_names_the_file() {
        let check = |text: &str, expect: &str| {
            let error = format!("{:#}", parse("f", text).unwrap_err());
            assert!(error.starts_with(expect), "{error}");
        };
        check("", "f: contains no document");
        check("- a\n- b\n", "f: expected a map");
        check("a: 1\n---\n5\n", "f document 2: expected a map");
        check("a: [", "f: invalid YAML: ");
        check("{\"a\": ", "f: invalid JSON: ");
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                    d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n\
                    g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n";
        check(bomb, "f: invalid YAML: ");
    }
}
