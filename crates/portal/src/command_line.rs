//! Command lines for a shell.

/// Joins arguments to a command line, quoted where a shell would interpret them.
pub(crate) fn join<'a>(arguments: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = arguments.into_iter().map(quote).collect();
    quoted.join(" ")
}

fn quote(argument: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,@%+".contains(letter);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_where_a_shell_would_interpret_them() {
        assert_eq!(join(["shipshape", "why", "0192d0e0"]), "shipshape why 0192d0e0");
        assert_eq!(join(["a", "$(rm -rf /)", "it's", ""]), r"a '$(rm -rf /)' 'it'\''s' ''");
    }
}
