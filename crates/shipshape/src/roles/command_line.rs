//! The command line of a container, as its pod spells it.

use anyhow::{Context as _, anyhow};
use clap::Parser as _;
use kubesim::kubelet::Container;

use crate::arguments::{Cli, Command};

/// The name of our executable, which is also the entry point of our image.
const PROGRAM: &str = "shipshape";

/// The command that a container runs.
pub(super) fn parse(container: &Container) -> anyhow::Result<Command> {
    let words: Vec<String> = container.command.iter().map(|word| expand(word, &container.env)).collect();
    let arguments = match words.split_first() {
        Some((program, rest)) if program.rsplit('/').next() == Some(PROGRAM) => rest,
        _ => &words[..],
    };
    let arguments = std::iter::once(PROGRAM).chain(arguments.iter().map(String::as_str));
    let cli = Cli::try_parse_from(arguments).map_err(|error| {
        let text = error.render().to_string();
        let first = text.lines().next().unwrap_or_default();
        anyhow!("{}", first.trim_start_matches("error: "))
    });
    cli.map(|cli| cli.command).with_context(|| format!("the command line of container {}", container.name))
}

/// Replaces `$(NAME)` by the variable, as kubelets do: `$$` is a dollar sign, and a variable that does not exist stays as it is.
fn expand(word: &str, variables: &[(String, String)]) -> String {
    let (mut expanded, mut rest) = (String::new(), word);
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            expanded.push('$');
            rest = after;
            continue;
        }
        let reference = after.strip_prefix('(').and_then(|it| it.split_once(')'));
        let found = reference.and_then(|(name, after)| {
            let value = variables.iter().rev().find(|(it, _)| it == name)?;
            Some((value.1.as_str(), after))
        });
        match found {
            Some((value, after)) => {
                expanded.push_str(value);
                rest = after;
            }
            None => {
                expanded.push('$');
                rest = after;
            }
        }
    }
    expanded + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::MachinesCommand;

    fn container(words: &[&str]) -> Container {
        Container {
            name: "main".to_owned(),
            command: words.iter().map(|it| (*it).to_owned()).collect(),
            env: vec![("NAMESPACE".to_owned(), "elsewhere".to_owned())],
            ..Container::default()
        }
    }

    #[test]
    fn the_command_line_is_that_of_the_executable_with_variables_replaced() {
        for words in [
            &["shipshape", "machines", "controllers", "--namespace=$(NAMESPACE)"][..],
            &["/usr/bin/shipshape", "machines", "controllers", "--namespace", "$(NAMESPACE)"],
            &["machines", "controllers", "--namespace=$(NAMESPACE)"],
        ] {
            let Command::Machines(MachinesCommand::Controllers(flags)) = parse(&container(words)).unwrap()
            else {
                panic!("{words:?}")
            };
            assert_eq!(flags.namespace, "elsewhere");
        }
    }

    #[test]
    fn a_wrong_command_line_is_named_in_one_line() {
        let error = |words: &[&str]| format!("{:#}", parse(&container(words)).unwrap_err());
        assert_eq!(
            error(&["shipshape", "machines", "controllers", "--no-such-flag"]),
            "the command line of container main: unexpected argument '--no-such-flag' found"
        );
        assert_eq!(
            error(&["/bin/sh", "-c", "true"]),
            "the command line of container main: unrecognized subcommand '/bin/sh'"
        );
    }

    #[test]
    fn references_to_variables_are_replaced_as_by_kubelets() {
        let variables = [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "$(A)".to_owned())];
        for (word, expect) in
            [("x$(A)y$(A)", "x1y1"), ("$(B)", "$(A)"), ("$$(A) $(C) $A $(", "$(A) $(C) $A $("), ("", "")]
        {
            assert_eq!(expand(word, &variables), expect, "{word}");
        }
    }
}
