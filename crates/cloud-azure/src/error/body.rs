//! Texts of error bodies that are no JSON, and texts made fit for a sentence.

/// What a body that is no JSON seems to be.
pub(super) fn describe(body: &[u8]) -> String {
    let start = String::from_utf8_lossy(&body[..body.len().min(4096)]);
    let start = start.trim_start();
    if start.is_empty() {
        return "the response has no body".to_owned();
    }
    let message = text_between(body, "<Message>", "</Message>");
    if !message.is_empty() {
        return message;
    }
    let lower = start.to_lowercase();
    if lower.starts_with("<!doctype") || lower.starts_with("<html") || lower.contains("<html") {
        let title = text_between(body, "<title>", "</title>");
        let title =
            if title.is_empty() { String::new() } else { format!(" titled '{}'", shorten(&title, 100)) };
        return format!(
            "the response is an HTML page{title}, perhaps of a proxy; check the address and the proxy"
        );
    }
    format!("the response is neither JSON nor XML and has {} bytes; check the address", body.len())
}

pub(super) fn text_between(body: &[u8], open: &str, close: &str) -> String {
    let start = String::from_utf8_lossy(&body[..body.len().min(4096)]);
    let between = start.find(open).and_then(|at| {
        let rest = &start[at + open.len()..];
        rest.find(close).map(|end| rest[..end].trim().to_owned())
    });
    between.unwrap_or_default()
}

/// A text of one line and of at most so many characters.
pub(crate) fn shorten(text: &str, chars_max: usize) -> String {
    let line: Vec<&str> = text.split_whitespace().collect();
    let line = line.join(" ");
    match line.char_indices().nth(chars_max) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
