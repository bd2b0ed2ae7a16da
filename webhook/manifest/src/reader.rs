//! Parses a document's text into a tree.
//!
//! The parser is granit-parser, which is beneath serde-saphyr: maintained, fuzzed, without unsafe code, and with exact
//! byte spans and the style of every node. It reads JSON as YAML. The meaning of unquoted scalars is in
//! [`super::scalar`], since Rust's crates read YAML 1.2 and `kubectl` reads YAML 1.1.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use granit_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput, Tag};
use indexmap::IndexMap;
use serde_json::Value;

use super::error::ManifestError;
use super::scalar;
use super::tree::{Content, Key, MappingEntry, Node, Tree};

/// Maximum number of nodes that anchors name and aliases expand to in one document, all copies counted: about 32 MiB.
/// Bounds a "billion laughs" attack.
const MAX_EXPANDED_NODES: usize = 250_000;

/// Maximum number of these nodes for each byte of the document. Bounds the work that a stream of many small documents
/// causes; a mapping of ten entries that each of its aliases repeats makes about three.
const MAX_EXPANDED_NODES_PER_BYTE: usize = 16;

/// Maximum number of nodes in a document, keys included: about 180 MiB as tree and value.
pub const MAX_NODES: usize = 350_000;

/// Bytes of a string that count as one node.
const BYTES_PER_NODE: usize = 64;

struct Reader<'a> {
    text: &'a str,
    /// The lines of the stream before the text.
    lines_before: usize,
    events: Parser<'a, StrInput<'a>>,
    /// The value of each anchor and its size in nodes, by the parser's number.
    anchors: HashMap<usize, (Rc<Value>, usize)>,
    /// What has been found, but for the root.
    tree: Tree,
    /// How many nodes have been read, those of aliases and duplicate keys included; long strings count as several.
    size: usize,
    expanded_nodes: usize,
}

impl Tree {
    /// Parses a document that starts on `first_line` of its stream; an empty one is null.
    ///
    /// # Errors
    /// For text that is not YAML, more than one document, too large, or without a JSON form.
    pub(super) fn read(text: &str, first_line: usize) -> Result<Self, ManifestError> {
        let options = granit_parser::options! { emit_comments: false };
        let mut reader = Reader {
            text,
            lines_before: first_line - 1,
            events: Parser::new_from_str_with_options(text, options),
            anchors: HashMap::new(),
            tree: Self::default(),
            size: 0,
            expanded_nodes: 0,
        };
        let root = reader.document()?;
        Ok(Self {
            root,
            ..reader.tree
        })
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Node, ManifestError> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(root.unwrap_or_default()),
                Event::DocumentStart(..) if root.is_some() => {
                    let message = "a second document without a line `---` before it";
                    return Err(self.error(&span.start, message));
                }
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                event => root = Some(self.node(event, &span)?),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), ManifestError> {
        let end = Ok((Event::StreamEnd, Span::default()));
        let event = self.events.next_event().unwrap_or(end);
        event.map_err(|error| self.error(error.marker(), strip_parser_context(&error.info())))
    }

    fn node(&mut self, event: Event<'a>, span: &Span) -> Result<Node, ManifestError> {
        self.tree.node_count += 1;
        if self.tree.node_count > MAX_NODES {
            return Err(ManifestError::too_large(self.line(span)));
        }
        let mut range = byte_range(span);
        let anchor = event.anchor_id().unwrap_or(0);
        let size_before = self.size;
        self.size += 1;
        let content = match event {
            Event::Scalar(mut text, style, _, tag) => {
                if self.is_unended(&text, style, range.end) {
                    text.to_mut().pop();
                    self.tree.unended_scalar = Some(range.start);
                }
                self.size += text.len() / BYTES_PER_NODE;
                let value = scalar(&text, style, tag.as_deref()).ok_or_else(|| {
                    let message = format!("the number `{text}` has no form in JSON");
                    self.error(&span.start, message)
                })?;
                Content::Scalar(value)
            }
            Event::Alias(anchor) => Content::Alias(self.expand_alias(anchor, span)?),
            Event::SequenceStart(style, ..) => {
                let mut items = Vec::new();
                range.end = loop {
                    match self.next()? {
                        (Event::SequenceEnd, span) => break byte_range(&span).end,
                        (event, span) => items.push(self.node(event, &span)?),
                    }
                };
                Content::Sequence(style, items)
            }
            Event::MappingStart(style, ..) => {
                let mut entries = IndexMap::new();
                range.end = loop {
                    match self.next()? {
                        (Event::MappingEnd, span) => break byte_range(&span).end,
                        (event, span) => self.entry(event, &span, &mut entries)?,
                    }
                };
                Content::Mapping(style, entries)
            }
            event => {
                return Err(self.error(&span.start, format!("{event:?} instead of a node")));
            }
        };
        let node = Node {
            range,
            line: self.line(span),
            anchor,
            content,
            ..Node::default()
        };
        if anchor != 0 {
            // The value is kept beside the node, and again in the value of each anchor around it.
            let size = self.size - size_before;
            self.count_expanded(size, span)?;
            self.anchors.insert(anchor, (Rc::new(node.value()), size));
        }
        Ok(node)
    }

