//! Pages of the documentation whose commands work as they are printed.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::executable::{CommandOutput, Home};
use super::maintenance::walk_through;

/// The commands of a walk-through between the marks of this name, as one script.
pub(crate) fn commands(page: &str, mark: &str) -> String {
    let page = std::fs::read_to_string(walk_through(page)).unwrap();
    let marked = page.split(&format!("<!-- {mark} begins -->")).nth(1).unwrap();
    let marked = marked.split(&format!("<!-- {mark} ends -->")).next().unwrap();
    let blocks: Vec<&str> =
        marked.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!blocks.is_empty());
    blocks.concat()
}

/// Types a script into a shell in a directory, where `shipshape` and these programs are on the path. It must succeed.
pub(crate) fn type_into_shell(
    home: &Home,
    script: &str,
    directory: &Path,
    programs: &[PathBuf],
) -> CommandOutput {
    let executable = Path::new(env!("CARGO_BIN_EXE_shipshape")).parent().unwrap().to_owned();
    let system = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
    let programs = programs.iter().map(|it| it.parent().unwrap().to_owned());
    let path = std::env::join_paths([executable].into_iter().chain(programs).chain(system)).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-eu", "-c", script]).current_dir(directory);
    shell.env_clear().env("HOME", home.directory.path()).env("PATH", path);
    let answer = CommandOutput::new(shell.output().unwrap());
    assert_eq!(answer.code, Some(0), "{}\n{}", answer.stdout, answer.stderr);
    answer
}

impl CommandOutput {
    /// Panics unless standard output contains each of these.
    pub(crate) fn shows(&self, texts: &[&str]) {
        for text in texts {
            assert!(self.stdout.contains(text), "{text} in {}\n{}", self.stdout, self.stderr);
        }
    }
}
