//! Standard output and standard error of commands. A reader that closes its end early
//! (`| head -1`) is not an error and causes no panic.

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
pub fn error(sentence: &str) {
    // A message of several lines becomes one, so that each error is one line in a log.
    let line = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(io::stderr().lock(), "error: {line}");
}

/// Writes an informational line to standard error, with its white space collapsed.
pub fn note(sentence: &str) {
    let line = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Writes a warning to standard error, in red on a terminal if `colour` is set.
pub fn warn(sentence: &str, colour: bool) {
    let mut stderr = io::stderr().lock();
    let _ = match colour && io::IsTerminal::is_terminal(&stderr) {
        true => writeln!(stderr, "\u{1b}[1;31m{sentence}\u{1b}[0m"),
        false => writeln!(stderr, "{sentence}"),
    };
}

/// Writes an informational line to standard error unchanged.
pub fn note_verbatim(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Renders rows like kubectl: each column as wide as its widest cell, with three spaces between columns.
pub fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    // User input may contain line breaks or escape sequences; the terminal must not interpret them.
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
    fn columns_are_aligned_and_control_characters_are_replaced() {
        let rows = [["NAME", "WHY"], ["a\u{1b}[31m", "x\ny"]].map(|row| row.map(str::to_owned));
        assert_eq!(super::columns(&rows), "NAME     WHY\na\u{FFFD}[31m   x\u{FFFD}y\n");
    }
}
