//! Writes what is new in a tree into the document's text, and touches nothing else.

use std::ops::Range;

use serde_json::Value;

use super::emit::{BlockFormat, inline};
use super::source::SourceText;
use super::tree::{Anchors, Content, Key, MappingEntry, Node, Style, Tree};

/// The text has a form into which something new cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnsupportedLayout;

struct Splicer<'a> {
    source: SourceText<'a>,
    block_format: BlockFormat,
    /// One level of indentation in JSON.
    indent_unit: &'a str,
    is_json: bool,
    anchors: &'a Anchors,
    splices: Vec<Splice>,
}

/// A piece of text in the place of another.
struct Splice {
    range: Range<usize>,
    replacement: String,
    /// Whether `with` is whole lines, which want a line's start before them.
    is_lines: bool,
}

impl Tree {
    /// The text from which this tree was read, with what is new.
    pub(super) fn write(&self, text: &str) -> Result<String, UnsupportedLayout> {
        let source = SourceText(text);
        let mut writer = Splicer {
            source,
            block_format: BlockFormat {
                indents_lists: source.indents_lists(&self.root).unwrap_or(false),
            },
            indent_unit: source.indent_unit(&self.root),
            is_json: matches!(
                self.root.content,
                Content::Mapping(Style::Flow, _) | Content::Sequence(Style::Flow, _)
            ),
            anchors: &self.anchors,
            splices: Vec::new(),
        };
        writer.splice_node(&self.root, self.root.range.start)?;
        writer.finish()
    }
}

/// True for a bracket of whose content nothing stays: what takes its place need not be in brackets.
fn is_fully_replaced(node: &Node) -> bool {
    let is_new = |node: &Node| node.new_value.is_some() || is_fully_replaced(node);
    match &node.content {
        Content::Mapping(Style::Flow, entries) => {
            !entries.is_empty() && entries.iter().all(|entry| is_new(&entry.value))
        }
        Content::Sequence(Style::Flow, items) => !items.is_empty() && items.iter().all(is_new),
        _ => false,
    }
}

// === impl Splicer ===

