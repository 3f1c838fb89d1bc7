//! Checks of names of groups, versions, kinds, objects and namespaces. All of them become segments of a request's path, so none
//! may change the path. Pure.

/// Longest label of a domain name.
const LABEL_MAX: usize = 63;
/// Longest name of an object, and of a group.
const NAME_MAX: usize = 253;

/// Rejects text that is not `VERSION` or `GROUP/VERSION`.
pub fn check_api_version(text: &str) -> Result<(), String> {
    let fits = match text.split_once('/') {
        Some((group, version)) => is_domain(group) && is_word(version),
        None => is_word(text),
    };
    if fits { Ok(()) } else { Err(format!("{} is not an apiVersion such as v1 or apps/v1", shown(text))) }
}

/// Rejects text that is not a kind.
pub fn check_kind(text: &str) -> Result<(), String> {
    if is_word(&text.to_ascii_lowercase()) {
        Ok(())
    } else {
        Err(format!("{} is not a kind such as Deployment", shown(text)))
    }
}

/// Rejects text that cannot be the name of an object of any kind. Some kinds allow more than others: roles have colons and capitals.
pub fn check_name(text: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
    if text.is_empty() || text.len() > NAME_MAX || !text.chars().all(fits) || text.chars().all(|c| c == '.') {
        return Err(format!("{} is not the name of an object", shown(text)));
    }
    Ok(())
}

/// Rejects text that cannot be the name of a namespace.
pub fn check_namespace(text: &str) -> Result<(), String> {
    if is_label(text) && text.len() <= LABEL_MAX {
        Ok(())
    } else {
        Err(format!("{} is not the name of a namespace: lower case letters, digits and -", shown(text)))
    }
}

/// A label of a domain name that begins with a letter.
fn is_word(text: &str) -> bool {
    text.len() <= LABEL_MAX && is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())
}

fn is_label(text: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    is_end(text.chars().next())
        && is_end(text.chars().last())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn is_domain(text: &str) -> bool {
    text.len() <= NAME_MAX && text.split('.').all(is_label)
}

/// A text in quotes, shortened.
fn shown(text: &str) -> String {
    match text.char_indices().nth(NAME_MAX) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_kubernetes_accepts_are_accepted() {
        for text in ["v1", "v1beta1", "apps/v1", "networking.k8s.io/v1", "a-b.c1/v2alpha3"] {
            assert_eq!(check_api_version(text), Ok(()));
        }
        for text in ["Pod", "HorizontalPodAutoscaler", "My-Kind", "x1"] {
            assert_eq!(check_kind(text), Ok(()));
        }
        for text in ["a", "web-1.example", "system:node:x", "Admin_role", "1"] {
            assert_eq!(check_name(text), Ok(()));
        }
        for text in ["default", "kube-system", "1st"] {
            assert_eq!(check_namespace(text), Ok(()));
        }
    }

    #[test]
    fn names_that_change_the_path_are_rejected() {
        let long = "x".repeat(64);
        for text in [
            "",
            "../x",
            "x/..",
            "v1/",
            "/v1",
            "a/b/c",
            "V1",
            "apps/v1?x=y",
            "a..b/v1",
            ".a/v1",
            "-a/v1",
            "v1%2e",
            &long,
        ] {
            assert!(check_api_version(text).is_err(), "{text}");
        }
        for text in ["", "..", "Pod/..", "Pod?", "-Pod", "1Pod", "Pöd", &long] {
            assert!(check_kind(text).is_err(), "{text}");
        }
        for text in ["", ".", "..", "../a", "a/b", "a%2fb", "a b", "a?b", "a#b", "ä", &"x".repeat(254)] {
            assert!(check_name(text).is_err(), "{text}");
        }
        for text in ["", ".", "a.b", "A", "a/b", "-a", "a-", "a_b", &long] {
            assert!(check_namespace(text).is_err(), "{text}");
        }
        assert_eq!(
            check_api_version("../x").unwrap_err(),
            "\"../x\" is not an apiVersion such as v1 or apps/v1"
        );
    }
}
