//! Writes what is new in a tree into the document's text, and touches nothing else.

use std::ops::Range;

use serde_json::Value;

use super::source::Source;
use super::text::{Lines, inline};
use super::tree::{Anchors, Content, Entry, Key, Node, Style, Tree};

/// The text has a form into which something new cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoForm;

struct Writer<'a> {
    source: Source<'a>,
    lines: Lines,
    /// One level of indentation in JSON.
    unit: &'a str,
    is_json: bool,
    anchors: &'a Anchors,
    splices: Vec<Splice>,
}

/// A piece of text in the place of another.
struct Splice {
    at: Range<usize>,
    with: String,
    /// Whether `with` is whole lines, which want a line's start before them.
    is_lines: bool,
}

impl Tree {
    /// The text from which this tree was read, with what is new.
    pub(super) fn write(&self, text: &str) -> Result<String, NoForm> {
        let source = Source(text);
        let mut writer = Writer {
            source,
            lines: Lines {
                indents_lists: source.indents_lists(&self.root).unwrap_or(false),
            },
            unit: source.unit(&self.root),
            is_json: matches!(
                self.root.content,
                Content::Mapping(Style::Flow, _) | Content::Sequence(Style::Flow, _)
            ),
            anchors: &self.anchors,
            splices: Vec::new(),
        };
        writer.node(&self.root, self.root.at.start)?;
        writer.finish()
    }
}

/// True for a bracket of whose content nothing stays: what takes its place need not be in brackets.
fn is_renewed(node: &Node) -> bool {
    let is_new = |node: &Node| node.new.is_some() || is_renewed(node);
    match &node.content {
        Content::Mapping(Style::Flow, entries) => {
            !entries.is_empty() && entries.iter().all(|entry| is_new(&entry.value))
        }
        Content::Sequence(Style::Flow, items) => !items.is_empty() && items.iter().all(is_new),
        _ => false,
    }
}

// === impl Writer ===

