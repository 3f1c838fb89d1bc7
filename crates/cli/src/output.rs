//! Standard output and standard error, for commands. A reader that has seen enough and closed its end
//! (`| head -1`) is not an error, and nothing here panics over it.

use std::io::{self, Write as _};

use anyhow::Context as _;

/// Writes `text` to standard output.
pub fn show(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Writes one `error:` line to standard error.
pub fn complain(sentence: &str) {
    // A message of several lines becomes one, so that each error is one line in a log.
    let line = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(io::stderr().lock(), "error: {line}");
}

/// Writes one line to standard error that is no error.
pub fn note(sentence: &str) {
    let line = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Writes one line to standard error that nobody is to overlook: in red where that can be.
pub fn warn(sentence: &str, colour: bool) {
    let mut stderr = io::stderr().lock();
    let _ = match colour && io::IsTerminal::is_terminal(&stderr) {
        true => writeln!(stderr, "\u{1b}[1;31m{sentence}\u{1b}[0m"),
        false => writeln!(stderr, "{sentence}"),
    };
}

/// Writes one line to standard error, its spaces as they are.
pub fn note_as_is(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Rows in columns, as kubectl sets them: each as wide as its widest cell, three spaces between.
pub fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    // What people typed may hold line breaks or escape sequences; a terminal must not obey them.
    let escape_control =
        |cell: &String| cell.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect::<String>();
    let rows: Vec<[String; N]> =
        rows.iter().map(|row| std::array::from_fn(|column| escape_control(&row[column]))).collect();
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join("   ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_are_aligned_and_control_characters_are_not_obeyed() {
        let rows = [["NAME", "WHY"], ["a\u{1b}[31m", "x\ny"]].map(|row| row.map(str::to_owned));
        assert_eq!(super::columns(&rows), "NAME     WHY\na\u{FFFD}[31m   x\u{FFFD}y\n");
    }
}
