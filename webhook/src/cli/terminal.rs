//! Text in columns, wrapped and in few colours, for a terminal or a file.

use std::io::{self, ErrorKind, Write};
use std::iter;

use anstyle::Style;
use anyhow::Context;

use crate::printable::printable;

/// No line is longer, unless a single word is.
const WIDTH: usize = 92;

/// Where the text of a row begins.
const TEXT_COLUMN: usize = 12;

/// What is written so far.
pub(crate) struct TextWriter {
    text: String,
    styled: bool,
}

/// Writes to stdout. A reader that has seen enough is no error.
pub(super) fn print(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to stdout"),
    }
}

// === impl TextWriter ===

impl TextWriter {
    /// An empty sheet, with styles or without.
    pub(crate) fn new(styled: bool) -> Self {
        Self {
            text: String::new(),
            styled,
        }
    }

    /// The whole text, one newline at its end.
    pub(crate) fn into_text(mut self) -> String {
        self.text.truncate(self.text.trim_end().len());
        self.text.push('\n');
        self.text
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(&printable(text));
    }

    pub(crate) fn push_styled(&mut self, style: Style, text: &str) {
        let style = if self.styled { style } else { Style::new() };
        let text = printable(text);
        self.text.push_str(&format!("{style}{text}{style:#}"));
    }

    pub(crate) fn end_line(&mut self) {
        self.text.push('\n');
    }

    /// A line of its own, in bold.
    pub(crate) fn push_heading(&mut self, text: &str) {
        self.push("  ");
        self.push_styled(Style::new().bold(), text);
        self.end_line();
    }

    /// A label and its text.
    pub(crate) fn push_row(&mut self, style: Style, label: &str, text: &str) {
        self.push("  ");
        self.push_styled(style, label);
        self.push_spaces((TEXT_COLUMN - 2).saturating_sub(label.len()));
        self.push_wrapped(TEXT_COLUMN, text);
    }

    /// The rest of a line that begins in `column`, and more lines in the same column as needed.
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

    fn push_spaces(&mut self, many: usize) {
        self.text.extend(iter::repeat_n(' ', many));
    }
}