impl Writer<'_> {
    /// Writes what is new in `node`. Nothing but its tag, its anchor and blanks stand between
    /// `from` and its first byte.
    fn node(&mut self, node: &Node, from: usize) -> Result<(), NoForm> {
        if node.new.is_some() {
            return Err(NoForm);
        }
        match &node.content {
            Content::Scalar(_) | Content::Alias(_) => Ok(()),
            Content::Mapping(Style::Block, entries) => self.block_mapping(node, entries),
            Content::Sequence(Style::Block, items) => self.block_sequence(items, from),
            Content::Mapping(Style::Flow, entries) => self.flow_mapping(node, entries),
            Content::Sequence(Style::Flow, items) => self.flow_sequence(node, items),
        }
    }

    fn block_mapping(&mut self, node: &Node, entries: &[Entry]) -> Result<(), NoForm> {
        let column = self.source.column(node.at.start);
        for entry in entries {
            match (&entry.value.new, &entry.key) {
                (None, _) if is_renewed(&entry.value) => {
                    let new = entry.value.value(self.anchors);
                    self.replace_in_block(entry, column, &new)?;
                }
                (None, _) => self.node(&entry.value, entry.at.end)?,
                (Some(new), Key::Name(name)) if entry.value.is_inserted() => {
                    let at = self.source.after_lines(node, column);
                    self.insert_lines(at, self.lines.entry(column, name, new));
                }
                (Some(new), _) => self.replace_in_block(entry, column, new)?,
            }
        }
        Ok(())
    }

    fn block_sequence(&mut self, items: &[Node], from: usize) -> Result<(), NoForm> {
        let first = self.source.dash(from).ok_or(NoForm)?;
        let column = self.source.column(first);
        let mut before: Option<&Node> = None;
        for item in items {
            match &item.new {
                None => self.node(item, item.at.start)?,
                Some(new) if item.is_inserted() => {
                    let at = match before {
                        // A comment as deep as the dash belongs to the next item.
                        Some(before) => self.source.after_lines(before, column + 1),
                        None if self.source.begins_line(first) => self.source.line_start(first),
                        None => return Err(NoForm),
                    };
                    self.insert_lines(at, self.lines.item(column, new));
                    continue;
                }
                Some(new) => {
                    let from = before.map_or(from, |before| self.source.end(before));
                    let dash = self.source.dash(from).ok_or(NoForm)?;
                    let end = self.source.end(item).max(dash + 1);
                    let lines = self.lines.item(column, new);
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
        entry: &Entry,
        column: usize,
        new: &Value,
    ) -> Result<(), NoForm> {
        let Source(text) = self.source;
        let old = &entry.value;
        let colon = self.source.skip_blanks(entry.at.end);
        if !text[colon..].starts_with(':') {
            return Err(NoForm);
        }
        let behind = colon + 1;
        let start = self.source.skip_blanks(behind);
        let is_empty = old.at.is_empty();
        let stands_below = !is_empty && text[behind..start].contains('\n');
        let below = self.lines.below(column, new);
        if stands_below {
            let lines = self.source.line_start(start)..self.source.after_lines(old, column + 1);
            if below.is_none() {
                self.replace(behind..behind, format!(" {}", inline(new)));
            }
            self.replace_lines(lines, below.unwrap_or_default());
            return Ok(());
        }
        let end = match is_empty {
            true => behind,
            false => self.source.end(old),
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

    fn flow_mapping(&mut self, node: &Node, entries: &[Entry]) -> Result<(), NoForm> {
        let Some(first) = entries.first() else {
            return Ok(());
        };
        let flow = self
            .source
            .flow(node, first.at.start, self.unit, self.is_json);
        let mut end = None;
        for entry in entries {
            let value = &entry.value;
            match (&value.new, &entry.key) {
                (None, _) => {
                    self.node(value, entry.at.end)?;
                    end = (!value.at.is_empty()).then(|| self.source.end(value));
                }
                (Some(new), Key::Name(name)) if value.is_inserted() => {
                    let at = end.ok_or(NoForm)?;
                    self.replace(at..at, format!(",{}{}", flow.gap(), flow.entry(name, new)));
                }
                (Some(_), _) if value.at.is_empty() => return Err(NoForm),
                (Some(new), _) => {
                    end = Some(self.source.end(value));
                    self.replace(value.at.start..self.source.end(value), flow.value(new));
                }
            }
        }
        Ok(())
    }

    fn flow_sequence(&mut self, node: &Node, items: &[Node]) -> Result<(), NoForm> {
        let Some(first) = items.iter().find(|item| !item.is_inserted()) else {
            return Ok(());
        };
        let flow = self
            .source
            .flow(node, first.at.start, self.unit, self.is_json);
        let mut end = None;
        for item in items {
            match (&item.new, end) {
                (None, _) => self.node(item, item.at.start)?,
                (Some(new), _) if !item.is_inserted() => {
                    self.replace(item.at.start..self.source.end(item), flow.value(new));
                }
                (Some(new), Some(at)) => {
                    self.replace(at..at, format!(",{}{}", flow.gap(), flow.value(new)));
                }
                (Some(new), None) => {
                    let at = first.at.start;
                    self.replace(at..at, format!("{},{}", flow.value(new), flow.gap()));
                }
            }
            if !item.is_inserted() {
                end = Some(self.source.end(item));
            }
        }
        Ok(())
    }

    fn insert_lines(&mut self, at: usize, with: String) {
        self.replace_lines(at..at, with);
    }

    fn replace_lines(&mut self, at: Range<usize>, with: String) {
        self.splices.push(Splice {
            at,
            with,
            is_lines: true,
        });
    }

    fn replace(&mut self, at: Range<usize>, with: String) {
        self.splices.push(Splice {
            at,
            with,
            is_lines: false,
        });
    }

    /// What was written at one place stays in its order: the inner node's first.
    fn finish(mut self) -> Result<String, NoForm> {
        let Source(text) = self.source;
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        self.splices.sort_by_key(|splice| splice.at.start);
        let mut written = String::with_capacity(text.len() + 4096);
        let mut done = 0;
        for splice in self.splices {
            written.push_str(text.get(done..splice.at.start).ok_or(NoForm)?);
            if splice.is_lines && !written.is_empty() && !written.ends_with('\n') {
                written.push_str(newline);
            }
            written.push_str(&splice.with.replace('\n', newline));
            done = splice.at.end;
        }
        written.push_str(&text[done..]);
        Ok(written)
    }
}
