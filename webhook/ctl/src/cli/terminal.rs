//! Output of the command line: wrapped and colored text, JSON, exit codes.

use std::io::{self, ErrorKind, Write};
use std::iter;
use std::ops::ControlFlow;
use std::process::ExitCode;

use admission::needs_escape;
use anstyle::Style;
use anyhow::Context;
use serde::Serialize;

use crate::printable::printable;

/// Maximum width of a line in characters; a longer word is not broken.
const WIDTH: usize = 92;

/// Column at which the text of a row starts.
const TEXT_COLUMN: usize = 12;

/// Builds text for a terminal or a file.
pub(crate) struct TextWriter {
    text: String,
    styled: bool,
}

/// Returns 0 for success and 1 for failure.
pub(super) fn exit_code(is_success: bool) -> ExitCode {
    match is_success {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Formats a value as indented JSON that ends with a newline.
///
/// # Panics
/// If the value has a map whose keys are not strings.
pub(super) fn to_json(value: &impl Serialize) -> String {
    printable_json(&serde_json::to_string_pretty(value).expect("keys of maps are strings"))
}

/// Formats a value as JSON in one line.
///
/// # Panics
/// If the value has a map whose keys are not strings.
pub(super) fn to_json_line(value: &impl Serialize) -> String {
    printable_json(&serde_json::to_string(value).expect("keys of maps are strings"))
}

/// Ends JSON with a newline, and escapes what a terminal would execute or hide. Only the newlines between values are not
/// escaped yet.
fn printable_json(json: &str) -> String {
    let mut printable = String::with_capacity(json.len() + 1);
    for char in json.chars() {
        match char != '\n' && needs_escape(char) {
            true => {
                let units = char.encode_utf16(&mut [0; 2]).to_vec();
                printable.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
            }
            false => printable.push(char),
        }
    }
    printable.push('\n');
    printable
}

/// Writes to stdout. A closed pipe is not an error.
pub(super) fn print(bytes: &[u8]) -> anyhow::Result<()> {
    print_more(bytes).map(|_| ())
}

/// Writes to stdout. Breaks if the pipe is closed, so that no one reads what follows.
pub(super) fn print_more(bytes: &[u8]) -> anyhow::Result<ControlFlow<()>> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(error).context("cannot write to stdout"),
    }
}

// === impl TextWriter ===

impl TextWriter {
    /// Creates an empty text, with styles or without.
    pub(crate) fn new(styled: bool) -> Self {
        Self {
            text: String::new(),
            styled,
        }
    }

    /// The whole text, with one newline at its end.
    pub(crate) fn into_text(mut self) -> String {
        self.text.truncate(self.text.trim_end().len());
        self.text.push('\n');
        self.text
    }

    /// Appends text, with control characters escaped.
    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(&printable(text));
    }

    /// Appends text in a style.
    pub(crate) fn push_styled(&mut self, style: Style, text: &str) {
        let style = if self.styled { style } else { Style::new() };
        let text = printable(text);
        self.text.push_str(&format!("{style}{text}{style:#}"));
    }

    /// Ends the line.
    pub(crate) fn end_line(&mut self) {
        self.text.push('\n');
    }

    /// Appends a bold line.
    pub(crate) fn push_heading(&mut self, text: &str) {
        self.push("  ");
        self.push_styled(Style::new().bold(), text);
        self.end_line();
    }

    /// Appends a label and its text, wrapped.
    pub(crate) fn push_row(&mut self, style: Style, label: &str, text: &str) {
        self.push("  ");
        self.push_styled(style, label);
        self.push_spaces((TEXT_COLUMN - 2).saturating_sub(label.len()));
        self.push_wrapped(TEXT_COLUMN, text);
    }

    /// Appends the rest of a line, and wraps it to lines indented to `column`, the current one.
    pub(crate) fn push_wrapped(&mut self, column: usize, text: &str) {
        let text = printable(text);
        let mut end = column;
        for (nth, word) in text.split(' ').enumerate() {
            let width = word.chars().count();
            if nth > 0 && end + 1 + width > WIDTH {
                self.end_line();
                self.push_spaces(column);
                end = column;
            } else if nth > 0 {
                self.push(" ");
                end += 1;
            }
            self.push(word);
            end += width;
        }
        self.end_line();
    }

    fn push_spaces(&mut self, count: usize) {
        self.text.extend(iter::repeat_n(' ', count));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn json_is_ascii_where_a_terminal_would_act() {
        let value = json!({"a\u{9b}": "\u{1b}[2J \u{202e} \u{e0041} é\n"});
        let line = to_json_line(&value);
        assert_eq!(
            line,
            "{\"a\\u009b\":\"\\u001b[2J \\u202e \\udb40\\udc41 é\\n\"}\n"
        );
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
        let indented = line
            .replace("{", "{\n  ")
            .replace(":", ": ")
            .replace("}", "\n}");
        assert_eq!(to_json(&value), indented);
    }
}
