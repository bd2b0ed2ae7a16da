//! Tables of figures in Markdown, and tables of cases as text.

use std::fmt::{self, Display, Formatter};

/// A table whose first column names the rows, and whose other columns are aligned to the right.
#[derive(Debug)]
pub struct Table {
    /// Without the end of the last line.
    markdown: String,
}

// === impl Table ===

impl Table {
    /// A table without rows. The first column is called `names`.
    pub fn new<C: Display>(names: &str, columns: impl IntoIterator<Item = C>) -> Self {
        let columns: Vec<_> = columns.into_iter().map(|it| format!(" {it} |")).collect();
        let names = format!("| {names}");
        let names = names.trim_end();
        let rules = " --: |".repeat(columns.len());
        let markdown = format!("{names} |{}\n| --- |{rules}", columns.concat());
        Self { markdown }
    }

    /// Adds a row with a cell for each of the other columns.
    pub fn add<C: Display>(&mut self, name: impl Display, cells: impl IntoIterator<Item = C>) {
        self.markdown += &format!("\n| {name} |");
        let cells = cells.into_iter().map(|cell| format!(" {cell} |"));
        self.markdown.extend(cells);
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.markdown)
    }
}

/// A cell with the requests that failed, in bold if there are any, of those that were sent.
pub(crate) fn failed_of(failed: u64, sent: u64) -> String {
    match failed {
        0 => format!("0 of {sent}"),
        failed => format!("**{failed}** of {sent}"),
    }
}

/// The smallest and the largest number without decimals, with `to` between them, or one if they are the same.
pub(crate) fn range(numbers: impl IntoIterator<Item = f64>, to: &str) -> String {
    let numbers = numbers.into_iter();
    let (min, max) = numbers.fold((f64::INFINITY, 0.0), |(min, max): (f64, f64), it| {
        (min.min(it), max.max(it))
    });
    let (min, max) = (format!("{min:.0}"), format!("{max:.0}"));
    if min == max {
        max
    } else {
        format!("{min}{to}{max}")
    }
}

/// Returns the columns of each row of a table as text: a row on each line, with ` | ` between columns.
///
/// # Panics
/// When a row has another number of columns.
pub fn rows<const COLUMNS: usize>(
    table: &'static str,
) -> impl Iterator<Item = [&'static str; COLUMNS]> {
    table.trim().lines().map(|row| {
        let columns: Vec<_> = row.split(" | ").map(str::trim).collect();
        let columns = columns.try_into();
        columns.unwrap_or_else(|_| panic!("not {COLUMNS} columns: {row}"))
    })
}