    /// Reads the value of a key into the entries of its mapping.
    fn entry(
        &mut self,
        event: Event<'a>,
        span: &Span,
        entries: &mut IndexMap<Key, MappingEntry>,
    ) -> Result<(), ManifestError> {
        let key_range = byte_range(span);
        let key = match &event {
            Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<" => {
                Key::Merge(key_range.start)
            }
            _ => {
                let node = self.node(event, span)?;
                Key::Name(key_name(node.value()).ok_or_else(|| {
                    self.error(&span.start, "a key that is null, a list or a mapping")
                })?)
            }
        };
        let (event, value_span) = self.next()?;
        let value = self.node(event, &value_span)?;
        if matches!(key, Key::Merge(_)) && !value.is_mergeable() {
            return Err(self.error(&span.start, "`<<` needs a mapping or a list of mappings"));
        }
        let kept = key_range.start..value.range.end;
        if let (Key::Name(name), Some(first)) = (&key, entries.get(&key)) {
            let hidden = first.key_range.start..first.value.range.end;
            let error = ManifestError {
                line: self.line(span),
                column: Some(span.start.col() + 1),
                message: format!("duplicate key `{name}`: remove one of the two"),
            };
            self.tree.duplicates.push((hidden, kept, error));
        }
        entries.insert(key, MappingEntry { key_range, value });
        Ok(())
    }

    /// Whether the parser has added a line break to a block scalar, as it does to one with which the text ends. For
    /// `kubectl` that has none: <https://yaml.org/spec/1.2.2/#8112-block-chomping-indicator>.
    fn is_unended(&self, scalar: &str, style: ScalarStyle, end: usize) -> bool {
        if !matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) || end < self.text.len() {
            return false;
        }
        // A last line of spaces is not one of the scalar's.
        let last = self.text.rsplit(['\n', '\r']).next().unwrap_or_default();
        !last.trim_matches(' ').is_empty() && scalar.ends_with('\n')
    }

    /// The value of an alias, whose nodes count.
    fn expand_alias(&mut self, anchor: usize, span: &Span) -> Result<Rc<Value>, ManifestError> {
        let Some((value, size)) = self.anchors.get(&anchor).cloned() else {
            return Err(self.error(&span.start, "an alias inside the node that it refers to"));
        };
        self.size += size;
        self.count_expanded(size, span)?;
        let line = self.line(span);
        let lines = &mut self.tree.first_alias_lines;
        lines.entry(anchor).or_insert(line);
        Ok(value)
    }

    fn count_expanded(&mut self, nodes: usize, span: &Span) -> Result<(), ManifestError> {
        self.expanded_nodes += nodes;
        let limit = MAX_EXPANDED_NODES.min(self.text.len() * MAX_EXPANDED_NODES_PER_BYTE);
        if self.expanded_nodes > limit {
            let message = format!("anchors and aliases expand to more than {limit} nodes");
            return Err(self.error(&span.start, message));
        }
        Ok(())
    }

    fn line(&self, span: &Span) -> usize {
        self.lines_before + span.start.line()
    }

    /// An error at a place of the text, or, if its line has `{{` or `{%`, that the text is a template.
    fn error(&self, at: &Marker, message: impl Into<String>) -> ManifestError {
        let text = self.text.lines().nth(at.line().saturating_sub(1));
        let message = if text.is_some_and(|text| text.contains("{{") || text.contains("{%")) {
            "a template, not YAML: render it first, as `helm template` does".to_owned()
        } else {
            message.into()
        };
        ManifestError {
            line: self.lines_before + at.line(),
            column: Some(at.col() + 1),
            message,
        }
    }
}

/// The parser's error without its context ("while parsing a block mapping, …").
fn strip_parser_context(info: &str) -> &str {
    match info.split_once(", ") {
        Some((context, error)) if context.starts_with("while ") => error,
        _ => info,
    }
}

/// The value of a scalar; `None` for a number that JSON does not have.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Option<Value> {
    let core = tag.map(|tag| tag.core_suffix().unwrap_or("str"));
    match core {
        Some("null" | "bool" | "int" | "float") => scalar::resolve(text),
        None if style == ScalarStyle::Plain => scalar::resolve(text),
        _ => Some(Value::String(text.to_owned())),
    }
}

/// A key in JSON's form.
fn key_name(key: Value) -> Option<String> {
    match key {
        Value::String(name) => Some(name),
        Value::Bool(_) | Value::Number(_) => Some(key.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The number of nodes of a value; long strings count as several.
pub fn count_nodes(value: &Value) -> usize {
    let entry = |(key, value): (&String, &Value)| key.len() / BYTES_PER_NODE + count_nodes(value);
    1 + match value {
        Value::Array(items) => items.iter().map(count_nodes).sum(),
        Value::Object(entries) => entries.iter().map(entry).sum(),
        Value::String(text) => text.len() / BYTES_PER_NODE,
        _ => 0,
    }
}

fn byte_range(span: &Span) -> Range<usize> {
    span.byte_range()
        .expect("a parser over a str gives every span its bytes")
}
