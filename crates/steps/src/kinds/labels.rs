//! Label selectors as text, checked before any request to a cluster. Pure.

/// Rejects text that is not a label selector, or would select everything.
pub fn check_selector(text: &str) -> Result<(), String> {
    let parts =
        split(text).ok_or_else(|| format!("{text:?} is not a label selector: its brackets do not match"))?;
    if parts.iter().all(|part| part.trim().is_empty()) {
        return Err("the selector is empty and would match everything".to_owned());
    }
    parts.iter().try_for_each(|part| {
        requirement(part.trim()).map_err(|why| format!("{text:?} is not a label selector: {why}"))
    })
}

/// Splits at the commas outside of brackets.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '(' if !inside => inside = true,
            ')' if inside => inside = false,
            '(' | ')' => return None,
            ',' if !inside => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (!inside).then_some(parts)
}

fn requirement(part: &str) -> Result<(), String> {
    if let Some(name) = part.strip_prefix('!') {
        return key(name.trim());
    }
    for operator in ["!=", "==", "="] {
        if let Some((name, wanted)) = part.split_once(operator) {
            key(name.trim())?;
            return value(wanted.trim());
        }
    }
    let mut words = part.splitn(2, char::is_whitespace);
    let (name, rest) = (words.next().unwrap_or_default(), words.next().map(str::trim));
    key(name)?;
    let Some(rest) = rest else { return Ok(()) };
    let list = rest.strip_prefix("notin").or_else(|| rest.strip_prefix("in")).map(str::trim);
    let list = list.and_then(|list| list.strip_prefix('(')?.strip_suffix(')'));
    let list = list.ok_or_else(|| format!("{rest:?} is neither in (...) nor notin (...)"))?;
    list.split(',').try_for_each(|wanted| value(wanted.trim()))
}

fn key(text: &str) -> Result<(), String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let domain = |prefix: &str| {
        !prefix.is_empty()
            && prefix.len() <= 253
            && prefix.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.')
    };
    if name.is_empty() || !word(name) || prefix.is_some_and(|prefix| !domain(prefix)) {
        return Err(format!("{text:?} is not the key of a label"));
    }
    Ok(())
}

fn value(text: &str) -> Result<(), String> {
    if text.is_empty() || word(text) { Ok(()) } else { Err(format!("{text:?} is not the value of a label")) }
}

fn word(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && ends(text.chars().next())
        && ends(text.chars().last())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn selectors_of_kubectl_are_accepted() {
        for text in [
            "app=web",
            "app == web",
            "app!=web,tier in (a, b),!legacy",
            "node-role.kubernetes.io/worker",
            "node-role.kubernetes.io/worker=",
            "tier notin (x)",
            "a.b/c_d=E.f-1",
        ] {
            assert_eq!(check_selector(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn an_invalid_selector_is_rejected_with_the_reason() {
        let check = |text: &str, expect: &str| {
            let error = check_selector(text).expect_err(text);
            assert!(error.contains(expect), "{text}: {error}");
        };
        check("", "is empty and would match everything");
        check(" , ", "is empty and would match everything");
        check("a=b,", "\"\" is not the key of a label");
        check("a in (b", "brackets do not match");
        check("a near (b)", "neither in (...) nor notin (...)");
        check("-a=b", "\"-a\" is not the key of a label");
        check("a=b c", "\"b c\" is not the value of a label");
        check("A/b=c", "\"A/b\" is not the key");
        check(&format!("a={}", "x".repeat(64)), "is not the value of a label");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text: String) {
            let _ = check_selector(&text);
        }
    }
}
