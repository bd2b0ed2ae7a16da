//! Text in columns, wrapped and in few colours, for a terminal or a file.

use std::iter;

use anstyle::Style;

use crate::printable::printable;

/// No line is longer, unless a single word is.
const WIDTH: usize = 92;

/// Where the text of a row begins.
const TEXT_COLUMN: usize = 12;

/// What is written so far.
pub(super) struct TextWriter {
    text: String,
    styled: bool,
}

// === impl Sheet ===

impl TextWriter {
    /// An empty sheet, with styles or without.
    pub(super) fn new(styled: bool) -> Self {
        Self {
            text: String::new(),
            styled,
        }
    }

    /// The whole text, one newline at its end.
    pub(super) fn into_text(mut self) -> String {
        self.text.truncate(self.text.trim_end().len());
        self.text.push('\n');
        self.text
    }

    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(&printable(text));
    }

    pub(super) fn push_styled(&mut self, style: Style, text: &str) {
        let style = if self.styled { style } else { Style::new() };
        let text = printable(text);
        self.text.push_str(&format!("{style}{text}{style:#}"));
    }

    pub(super) fn end_line(&mut self) {
        self.text.push('\n');
    }

    /// A line of its own, in bold.
    pub(super) fn push_heading(&mut self, text: &str) {
        self.push("  ");
        self.push_styled(Style::new().bold(), text);
        self.end_line();
    }

    /// A label and its text.
    pub(super) fn push_row(&mut self, style: Style, label: &str, text: &str) {
        self.push("  ");
        self.push_styled(style, label);
        self.push_spaces((TEXT_COLUMN - 2).saturating_sub(label.len()));
        self.push_wrapped(TEXT_COLUMN, text);
    }

    /// The rest of a line that begins in `column`, and more lines in the same column as needed.
    pub(super) fn push_wrapped(&mut self, column: usize, text: &str) {
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
