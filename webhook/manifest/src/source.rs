//! Positions in a document's text: lines, columns, the ends of nodes.

use super::emit::FlowFormat;
use super::tree::{Content, MappingEntry, Node, Style};

/// A document's text.
#[derive(Clone, Copy)]
pub(super) struct SourceText<'a>(pub(super) &'a str);

// === impl SourceText ===

impl<'a> SourceText<'a> {
    pub(super) fn line_start(self, at: usize) -> usize {
        self.0[..at].rfind('\n').map_or(0, |newline| newline + 1)
    }

    pub(super) fn begins_line(self, at: usize) -> bool {
        let before = self.0[..at].trim_end_matches([' ', '\t']);
        before.is_empty() || before.ends_with('\n')
    }

    pub(super) fn column(self, at: usize) -> usize {
        self.0[self.line_start(at)..at].chars().count()
    }

    /// The start of the next line; `at` itself if it is the start of a line.
    pub(super) fn next_line(self, at: usize) -> usize {
        if self.0[..at].ends_with('\n') {
            at
        } else {
            self.0[at..]
                .find('\n')
                .map_or(self.0.len(), |newline| at + newline + 1)
        }
    }

    /// The first byte after `at` that is neither white space nor in a comment.
    pub(super) fn skip_blanks(self, mut at: usize) -> usize {
        loop {
            let rest = self.0[at..].trim_start();
            at = self.0.len() - rest.len();
            if !rest.starts_with('#') {
                return at;
            }
            at += rest.find('\n').unwrap_or(rest.len());
        }
    }

    /// The first dash of a list that starts at `from`, or whose key ends there.
    pub(super) fn dash(self, from: usize) -> Option<usize> {
        let at = self.skip_blanks(from);
        match self.0[at..].chars().next()? {
            '-' => Some(at),
            ':' => self.dash(at + 1),
            '&' | '!' => {
                let property = self.0[at..].find(char::is_whitespace)?;
                self.dash(at + property)
            }
            _ => None,
        }
    }

    /// The end of `node` in the text, without what is inserted.
    pub(super) fn node_end(self, node: &Node) -> usize {
        match &node.content {
            Content::Mapping(Style::Block, entries) => entries
                .values()
                .filter(|entry| !entry.value.is_inserted())
                // The last entry of a duplicate key has the place of the first one.
                .max_by_key(|entry| entry.key_range.start)
                .map_or(node.range.end, |last| self.entry_end(last)),
            Content::Sequence(Style::Block, items) => items
                .iter()
                .rfind(|item| !item.is_inserted())
                .map_or(node.range.end, |last| self.node_end(last)),
            // The parser ends a block scalar at the next token, past that token's indentation.
            Content::Scalar(_) if self.begins_line(node.range.end) => {
                self.line_start(node.range.end)
            }
            _ => node.range.end,
        }
    }

    pub(super) fn entry_end(self, entry: &MappingEntry) -> usize {
        let behind_key = self.skip_blanks(entry.key_range.end);
        if entry.value.range.is_empty() && self.0[behind_key..].starts_with(':') {
            behind_key + 1
        } else {
            self.node_end(&entry.value).max(entry.key_range.end)
        }
    }

    /// The start of the line after `node` and after the comments below it that are at `column` or deeper.
    pub(super) fn line_after(self, node: &Node, column: usize) -> usize {
        let mut at = self.next_line(self.node_end(node));
        while let Some(line) = self.0[at..].split_inclusive('\n').next() {
            let text = line.trim_start_matches(' ');
            if !text.starts_with('#') || line.len() - text.len() < column {
                break;
            }
            at += line.len();
        }
        at
    }

    /// What indents the line that begins at `at`; `None` if something else is before `at` on its line.
    fn indentation(self, at: usize) -> Option<&'a str> {
        self.begins_line(at)
            .then(|| &self.0[self.line_start(at)..at])
    }

    /// The layout of the collection in brackets `node`, whose first element starts at `first`.
    pub(super) fn flow_format(
        self,
        node: &Node,
        first: usize,
        indent_unit: &'a str,
    ) -> FlowFormat<'a> {
        let is_multiline = self.0[node.range.start..first].contains('\n');
        FlowFormat {
            indent: self.indentation(first).filter(|_| is_multiline),
            indent_unit,
        }
    }

    /// One level of indentation in a JSON document: that of its first element.
    pub(super) fn indent_unit(self, root: &Node) -> &'a str {
        let first = match &root.content {
            Content::Mapping(Style::Flow, entries) => {
                entries.first().map(|(_, entry)| entry.key_range.start)
            }
            Content::Sequence(Style::Flow, items) => items.first().map(|item| item.range.start),
            _ => None,
        };
        let indentation = first.and_then(|first| self.indentation(first));
        indentation.unwrap_or("  ")
    }

    /// Whether the first list below a key is indented; `None` if there is none.
    pub(super) fn indents_lists(self, node: &Node) -> Option<bool> {
        match &node.content {
            Content::Mapping(Style::Block, entries) => {
                entries
                    .values()
                    .find_map(|entry| match &entry.value.content {
                        Content::Sequence(Style::Block, _) => {
                            let dash = self.dash(entry.key_range.end)?;
                            Some(self.column(dash) > self.column(entry.key_range.start))
                        }
                        _ => self.indents_lists(&entry.value),
                    })
            }
            Content::Sequence(Style::Block, items) => {
                items.iter().find_map(|item| self.indents_lists(item))
            }
            _ => None,
        }
    }
}
