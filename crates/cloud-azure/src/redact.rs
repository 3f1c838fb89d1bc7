//! Takes credentials out of texts that end in errors and logs.

/// Names whose values are secret, in queries, forms, headers and JSON.
const SECRET_NAMES: &[&str] = &[
    "access_token",
    "assertion",
    "authorization",
    "client_assertion",
    "client_secret",
    "password",
    "refresh_token",
    "secret",
    "sharedkey",
    "sig",
    "bearer",
];

/// The text without what looks like a credential: values of telling names, and tokens.
pub(crate) fn redact(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut hide_next = false;
    let mut word = String::new();
    for character in text.chars().chain([' ']) {
        if character.is_ascii_alphanumeric() || "_-./+~".contains(character) {
            word.push(character);
            continue;
        }
        if !word.is_empty() {
            let name = word.to_ascii_lowercase();
            let is_name = SECRET_NAMES.iter().any(|it| name == *it || name.ends_with(&format!(".{it}")));
            if is_name {
                hide_next = true;
                clean.push_str(&word);
            } else if hide_next || is_token(&word) {
                clean.push_str("***");
                hide_next = false;
            } else {
                clean.push_str(&word);
            }
            word.clear();
        }
        // A sentence goes on after its name; what separates a name from its value does not end the search.
        if hide_next && !" :=\"'\t&".contains(character) {
            hide_next = false;
        }
        clean.push(character);
    }
    clean.pop();
    clean
}

/// Whether a word is a JWT.
fn is_token(word: &str) -> bool {
    word.starts_with("eyJ") && word.len() > 20
}

#[cfg(test)]
mod tests {
    use super::redact;

    #[test]
    fn credentials_are_hidden_and_sentences_stay() {
        let check = |text: &str, expect: &str| assert_eq!(redact(text), expect);
        check("Authorization: Bearer abc.def", "Authorization: Bearer ***");
        check("https://a/b?sig=abc%3D&se=1", "https://a/b?sig=***%3D&se=1");
        check("{\"access_token\":\"abc\"}", "{\"access_token\":\"***\"}");
        check("token eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.x.y is bad", "token *** is bad");
        check("The resource 'a/b' was not found.", "The resource 'a/b' was not found.");
    }
}
