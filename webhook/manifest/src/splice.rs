//! Writes the new values of a tree into the document's text, and changes nothing else. `None` stands for a layout into
//! which a value cannot be written.

use std::ops::Range;

use indexmap::IndexMap;
use serde_json::Value;

use super::emit::{BlockFormat, inline};
use super::source::SourceText;
use super::tree::{Content, Key, MappingEntry, Node, Style, Tree};

/// The changes of a document's text, collected and then applied together.
pub(super) struct Splicer<'a> {
    pub(super) source: SourceText<'a>,
    block_format: BlockFormat,
    /// One level of indentation in JSON.
    indent_unit: &'a str,
    /// The ranges that are replaced, with what comes in their place: whole lines, which must begin at the start of a
    /// line, or a part of one, which does not end with a line break.
    splices: Vec<(Range<usize>, String)>,
}

impl Tree {
    /// The text from which this tree was read, with its new values.
    pub(super) fn write(&self, text: &str) -> Option<String> {
        let mut splicer = Splicer::new(SourceText(text), &self.root);
        splicer.splice_node(&self.root, self.root.range.start)?;
        splicer.finish()
    }
}

// === impl Splicer ===

impl<'a> Splicer<'a> {
    /// A splicer of the text whose tree has this root.
    pub(super) fn new(source: SourceText<'a>, root: &Node) -> Self {
        Self {
            source,
            block_format: BlockFormat {
                indents_lists: source.indents_lists(root).unwrap_or(false),
            },
            indent_unit: source.indent_unit(root),
            splices: Vec::new(),
        }
    }

    /// Writes the new values below `node`. Only its tag, its anchor and blanks are between `from` and its first byte.
    fn splice_node(&mut self, node: &Node, from: usize) -> Option<()> {
        if node.new_value.is_some() {
            return None;
        }
        match &node.content {
            Content::Scalar(_) | Content::Alias(_) => Some(()),
            Content::Mapping(Style::Block, entries) => self.splice_block_mapping(node, entries),
            Content::Sequence(Style::Block, items) => self.splice_block_sequence(items, from),
            Content::Mapping(Style::Flow, entries) => {
                let entries = entries.iter();
                self.splice_flow(node, entries.map(|(key, it)| (Some((key, it)), &it.value)))
            }
            Content::Sequence(Style::Flow, items) => {
                self.splice_flow(node, items.iter().map(|item| (None, item)))
            }
        }
    }

    fn splice_block_mapping(
        &mut self,
        node: &Node,
        entries: &IndexMap<Key, MappingEntry>,
    ) -> Option<()> {
        let column = self.source.column(node.range.start);
        for (key, entry) in entries {
            match (&entry.value.new_value, key) {
                _ if entry.value.is_removed => {
                    let start = entry.key_range.start;
                    if !self.source.begins_line(start) {
                        return None;
                    }
                    let end = self.source.line_after(&entry.value, column + 1);
                    self.replace(self.source.line_start(start)..end, String::new());
                }
                (None, _) => self.splice_node(&entry.value, entry.key_range.end)?,
                (Some(new), Key::Name(name)) if entry.value.is_inserted() => {
                    let at = self.source.line_after(node, column);
                    self.replace(at..at, self.block_format.entry(column, name, new));
                }
                (Some(new), _) => self.replace_in_block(entry, column, new)?,
            }
        }
        Some(())
    }

    fn splice_block_sequence(&mut self, items: &[Node], from: usize) -> Option<()> {
        let first = self.source.dash(from)?;
        let column = self.source.column(first);
        let mut before: Option<&Node> = None;
        for item in items {
            match &item.new_value {
                _ if item.is_removed => {
                    let from = before.map_or(from, |before| self.source.node_end(before));
                    let dash = self.source.dash(from)?;
                    if !self.source.begins_line(dash) {
                        return None;
                    }
                    // A comment in the dash's column is not about it, unlike those further in.
                    let end = self.source.line_after(item, column + 1);
                    self.replace(self.source.line_start(dash)..end, String::new());
                }
                None => self.splice_node(item, item.range.start)?,
                Some(new) if item.is_inserted() => {
                    let at = match before {
                        // A comment in the dash's column belongs to the next item.
                        Some(before) => self.source.line_after(before, column + 1),
                        None if self.source.begins_line(first) => self.source.line_start(first),
                        None => return None,
                    };
                    self.replace(at..at, self.block_format.item(column, new));
                    continue;
                }
                Some(new) => {
                    let from = before.map_or(from, |before| self.source.node_end(before));
                    let dash = self.source.dash(from)?;
                    let end = self.source.node_end(item).max(dash + 1);
                    let lines = self.block_format.item(column, new);
                    self.replace(dash..end, lines.trim().to_owned());
                }
            }
            before = Some(item);
        }
        Some(())
    }

