//! Text for terminals. Names, messages and files are not trusted: a terminal or a CI log executes what they contain.

use std::env;
use std::fmt::{Display, Write};
use std::ops::Deref;
use std::sync::LazyLock;

use anstyle::Style;
use drainer::text::printable;
use flags::logs::printable_json;
use serde::Serialize;

pub use admission::plural;

/// Maximum width of a line in characters, and that of the terminal if `COLUMNS` says that it is narrower; a longer word
/// is not broken.
pub(crate) static WIDTH: LazyLock<usize> = LazyLock::new(|| {
    let columns = env::var("COLUMNS").ok().and_then(|it| it.parse().ok());
    columns.map_or(92, |columns: usize| columns.clamp(40, 92))
});

/// Column at which the text of a row starts.
const TEXT_COLUMN: usize = 12;

/// Between two columns of a table.
const GAP: &str = "   ";

/// Text that is safe to print: in all that is pushed, control characters and characters that reorder or hide others are
/// escaped. Only its own styles and ends of lines are not.
#[derive(Debug, Default)]
pub struct PrintableText {
    text: String,
    is_styled: bool,
}

/// The width of a text in characters.
pub(crate) fn width(text: &str) -> usize {
    printable(text).chars().count()
}

/// The verb for a count.
pub(crate) fn has_or_have(count: usize) -> &'static str {
    if count == 1 { "has" } else { "have" }
}

/// The cell of a table with this value, or for none.
pub fn cell(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Lists names in backticks, at most five of them.
pub fn list_names(names: impl IntoIterator<Item = impl Display>) -> String {
    admission::list(names.into_iter().map(|name| format!("`{name}`")), 5)
}

// === impl PrintableText ===

impl PrintableText {
    pub(crate) fn new(is_styled: bool) -> Self {
        let text = String::new();
        Self { text, is_styled }
    }

    /// Indented JSON.
    ///
    /// # Panics
    /// If the value has a map whose keys are not strings.
    pub fn json(value: &impl Serialize) -> Self {
        let json = serde_json::to_string_pretty(value).expect("keys of maps are strings");
        let mut printable = Self::new(false);
        printable.text = printable_json(&json) + "\n";
        printable
    }

    /// Appends JSON in one line.
    ///
    /// # Panics
    /// If the value has a map whose keys are not strings.
    pub fn push_json(&mut self, value: &impl Serialize) {
        let json = serde_json::to_string(value).expect("keys of maps are strings");
        self.text.push_str(&printable_json(&json));
        self.end_line();
    }

    pub fn push(&mut self, text: impl Display) {
        self.text.push_str(&printable(&text.to_string()));
    }

    pub(crate) fn push_styled(&mut self, style: Style, text: impl Display) {
        let style = if self.is_styled { style } else { Style::new() };
        let text = printable(&text.to_string());
        let _ = write!(self.text, "{style}{text}{style:#}");
    }

    pub fn end_line(&mut self) {
        self.text.push('\n');
    }

    /// Ends the text with these newlines.
    pub(crate) fn end(mut self, newlines: &str) -> Self {
        self.text.truncate(self.text.trim_end().len());
        self.text.push_str(newlines);
        self
    }

    /// Appends a table, each of whose columns is as wide as its longest cell.
    pub fn push_table(&mut self, rows: &[Vec<String>]) {
        let columns = rows.first().map_or(0, Vec::len);
        let width = |column: usize| rows.iter().map(|row| width(&row[column])).max();
        let widths: Vec<_> = (0..columns).filter_map(width).collect();
        for row in rows {
            self.push_cells(row.iter().zip(widths.iter().copied()));
        }
    }

    /// Appends a row of a table: its cells, and how wide their columns are.
    pub(crate) fn push_cells<T: AsRef<str>>(&mut self, cells: impl Iterator<Item = (T, usize)>) {
        let cells = cells.map(|(cell, width)| format!("{:<width$}", printable(cell.as_ref())));
        self.push(cells.collect::<Vec<_>>().join(GAP).trim_end());
        self.end_line();
    }

    /// Appends a bold line.
    pub(crate) fn push_heading(&mut self, text: &str) {
        self.push("  ");
        self.push_styled(Style::new().bold(), text);
        self.end_line();
    }

    /// Appends a label and its text, wrapped.
    pub(crate) fn push_row(&mut self, style: Style, label: impl Display, text: &str) {
        let label = label.to_string();
        self.push("  ");
        self.push_styled(style, &label);
        self.push(" ".repeat((TEXT_COLUMN - 2).saturating_sub(label.len())));
        self.push_wrapped(TEXT_COLUMN, text);
    }

    /// Appends the rest of a line, and wraps it to lines indented to `column`, the current one.
    pub fn push_wrapped(&mut self, column: usize, text: &str) {
        let text = printable(text);
        let mut end = column;
        for (nth, word) in text.split(' ').enumerate() {
            let width = word.chars().count();
            if nth > 0 && end + 1 + width > *WIDTH {
                self.end_line();
                self.push(" ".repeat(column));
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
}

impl Deref for PrintableText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl<T: Display> From<T> for PrintableText {
    fn from(text: T) -> Self {
        let mut printable = Self::default();
        printable.push(text);
        printable
    }
}

#[cfg(test)]
mod tests {
    use drainer::text::needs_escape;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn json_is_ascii_where_a_terminal_would_act() {
        let value = json!({"a\u{9b}": "\u{1b}[2J \u{202e} \u{e0041} é\n"});
        let mut line = PrintableText::default();
        line.push_json(&value);
        assert_eq!(
            &*line,
            "{\"a\\u009b\":\"\\u001b[2J \\u202e \\udb40\\udc41 é\\n\"}\n"
        );
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
        let indented = line
            .replace("{", "{\n  ")
            .replace(":", ": ")
            .replace("}", "\n}");
        assert_eq!(&*PrintableText::json(&value), indented);
    }

    #[test]
    fn only_own_styles_and_line_ends_are_not_escaped() {
        const FOREIGN: &str = "\u{1b}[2J\u{9b}31m\u{202e}\n\r\t";
        let mut text = PrintableText::new(true);
        text.push(FOREIGN);
        text.push_styled(Style::new().bold(), FOREIGN);
        text.push_heading(FOREIGN);
        text.push_row(Style::new().bold(), FOREIGN, FOREIGN);
        text.push_wrapped(0, FOREIGN);
        text.push_json(&FOREIGN);
        let own = text.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
        assert!(!own.replace('\n', "").contains(needs_escape), "{own:?}");
        assert_eq!(own.lines().count(), 4, "{own:?}");
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(list_names(["a", "b"]), "`a`, `b`");
        assert_eq!(
            list_names(["a", "b", "c", "d", "e", "f", "g"]),
            "`a`, `b`, `c`, `d`, `e` and 2 more"
        );
    }
}
