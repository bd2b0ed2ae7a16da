//! Parses a document's text into a tree.
//!
//! The parser is granit-parser, which is beneath serde-saphyr: maintained, fuzzed, without unsafe code, and with exact
//! byte spans and the style of every node. It reads JSON as YAML. The meaning of unquoted scalars is in
//! [`super::scalar`], since Rust's crates read YAML 1.2 and `kubectl` reads YAML 1.1.

use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::Value;

use super::scalar::{self, NonFiniteNumber};
use super::tree::{Anchors, Content, Key, MappingEntry, Node, Tree};

/// Maximum number of nodes that anchors name and aliases expand to in one document, all copies counted: about 32 MiB.
/// Bounds a "billion laughs" attack.
const MAX_EXPANDED_NODES: usize = 250_000;

/// Maximum number of nodes in a document, keys included: about 180 MiB as tree and value.
pub const MAX_NODES: usize = 350_000;

/// Bytes of a string that count as one node.
const BYTES_PER_NODE: usize = 64;

/// Why a document cannot be read, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct YamlError {
    /// The line of the stream, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The error.
    pub message: String,
}

struct Reader<'a> {
    text: &'a str,
    /// The lines of the stream before the text.
    lines_before: usize,
    events: Parser<'a, StrInput<'a>>,
    anchors: Anchors,
    expanded_nodes: usize,
    node_count: usize,
}

impl Tree {
    /// Parses a document that starts on `first_line` of its stream; an empty one is null.
    ///
    /// # Errors
    /// For text that is not YAML, more than one document, too large, or without a JSON form.
    pub(super) fn read(text: &str, first_line: usize) -> Result<Self, YamlError> {
        let options = granit_parser::options! { emit_comments: false };
        let mut reader = Reader {
            text,
            lines_before: first_line - 1,
            events: Parser::new_from_str_with_options(text, options),
            anchors: Anchors::default(),
            expanded_nodes: 0,
            node_count: 0,
        };
        let root = reader.document()?;
        Ok(Self {
            root,
            anchors: reader.anchors,
            node_count: reader.node_count,
        })
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Node, YamlError> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(..) if root.is_some() => {
                    let message = "a second document without a line `---` before it";
                    return Err(self.error(&span, message));
                }
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                event => root = Some(self.node(event, &span)?),
            }
        }
        Ok(root.unwrap_or_else(Node::empty))
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), YamlError> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                let marker = error.marker();
                let info = error.info();
                Err(self.error_at(marker.line(), marker.col(), strip_parser_context(&info)))
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn node(&mut self, event: Event<'a>, span: &Span) -> Result<Node, YamlError> {
        self.node_count += 1;
        if self.node_count > MAX_NODES {
            return Err(YamlError::too_large(self.line(span)));
        }
        let mut range = byte_range(span);
        let anchor = event.anchor_id().unwrap_or(0);
        let content = match event {
            Event::Scalar(text, style, _, tag) => Content::Scalar(
                scalar(&text, style, tag.as_deref()).map_err(|NonFiniteNumber| {
                    self.error(span, format!("the number `{text}` has no form in JSON"))
                })?,
            ),
            Event::Alias(anchor) => {
                self.expand_alias(anchor, span)?;
                Content::Alias(anchor)
            }
            Event::SequenceStart(style, ..) => {
                let mut items = Vec::new();
                let end = loop {
                    match self.next()? {
                        (Event::SequenceEnd, end) => break end,
                        (event, span) => items.push(self.node(event, &span)?),
                    }
                };
                range.end = byte_range(&end).end;
                Content::Sequence(style, items)
            }
            Event::MappingStart(style, ..) => {
                let mut entries = Vec::new();
                let end = loop {
                    match self.next()? {
                        (Event::MappingEnd, end) => break end,
                        (event, span) => entries.push(self.entry(event, &span)?),
                    }
                };
                range.end = byte_range(&end).end;
                Content::Mapping(style, entries)
            }
            event => {
                return Err(self.error(span, format!("{event:?} instead of a node")));
            }
        };
        let node = Node {
            range,
            line: self.line(span),
            anchor,
            content,
            new_value: None,
        };
        if anchor != 0 {
            let value = node.value(&self.anchors);
            // The value is kept beside the node, and again in the value of each anchor around it.
            self.count_expanded(count_nodes(&value), span)?;
            self.anchors.values.insert(anchor, value);
        }
        Ok(node)
    }

    fn entry(&mut self, event: Event<'a>, span: &Span) -> Result<MappingEntry, YamlError> {
        let key =
            match &event {
                Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<" => Key::Merge,
                _ => {
                    let node = self.node(event, span)?;
                    Key::Name(key_name(node.value(&self.anchors)).ok_or_else(|| {
                        self.error(span, "a key that is null, a list or a mapping")
                    })?)
                }
            };
        let (event, value_span) = self.next()?;
        let value = self.node(event, &value_span)?;
        if key == Key::Merge && !is_mergeable(&value.value(&self.anchors)) {
            return Err(self.error(span, "`<<` needs a mapping or a list of mappings"));
        }
        Ok(MappingEntry {
            key,
            key_range: byte_range(span),
            line: self.line(span),
            value,
        })
    }

    /// Counts the nodes that an alias expands to.
    fn expand_alias(&mut self, anchor: usize, span: &Span) -> Result<(), YamlError> {
        let Some(value) = self.anchors.values.get(&anchor) else {
            return Err(self.error(span, "an alias inside the node that it refers to"));
        };
        self.count_expanded(count_nodes(value), span)?;
        let line = self.line(span);
        self.anchors.first_alias_lines.entry(anchor).or_insert(line);
        Ok(())
    }

    fn count_expanded(&mut self, nodes: usize, span: &Span) -> Result<(), YamlError> {
        self.expanded_nodes += nodes;
        if self.expanded_nodes > MAX_EXPANDED_NODES {
            let message =
                format!("anchors and aliases expand to more than {MAX_EXPANDED_NODES} nodes");
            return Err(self.error(span, message));
        }
        Ok(())
    }

    fn line(&self, span: &Span) -> usize {
        self.lines_before + span.start.line()
    }

    fn error(&self, span: &Span, message: impl Into<String>) -> YamlError {
        self.error_at(span.start.line(), span.start.col(), message)
    }

    /// An error at a place of the text, or, if its line has `{{`, that the text is a template.
    fn error_at(&self, line: usize, column: usize, message: impl Into<String>) -> YamlError {
        let text = self.text.lines().nth(line.saturating_sub(1));
        let message = match text.is_some_and(|text| text.contains("{{")) {
            true => "a template, not YAML: render it first, as by `helm template`".to_owned(),
            false => message.into(),
        };
        YamlError {
            line: self.lines_before + line,
            column: column + 1,
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

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, NonFiniteNumber> {
    let core = tag.map(|tag| tag.core_suffix().unwrap_or("str"));
    match core {
        Some("null" | "bool" | "int" | "float") => scalar::resolve(text),
        None if style == ScalarStyle::Plain => scalar::resolve(text),
        _ => Ok(Value::String(text.to_owned())),
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

fn is_mergeable(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::Array(mappings) => mappings.iter().all(Value::is_object),
        _ => false,
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

// === impl YamlError ===

impl YamlError {
    /// The error for a document that has, or would get, more than [`MAX_NODES`] nodes, at a line of the stream.
    pub fn too_large(line: usize) -> Self {
        Self {
            line,
            column: 1,
            message:
                "too many nodes in one document, with those to be added, for 200 MiB of memory: \
                      split it into several documents"
                    .to_owned(),
        }
    }
}