impl Splicer<'_> {
    /// Writes what is new in `node`. Nothing but its tag, its anchor and blanks stand between
    /// `from` and its first byte.
    fn splice_node(&mut self, node: &Node, from: usize) -> Result<(), UnsupportedLayout> {
        if node.new_value.is_some() {
            return Err(UnsupportedLayout);
        }
        match &node.content {
            Content::Scalar(_) | Content::Alias(_) => Ok(()),
            Content::Mapping(Style::Block, entries) => self.splice_block_mapping(node, entries),
            Content::Sequence(Style::Block, items) => self.splice_block_sequence(items, from),
            Content::Mapping(Style::Flow, entries) => self.splice_flow_mapping(node, entries),
            Content::Sequence(Style::Flow, items) => self.splice_flow_sequence(node, items),
        }
    }

    fn splice_block_mapping(
        &mut self,
        node: &Node,
        entries: &[MappingEntry],
    ) -> Result<(), UnsupportedLayout> {
        let column = self.source.column(node.range.start);
        for entry in entries {
            match (&entry.value.new_value, &entry.key) {
                (None, _) if is_fully_replaced(&entry.value) => {
                    let new = entry.value.value(self.anchors);
                    self.replace_in_block(entry, column, &new)?;
                }
                (None, _) => self.splice_node(&entry.value, entry.key_range.end)?,
                (Some(new), Key::Name(name)) if entry.value.is_inserted() => {
                    let at = self.source.line_after(node, column);
                    self.insert_lines(at, self.block_format.entry(column, name, new));
                }
                (Some(new), _) => self.replace_in_block(entry, column, new)?,
            }
        }
        Ok(())
    }

    fn splice_block_sequence(
        &mut self,
        items: &[Node],
        from: usize,
    ) -> Result<(), UnsupportedLayout> {
        let first = self.source.dash(from).ok_or(UnsupportedLayout)?;
        let column = self.source.column(first);
        let mut before: Option<&Node> = None;
        for item in items {
            match &item.new_value {
                None => self.splice_node(item, item.range.start)?,
                Some(new) if item.is_inserted() => {
                    let at = match before {
                        // A comment as deep as the dash belongs to the next item.
                        Some(before) => self.source.line_after(before, column + 1),
                        None if self.source.begins_line(first) => self.source.line_start(first),
                        None => return Err(UnsupportedLayout),
                    };
                    self.insert_lines(at, self.block_format.item(column, new));
                    continue;
                }
                Some(new) => {
                    let from = before.map_or(from, |before| self.source.node_end(before));
                    let dash = self.source.dash(from).ok_or(UnsupportedLayout)?;
                    let end = self.source.node_end(item).max(dash + 1);
                    let lines = self.block_format.item(column, new);
                    self.replace(dash..end, lines.trim().to_owned());
                }
            }
            before = Some(item);
        }
        Ok(())
    }

    /// Puts `new` behind or below the key of `entry`, whichever is its form, in the place of what
    /// stands there. Comments stay.
    fn replace_in_block(
        &mut self,
        entry: &MappingEntry,
        column: usize,
        new: &Value,
    ) -> Result<(), UnsupportedLayout> {
        let SourceText(text) = self.source;
        let old = &entry.value;
        let colon = self.source.skip_blanks(entry.key_range.end);
        if !text[colon..].starts_with(':') {
            return Err(UnsupportedLayout);
        }
        let behind = colon + 1;
        let start = self.source.skip_blanks(behind);
        let is_empty = old.range.is_empty();
        let stands_below = !is_empty && text[behind..start].contains('\n');
        let below = self.block_format.block_value(column, new);
        if stands_below {
            let lines = self.source.line_start(start)..self.source.line_after(old, column + 1);
            if below.is_none() {
                self.replace(behind..behind, format!(" {}", inline(new)));
            }
            self.replace_lines(lines, below.unwrap_or_default());
            return Ok(());
        }
        let end = match is_empty {
            true => behind,
            false => self.source.node_end(old),
        };
        let end = behind + text[behind..end].trim_end().len();
        match below {
            None => self.replace(behind..end, format!(" {}", inline(new))),
            Some(lines) => {
                self.replace(behind..end, String::new());
                self.insert_lines(self.source.next_line(end), lines);
            }
        }
        Ok(())
    }

    fn splice_flow_mapping(
        &mut self,
        node: &Node,
        entries: &[MappingEntry],
    ) -> Result<(), UnsupportedLayout> {
        let Some(first) = entries.first() else {
            return Ok(());
        };
        let flow = self
            .source
            .flow(node, first.key_range.start, self.indent_unit, self.is_json);
        let mut end = None;
        for entry in entries {
            let value = &entry.value;
            match (&value.new_value, &entry.key) {
                (None, _) => {
                    self.splice_node(value, entry.key_range.end)?;
                    end = (!value.range.is_empty()).then(|| self.source.node_end(value));
                }
                (Some(new), Key::Name(name)) if value.is_inserted() => {
                    let at = end.ok_or(UnsupportedLayout)?;
                    self.replace(at..at, format!(",{}{}", flow.gap(), flow.entry(name, new)));
                }
                (Some(_), _) if value.range.is_empty() => return Err(UnsupportedLayout),
                (Some(new), _) => {
                    end = Some(self.source.node_end(value));
                    self.replace(
                        value.range.start..self.source.node_end(value),
                        flow.value(new),
                    );
                }
            }
        }
        Ok(())
    }

    fn splice_flow_sequence(
        &mut self,
        node: &Node,
        items: &[Node],
    ) -> Result<(), UnsupportedLayout> {
        let Some(first) = items.iter().find(|item| !item.is_inserted()) else {
            return Ok(());
        };
        let flow = self
            .source
            .flow(node, first.range.start, self.indent_unit, self.is_json);
        let mut end = None;
        for item in items {
            match (&item.new_value, end) {
                (None, _) => self.splice_node(item, item.range.start)?,
                (Some(new), _) if !item.is_inserted() => {
                    self.replace(
                        item.range.start..self.source.node_end(item),
                        flow.value(new),
                    );
                }
                (Some(new), Some(at)) => {
                    self.replace(at..at, format!(",{}{}", flow.gap(), flow.value(new)));
                }
                (Some(new), None) => {
                    let at = first.range.start;
                    self.replace(at..at, format!("{},{}", flow.value(new), flow.gap()));
                }
            }
            if !item.is_inserted() {
                end = Some(self.source.node_end(item));
            }
        }
        Ok(())
    }

    fn insert_lines(&mut self, at: usize, with: String) {
        self.replace_lines(at..at, with);
    }

    fn replace_lines(&mut self, at: Range<usize>, with: String) {
        self.splices.push(Splice {
            range: at,
            replacement: with,
            is_lines: true,
        });
    }

    fn replace(&mut self, at: Range<usize>, with: String) {
        self.splices.push(Splice {
            range: at,
            replacement: with,
            is_lines: false,
        });
    }

    /// What was written at one place stays in its order: the inner node's first.
    fn finish(mut self) -> Result<String, UnsupportedLayout> {
        let SourceText(text) = self.source;
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        self.splices.sort_by_key(|splice| splice.range.start);
        let mut written = String::with_capacity(text.len() + 4096);
        let mut done = 0;
        for splice in self.splices {
            written.push_str(
                text.get(done..splice.range.start)
                    .ok_or(UnsupportedLayout)?,
            );
            if splice.is_lines && !written.is_empty() && !written.ends_with('\n') {
                written.push_str(newline);
            }
            written.push_str(&splice.replacement.replace('\n', newline));
            done = splice.range.end;
        }
        written.push_str(&text[done..]);
        Ok(written)
    }
}
