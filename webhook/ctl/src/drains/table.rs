//! The table of drains, with columns as wide as their longest value.

use admission::silent_connections;

use super::log::DrainLog;
use super::record::DrainRecord;
use crate::object_name::ObjectName;
use crate::text::{PrintableText, cell, plural, width};

/// A column: its heading, its width in a table whose rows are not known in advance, and its value.
type Column = (&'static str, usize, fn(&DrainRecord) -> String);

const COLUMNS: [Column; 8] = [
    ("TIME", 20, |record| {
        let time = record.time.as_ref();
        cell(time.map(|time| time.0.strftime("%Y-%m-%dT%H:%M:%SZ")))
    }),
    (NAMESPACE, 16, |record| record.namespace.clone()),
    ("POD", 32, |record| cell(record.pod.as_ref())),
    ("WORKLOAD", 32, |record| {
        let workload = record.workload.as_ref();
        cell(workload.map(|ObjectName { kind, name, .. }| format!("{kind}/{name}")))
    }),
    ("OUTCOME", 8, |record| record.outcome.to_string()),
    ("SECONDS", 7, |record| {
        cell(record.seconds.map(|seconds| format!("{seconds:.1}")))
    }),
    ("LAST NEW", 8, |record| {
        let summary = record.summary.as_ref();
        let seconds = summary.and_then(|summary| summary.seconds_to_last_new_connection);
        cell(seconds.map(|seconds| format!("{seconds:.1}")))
    }),
    ("CUT", 0, cut),
];

/// The column that only a list of all namespaces has.
const NAMESPACE: &str = "NAMESPACE";

/// The maximum width of a column in characters; a longer value shifts the rest of its row.
const MAX_WIDTH: usize = 64;

#[derive(Debug)]
pub struct DrainTable(Vec<(Column, usize)>);

/// What a drain cut, or else what a server had open; for the later ones of an Event, how many they are.
fn cut(record: &DrainRecord) -> String {
    if let Some(first) = &record.follows {
        let drains = plural(record.drains, "more drain");
        return format!("{drains} after that of {first}");
    }
    let open = record.summary.as_ref().map_or(0, silent_connections);
    let open = (open > 0).then(|| format!("{} open", plural(open, "silent connection")));
    cell(record.cut.map(|cut| cut.to_string()).or(open))
}

// === impl DrainTable ===

impl DrainTable {
    /// The layout for the drains that are known, and with `is_open_ended` for those to come.
    pub fn new(log: &DrainLog, has_namespace: bool, is_open_ended: bool) -> Self {
        let records = log.records();
        let width = |(heading, room, value): Column| {
            let lengths = records.iter().map(|record| width(&value(record)));
            let room = if is_open_ended { room } else { 0 };
            let longest = lengths.max().unwrap_or(0).min(MAX_WIDTH);
            ((heading, room, value), longest.max(heading.len()).max(room))
        };
        let columns = COLUMNS.into_iter();
        let columns = columns.filter(|(heading, ..)| has_namespace || *heading != NAMESPACE);
        Self(columns.map(width).collect())
    }

    pub fn header(&self) -> PrintableText {
        let mut out = PrintableText::default();
        self.push_line(&mut out, |(heading, ..)| heading.to_owned());
        out
    }

    pub fn push_row(&self, out: &mut PrintableText, record: &DrainRecord) {
        self.push_line(out, |(.., value)| value(record));
    }

    fn push_line(&self, out: &mut PrintableText, value: impl Fn(Column) -> String) {
        let cells = self.0.iter();
        out.push_cells(cells.map(|(column, width)| (value(*column), *width)));
    }
}
