//! Moves items of lists to the end of other lists, as text: what is written in an item stays as it is, with its
//! comments.

use std::ops::Range;

use json_patch::jsonptr::Pointer;

use super::source::SourceText;
use super::splice::Splicer;
use super::tree::{Content, Key, Node, Style, Tree};

/// A list in the text, without brackets, that is the value of a key.
struct List<'n> {
    /// There is at least one.
    items: &'n [Node],
    /// The end of its key.
    key_end: usize,
}

impl Tree {
    /// The text from which this tree was read, with items moved: each from its path to a path that ends with `-`. The
    /// lists have other items too, and no brackets.
    pub(super) fn write_moved(&self, text: &str, moves: &[(&Pointer, &Pointer)]) -> Option<String> {
        let source = SourceText(text);
        let mut splicer = Splicer::new(source, &self.root);
        for (from, to) in moves {
            let (from, index) = from.split_back()?;
            let (to, end) = to.split_back()?;
            let (Ok(index), "-") = (index.decoded().parse(), &*end.decoded()) else {
                return None;
            };
            let (from, to) = (self.list(from)?, self.list(to)?);
            splicer.move_item(&from, index, &to)?;
        }
        splicer.finish()
    }

    /// The list at `path`.
    fn list(&self, path: &Pointer) -> Option<List<'_>> {
        let (parent, key) = path.split_back()?;
        let (parent, true) = self.nearest(parent) else {
            return None;
        };
        let Content::Mapping(_, entries) = &parent.content else {
            return None;
        };
        let entry = entries.get(&Key::Name(key.decoded().into_owned()))?;
        match &entry.value.content {
            Content::Sequence(Style::Block, items) => Some(List {
                items,
                key_end: entry.key_range.end,
            }),
            _ => None,
        }
    }
}

// === impl Splicer ===

impl Splicer<'_> {
    fn move_item(&mut self, from: &List<'_>, index: usize, to: &List<'_>) -> Option<()> {
        let SourceText(text) = self.source;
        let (lines, column) = self.item_lines(from, index)?;
        let to_column = self.source.column(self.source.dash(to.key_end)?);
        let mut moved = shift(
            &text[lines.clone()].replace("\r\n", "\n"),
            column,
            to_column,
        );
        if !moved.ends_with('\n') {
            moved.push('\n');
        }
        let end = match index {
            // The list does not begin with a blank line.
            0 => self.source.skip_blank_lines(lines.end),
            _ => lines.end,
        };
        self.replace(lines.start..end, String::new());
        let at = self.source.line_after(to.items.last()?, to_column + 1);
        self.replace(at..at, moved);
        Some(())
    }

    /// The lines of a list's item, with the comments directly above it, and the column of its dash.
    fn item_lines(&self, list: &List<'_>, index: usize) -> Option<(Range<usize>, usize)> {
        let SourceText(text) = self.source;
        let item = list.items.get(index)?;
        let before = index.checked_sub(1).map(|before| &list.items[before]);
        let from = before.map_or(list.key_end, |before| self.source.node_end(before));
        let dash = self.source.dash(from)?;
        if list.items.len() < 2 || !self.source.begins_line(dash) {
            return None;
        }
        let column = self.source.column(dash);
        // A comment in the dash's column belongs to the next item.
        let top = match before {
            Some(before) => self.source.line_after(before, column + 1),
            None => self.source.next_line(from),
        };
        let mut start = self.source.line_start(dash);
        while start > top {
            let above = self.source.line_start(start - 1);
            if above < top || !text[above..start].trim_start().starts_with('#') {
                break;
            }
            start = above;
        }
        let end = self.source.line_after(item, column + 1);
        Some((start..end, column))
    }
}

/// Indents lines as far as their item's dash moves from one column to another.
fn shift(lines: &str, from: usize, to: usize) -> String {
    let shifted = lines.split_inclusive('\n').map(|line| {
        let text = line.trim_start_matches(' ');
        let indent = line.len() - text.len();
        match text {
            "" | "\n" if indent == 0 => line.to_owned(),
            _ => format!("{}{text}", " ".repeat((indent + to).saturating_sub(from))),
        }
    });
    shifted.collect()
}
