//! Moves items of lists to the end of other lists, as text: what is written in an item stays as it is, with its
//! comments.

use std::ops::Range;

use json_patch::jsonptr::Pointer;

use super::source::SourceText;
use super::splice::Splicer;
use super::tree::{Content, Key, Node, Style, Tree};

/// A list in the text that is the value of a key.
#[derive(Clone, Copy)]
struct List<'n> {
    node: &'n Node,
    style: Style,
    items: &'n [Node],
    /// The end of its key.
    key_end: usize,
}

impl Tree {
    /// The text from which this tree was read, with items moved: each from its path to a path that ends with `-`. The
    /// lists have other items too. In brackets, an item stays on its lines; comments between items are not supported
    /// there.
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
            splicer.move_item(from, index, to)?;
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
        let entry = entries.get(&Key::Name(key.decoded().into_owned()));
        let entry = entry?;
        match &entry.value.content {
            Content::Sequence(style, items) if !items.is_empty() => Some(List {
                node: &entry.value,
                style: *style,
                items,
                key_end: entry.key_range.end,
            }),
            _ => None,
        }
    }
}

// === impl Splicer ===

impl Splicer<'_> {
    fn move_item(&mut self, from: List<'_>, index: usize, to: List<'_>) -> Option<()> {
        let item = from.items.get(index)?;
        match (from.style, to.style) {
            (Style::Block, Style::Block) => {
                let (lines, column) = self.block_item(from, index)?;
                let text = self.source.0[lines.clone()].replace("\r\n", "\n");
                let end = match index {
                    // The list does not begin with a blank line.
                    0 => self.source.skip_blank_lines(lines.end),
                    _ => lines.end,
                };
                self.replace(lines.start..end, String::new());
                self.append_lines(to, |to| shift(&text, column, to))
            }
            (Style::Flow, Style::Block) => {
                let text = self.cut_flow_item(from, index, item)?;
                self.append_lines(to, |to| format!("{}- {text}\n", " ".repeat(to)))
            }
            (Style::Flow, Style::Flow) => {
                let text = self.cut_flow_item(from, index, item)?;
                let first = to.items[0].range.start;
                let format = self.source.flow_format(to.node, first, self.indent_unit);
                let end = self.source.node_end(to.last());
                self.replace(end..end, format!(",{}{text}", format.gap()));
                Some(())
            }
            (Style::Block, Style::Flow) => None,
        }
    }

    /// The lines of a list's item, with the comments directly above it, and the column of its dash.
    fn block_item(&self, list: List<'_>, index: usize) -> Option<(Range<usize>, usize)> {
        let SourceText(text) = self.source;
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
        let end = self.source.line_after(&list.items[index], column + 1);
        Some((start..end, column))
    }

    /// Cuts an item out of a list in brackets, with one of the commas beside it.
    fn cut_flow_item(&mut self, list: List<'_>, index: usize, item: &Node) -> Option<String> {
        let SourceText(text) = self.source;
        let own = item.range.start..self.source.node_end(item);
        let next = list.items.get(index + 1);
        let (cut, gap) = match (next, index.checked_sub(1)) {
            (Some(next), _) => (own.start..next.range.start, own.end..next.range.start),
            (None, Some(before)) => {
                let before = self.source.node_end(&list.items[before]);
                (before..own.end, before..own.start)
            }
            (None, None) => return None,
        };
        if own.is_empty() || text[gap].contains('#') {
            return None;
        }
        self.replace(cut, String::new());
        Some(text[own].replace("\r\n", "\n"))
    }

    /// Writes lines behind the last item of a list, given the column of the list's dashes.
    fn append_lines(&mut self, list: List<'_>, lines: impl FnOnce(usize) -> String) -> Option<()> {
        let first = self.source.dash(list.key_end)?;
        let column = self.source.column(first);
        let at = self.source.line_after(list.last(), column + 1);
        let mut lines = lines(column);
        if !lines.ends_with('\n') {
            lines.push('\n');
        }
        self.replace(at..at, lines);
        Some(())
    }
}

// === impl List ===

impl<'n> List<'n> {
    fn last(self) -> &'n Node {
        &self.items[self.items.len() - 1]
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
