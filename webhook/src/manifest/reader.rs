//! Reads a document's text into a tree.
//!
//! The parser is granit-parser, which serde-saphyr stands on: alive, without unsafe, fuzzed, and the
//! one that gives exact byte spans and the style of every node. It reads JSON as the YAML it is.
//! What an unquoted scalar *means* is ours (see [`super::scalar`]), since Rust's crates read YAML 1.2
//! and `kubectl` reads 1.1.

use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput, StructureStyle, Tag};
use serde_json::Value;

use super::scalar::{self, NotJson};
use super::tree::{Anchored, Anchors, Content, Entry, Key, Node, Style, Tree};

/// A billion laughs end here: the most nodes that anchors may name, and aliases expand to, in one document,
/// all copies counted. So many take some 32 MiB.
const MAX_EXPANDED: usize = 250_000;

/// How many nodes a document has at most, keys included. So many take some 180 MiB, each as a tree and as a value.
pub const MOST_NODES: usize = 350_000;

/// So many bytes of a text count as a node.
const NODE: usize = 64;

/// Why a document cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unreadable {
    /// The line of the stream.
    pub line: usize,
    /// The column in that line, from 1, in characters.
    pub column: usize,
    /// What is wrong there.
    pub why: String,
}

struct Reader<'a> {
    text: &'a str,
    /// The stream's lines before the text.
    lines_before: usize,
    events: Parser<'a, StrInput<'a>>,
    anchors: Anchors,
    expanded: usize,
    nodes: usize,
}

