//! Commands as they are typed into a shell.

/// A command line of these words, each quoted where a shell would read something else.
pub(crate) fn join<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = words.into_iter().map(quoted).collect();
    quoted.join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,@%+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_read_something_else() {
        assert_eq!(join(["shipshape", "why", "0192d0e0"]), "shipshape why 0192d0e0");
        assert_eq!(join(["a", "$(rm -rf /)", "it's", ""]), r"a '$(rm -rf /)' 'it'\''s' ''");
    }
}
