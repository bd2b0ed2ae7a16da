//! Reads a document's text into a tree.
//!
//! The parser is granit-parser, which serde-saphyr stands on: alive, without unsafe, fuzzed, and the
//! one that gives exact byte spans and the style of every node. It reads JSON as the YAML it is.
//! What an unquoted scalar *means* is ours (see [`super::scalar`]), since Rust's crates read YAML 1.2
//! and `kubectl` reads 1.1.

use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput, StructureStyle, Tag};
use serde_json::Value;

use super::scalar::{self, NonFiniteNumber};
use super::tree::{AnchoredValue, Anchors, Content, Key, MappingEntry, Node, Style, Tree};

/// A billion laughs end here: the most nodes that anchors may name, and aliases expand to, in one document,
/// all copies counted. So many take some 32 MiB.
const MAX_EXPANDED_NODES: usize = 250_000;

/// How many nodes a document has at most, keys included. So many take some 180 MiB, each as a tree and as a value.
pub const MAX_NODES: usize = 350_000;

/// So many bytes of a text count as a node.
const BYTES_PER_NODE: usize = 64;

/// Why a document cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct YamlError {
    /// The line of the stream.
    pub line: usize,
    /// The column in that line, from 1, in characters.
    pub column: usize,
    /// What is wrong there.
    pub message: String,
}

struct Reader<'a> {
    text: &'a str,
    /// The stream's lines before the text.
    lines_before: usize,
    events: Parser<'a, StrInput<'a>>,
    anchors: Anchors,
    expanded_nodes: usize,
    node_count: usize,
}

impl Tree {
    /// Reads a document that starts on `first_line` of its stream; one without content is null.
    ///
    /// # Errors
    /// For text that is not YAML, is more than one document, or has no JSON form.
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
                    let why = "a second document without a line `---` before it";
                    return Err(self.error(&span, why));
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
        let mut at = byte_range(span);
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
                at.end = byte_range(&end).end;
                Content::Sequence(style.into(), items)
            }
            Event::MappingStart(style, ..) => {
                let mut entries = Vec::new();
                let end = loop {
                    match self.next()? {
                        (Event::MappingEnd, end) => break end,
                        (event, span) => entries.push(self.entry(event, &span)?),
                    }
                };
                at.end = byte_range(&end).end;
                Content::Mapping(style.into(), entries)
            }
            event => {
                return Err(self.error(span, format!("{event:?} in the place of a node")));
            }
        };
        let node = Node {
            range: at,
            line: self.line(span),
            anchor,
            content,
            new_value: None,
        };
        if anchor != 0 {
            let value = node.value(&self.anchors);
            let nodes = count_nodes(&value);
            // It is kept beside the node, and so again for each anchor around it.
            self.count_expanded(nodes, span)?;
            let anchored = AnchoredValue {
                value,
                node_count: nodes,
            };
            self.anchors.values.insert(anchor, anchored);
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
            return Err(self.error(span, "`<<` wants a mapping or a list of mappings"));
        }
        Ok(MappingEntry {
            key,
            key_range: byte_range(span),
            line: self.line(span),
            value,
        })
    }

    /// Counts what an alias expands to against the bound.
    fn expand_alias(&mut self, anchor: usize, span: &Span) -> Result<(), YamlError> {
        let Some(anchored) = self.anchors.values.get(&anchor) else {
            return Err(self.error(span, "an alias inside the node that it stands for"));
        };
        let nodes = anchored.node_count;
        self.count_expanded(nodes, span)?;
        let line = self.line(span);
        self.anchors.first_alias_lines.entry(anchor).or_insert(line);
        Ok(())
    }

    fn count_expanded(&mut self, nodes: usize, span: &Span) -> Result<(), YamlError> {
        self.expanded_nodes += nodes;
        if self.expanded_nodes > MAX_EXPANDED_NODES {
            let why = format!("anchors and aliases expand to more than {MAX_EXPANDED_NODES} nodes");
            return Err(self.error(span, why));
        }
        Ok(())
    }

    fn line(&self, span: &Span) -> usize {
        self.lines_before + span.start.line()
    }

    fn error(&self, span: &Span, why: impl Into<String>) -> YamlError {
        self.error_at(span.start.line(), span.start.col(), why)
    }

    /// Blames a place in the text, and what it may be if it is not YAML.
    fn error_at(&self, line: usize, column: usize, why: impl Into<String>) -> YamlError {
        let written = self.text.lines().nth(line.saturating_sub(1));
        let why = match written.is_some_and(|line| line.contains("{{")) {
            true => "a template, not YAML: render it first, as by `helm template`".to_owned(),
            false => why.into(),
        };
        YamlError {
            line: self.lines_before + line,
            column: column + 1,
            message: why,
        }
    }
}

/// What is wrong, without what the parser was about.
fn strip_parser_context(info: &str) -> &str {
    match info.split_once(", ") {
        Some((about, reason)) if about.starts_with("while ") => reason,
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

/// A key as JSON writes it.
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

/// The nodes of a value, texts by their length.
#[must_use]
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
    /// A document that is, or becomes, larger than [`MOST_NODES`] allow, at this line of the stream.
    #[must_use]
    pub fn too_large(line: usize) -> Self {
        Self {
            line,
            column: 1,
            message: "too many nodes in one document, with those of its drainers, for 200 MiB of memory: \
                  give its objects as documents of their own"
                .to_owned(),
        }
    }
}

// === impl Style ===

impl From<StructureStyle> for Style {
    fn from(style: StructureStyle) -> Self {
        match style {
            StructureStyle::Block => Self::Block,
            StructureStyle::Flow => Self::Flow,
        }
    }
}