impl Tree {
    /// Reads a document that starts on `first_line` of its stream; one without content is null.
    ///
    /// # Errors
    /// For text that is not YAML, is more than one document, or has no JSON form.
    pub(super) fn read(text: &str, first_line: usize) -> Result<Self, Unreadable> {
        let options = granit_parser::options! { emit_comments: false };
        let mut reader = Reader {
            text,
            lines_before: first_line - 1,
            events: Parser::new_from_str_with_options(text, options),
            anchors: Anchors::default(),
            expanded: 0,
            nodes: 0,
        };
        let root = reader.document()?;
        Ok(Self {
            root,
            anchors: reader.anchors,
            nodes: reader.nodes,
        })
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Node, Unreadable> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(..) if root.is_some() => {
                    let why = "a second document without a line `---` before it";
                    return Err(self.unreadable(&span, why));
                }
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                event => root = Some(self.node(event, &span)?),
            }
        }
        Ok(root.unwrap_or_else(Node::nothing))
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Unreadable> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                let marker = error.marker();
                let info = error.info();
                Err(self.blamed(marker.line(), marker.col(), reason(&info)))
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn node(&mut self, event: Event<'a>, span: &Span) -> Result<Node, Unreadable> {
        self.nodes += 1;
        if self.nodes > MOST_NODES {
            return Err(Unreadable::too_large(self.line(span)));
        }
        let mut at = bytes(span);
        let anchor = event.anchor_id().unwrap_or(0);
        let content = match event {
            Event::Scalar(text, style, _, tag) => {
                Content::Scalar(scalar(&text, style, tag.as_deref()).map_err(|NotJson| {
                    self.unreadable(span, format!("the number `{text}` has no form in JSON"))
                })?)
            }
            Event::Alias(anchor) => {
                self.expand(anchor, span)?;
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
                at.end = bytes(&end).end;
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
                at.end = bytes(&end).end;
                Content::Mapping(style.into(), entries)
            }
            event => {
                return Err(self.unreadable(span, format!("{event:?} in the place of a node")));
            }
        };
        let node = Node {
            at,
            line: self.line(span),
            anchor,
            content,
            new: None,
        };
        if anchor != 0 {
            let value = node.value(&self.anchors);
            let nodes = count(&value);
            // It is kept beside the node, and so again for each anchor around it.
            self.spend(nodes, span)?;
            let anchored = Anchored { value, nodes };
            self.anchors.values.insert(anchor, anchored);
        }
        Ok(node)
    }

    fn entry(&mut self, event: Event<'a>, span: &Span) -> Result<Entry, Unreadable> {
        let key = match &event {
            Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<" => Key::Merge,
            _ => {
                let node = self.node(event, span)?;
                Key::Name(name(node.value(&self.anchors)).ok_or_else(|| {
                    self.unreadable(span, "a key that is null, a list or a mapping")
                })?)
            }
        };
        let (event, value_span) = self.next()?;
        let value = self.node(event, &value_span)?;
        if key == Key::Merge && !is_mergeable(&value.value(&self.anchors)) {
            return Err(self.unreadable(span, "`<<` wants a mapping or a list of mappings"));
        }
        Ok(Entry {
            key,
            at: bytes(span),
            line: self.line(span),
            value,
        })
    }

    /// Counts what an alias expands to against the bound.
    fn expand(&mut self, anchor: usize, span: &Span) -> Result<(), Unreadable> {
        let Some(anchored) = self.anchors.values.get(&anchor) else {
            return Err(self.unreadable(span, "an alias inside the node that it stands for"));
        };
        let nodes = anchored.nodes;
        self.spend(nodes, span)?;
        let line = self.line(span);
        self.anchors.aliases.entry(anchor).or_insert(line);
        Ok(())
    }

    fn spend(&mut self, nodes: usize, span: &Span) -> Result<(), Unreadable> {
        self.expanded += nodes;
        if self.expanded > MAX_EXPANDED {
            let why = format!("anchors and aliases expand to more than {MAX_EXPANDED} nodes");
            return Err(self.unreadable(span, why));
        }
        Ok(())
    }

    fn line(&self, span: &Span) -> usize {
        self.lines_before + span.start.line()
    }

    fn unreadable(&self, span: &Span, why: impl Into<String>) -> Unreadable {
        self.blamed(span.start.line(), span.start.col(), why)
    }

    /// Blames a place in the text, and what it may be if it is not YAML.
    fn blamed(&self, line: usize, column: usize, why: impl Into<String>) -> Unreadable {
        let written = self.text.lines().nth(line.saturating_sub(1));
        let why = match written.is_some_and(|line| line.contains("{{")) {
            true => "a template, not YAML: render it first, as by `helm template`".to_owned(),
            false => why.into(),
        };
        Unreadable {
            line: self.lines_before + line,
            column: column + 1,
            why,
        }
    }
}

/// What is wrong, without what the parser was about.
fn reason(info: &str) -> &str {
    match info.split_once(", ") {
        Some((about, reason)) if about.starts_with("while ") => reason,
        _ => info,
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, NotJson> {
    let core = tag.map(|tag| tag.core_suffix().unwrap_or("str"));
    match core {
        Some("null" | "bool" | "int" | "float") => scalar::resolve(text),
        None if style == ScalarStyle::Plain => scalar::resolve(text),
        _ => Ok(Value::String(text.to_owned())),
    }
}

/// A key as JSON writes it.
fn name(key: Value) -> Option<String> {
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
pub fn count(value: &Value) -> usize {
    let entry = |(key, value): (&String, &Value)| key.len() / NODE + count(value);
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(entries) => entries.iter().map(entry).sum(),
        Value::String(text) => text.len() / NODE,
        _ => 0,
    }
}

fn bytes(span: &Span) -> Range<usize> {
    span.byte_range()
        .expect("a parser over a str gives every span its bytes")
}

// === impl Unreadable ===

impl Unreadable {
    /// A document that is, or becomes, larger than [`MOST_NODES`] allow, at this line of the stream.
    #[must_use]
    pub fn too_large(line: usize) -> Self {
        Self {
            line,
            column: 1,
            why: "too many nodes in one document, with those of its drainers, for 200 MiB of memory: \
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