    /// Replaces the value of `entry` by `new`, on the key's line or below it. Comments stay.
    fn replace_in_block(&mut self, entry: &MappingEntry, column: usize, new: &Value) -> Option<()> {
        let SourceText(text) = self.source;
        let old = &entry.value;
        let colon = self.source.skip_blanks(entry.key_range.end);
        if !text[colon..].starts_with(':') {
            return None;
        }
        let behind = colon + 1;
        let start = self.source.skip_blanks(behind);
        let is_empty = old.range.is_empty();
        let (inline_range, lines) = if !is_empty && text[behind..start].contains('\n') {
            let end = self.source.line_after(old, column + 1);
            (behind..behind, self.source.line_start(start)..end)
        } else {
            let end = if is_empty {
                behind
            } else {
                self.source.node_end(old)
            };
            let end = behind + text[behind..end].trim_end().len();
            let below = self.source.next_line(end);
            (behind..end, below..below)
        };
        match self.block_format.block_value(column, new) {
            None => {
                self.replace(inline_range, format!(" {}", inline(new)));
                self.replace(lines, String::new());
            }
            Some(below) => {
                self.replace(inline_range, String::new());
                self.replace(lines, below);
            }
        }
        Some(())
    }

    /// Writes the new elements of a collection in brackets: the entries of a mapping, or items without entry.
    fn splice_flow<'n>(
        &mut self,
        node: &Node,
        mut elements: impl Iterator<Item = (Option<(&'n Key, &'n MappingEntry)>, &'n Node)> + Clone,
    ) -> Option<()> {
        let start = |(entry, value): (Option<(&Key, &MappingEntry)>, &Node)| {
            entry.map_or(value.range.start, |(_, entry)| entry.key_range.start)
        };
        let mut written = elements.clone().filter(|(_, value)| !value.is_inserted());
        let Some(first) = written.next().map(start) else {
            return Some(());
        };
        let format = self.source.flow_format(node, first, self.indent_unit);
        let mut end = None;
        while let Some((entry, value)) = elements.next() {
            let at = value.range.start;
            match &value.new_value {
                // With the comma before it, or else the one behind it.
                _ if value.is_removed => {
                    let value_end = self.source.node_end(value);
                    let next = elements.clone().find(|(_, next)| !next.is_inserted());
                    match (end, next.map(start)) {
                        (Some(before), _) => self.replace(before..value_end, String::new()),
                        (None, Some(next)) => {
                            self.replace(start((entry, value))..next, String::new())
                        }
                        (None, None) => return None,
                    }
                    end = end.and(Some(value_end));
                }
                None => {
                    self.splice_node(value, entry.map_or(at, |(_, entry)| entry.key_range.end))?;
                    end = (!value.range.is_empty()).then(|| self.source.node_end(value));
                }
                Some(new) if value.is_inserted() => {
                    let text = match entry {
                        Some((Key::Name(name), _)) => format.entry(name, new),
                        _ => format.value(new),
                    };
                    match end {
                        Some(at) => self.replace(at..at, format!(",{}{text}", format.gap())),
                        None => self.replace(first..first, format!("{text},{}", format.gap())),
                    }
                }
                Some(_) if value.range.is_empty() => return None,
                Some(new) => {
                    let value_end = self.source.node_end(value);
                    self.replace(at..value_end, format.value(new));
                    end = Some(value_end);
                }
            }
        }
        Some(())
    }

    pub(super) fn replace(&mut self, range: Range<usize>, replacement: String) {
        self.splices.push((range, replacement));
    }

    /// Applies the splices. Those at the same place keep their order, inner nodes first.
    pub(super) fn finish(mut self) -> Option<String> {
        let SourceText(text) = self.source;
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        self.splices.sort_by_key(|(range, _)| range.start);
        let mut written = String::with_capacity(text.len() + 4096);
        let mut done = 0;
        for (range, replacement) in self.splices {
            written.push_str(text.get(done..range.start)?);
            let is_inside_line = !written.is_empty() && !written.ends_with('\n');
            if is_inside_line && replacement.ends_with('\n') {
                written.push_str(newline);
            }
            written.push_str(&replacement.replace('\n', newline));
            done = range.end;
        }
        written.push_str(&text[done..]);
        Some(written)
    }
}
