//! The little XML that the blob service needs: escaped text, and the leaves of small documents.

pub(super) const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>";

/// Text as the content of an element or an attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// An element with text.
pub(super) fn element(name: &str, text: &str) -> String {
    match text {
        "" => format!("<{name} />"),
        text => format!("<{name}>{}</{name}>", escape(text)),
    }
}

fn unescape(text: &str) -> String {
    let pairs = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    pairs.iter().fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

/// Names and texts of the elements that have no children, in their order; `None` when a tag is not closed.
pub(super) fn leaves(document: &str) -> Option<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut rest = document;
    let mut open: Option<(&str, &str)> = None;
    while let Some(start) = rest.find('<') {
        let tag = &rest[start + 1..];
        let end = tag.find('>')?;
        let (inside, after) = (&tag[..end], &tag[end + 1..]);
        if let Some(name) = inside.strip_prefix('/') {
            if let Some((opened, content)) = open.take().filter(|(opened, _)| *opened == name.trim()) {
                let text = &content[..content.len() - rest.len() + start];
                found.push((opened.to_owned(), unescape(text.trim())));
            }
        } else if !inside.starts_with(['?', '!']) && !inside.ends_with('/') {
            open = Some((inside.split_whitespace().next().unwrap_or_default(), after));
        }
        rest = after;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_found_in_their_order() {
        let document = format!(
            "{DECLARATION}\n<BlockList>\n <Latest>YQ==</Latest><Committed a=\"1\"> b&amp;lt; </Committed><Empty/><Latest></Latest></BlockList>"
        );
        let expected = [("Latest", "YQ=="), ("Committed", "b&lt;"), ("Latest", "")];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(leaves(&document).unwrap(), expected);
        assert_eq!(leaves("<a><b"), None);
        assert_eq!(leaves("no document").unwrap(), []);
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(element("Name", "a<b>&\"c"), "<Name>a&lt;b&gt;&amp;&quot;c</Name>");
        assert_eq!(element("Name", ""), "<Name />");
    }
}
