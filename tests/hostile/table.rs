//! Tables as text: a row on each line, with ` | ` between columns.

/// Returns the columns of each row.
pub(crate) fn rows<const COLUMNS: usize>(
    table: &'static str,
) -> impl Iterator<Item = [&'static str; COLUMNS]> {
    table.trim().lines().map(|row| {
        let columns: Vec<_> = row.split(" | ").map(str::trim).collect();
        let columns = columns.try_into();
        columns.unwrap_or_else(|_| panic!("not {COLUMNS} columns: {row}"))
    })
}
