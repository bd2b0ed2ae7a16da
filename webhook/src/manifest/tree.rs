//! The tree of a document: its nodes with their places in the text, and the values to write there.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

pub(super) use granit_parser::StructureStyle as Style;
use json_patch::jsonptr::Pointer;
use serde_json::{Map, Value};

/// A document's nodes.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) root: Node,
    pub(super) anchors: Anchors,
    /// How many nodes there are in the text.
    pub(super) node_count: usize,
}

/// A node in the text, or one to insert.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Its bytes in the text, without tag and anchor. The end of a block collection is not exact: it is the start of the
    /// next token, past comments.
    pub(super) range: Range<usize>,
    /// Its line in the stream, from 1; 0 for an inserted node.
    pub(super) line: usize,
    /// The parser's number of its anchor; 0 is none.
    pub(super) anchor: usize,
    /// What is in the text.
    pub(super) content: Content,
    /// The value to write instead, or to insert.
    pub(super) new_value: Option<Value>,
}

/// The content of a node.
#[derive(Debug, Clone)]
pub(super) enum Content {
    Scalar(Value),
    Alias(usize),
    Mapping(Style, Vec<MappingEntry>),
    Sequence(Style, Vec<Node>),
}

/// A key of a mapping and its value.
#[derive(Debug, Clone)]
pub(super) struct MappingEntry {
    pub(super) key: Key,
    /// The key's bytes.
    pub(super) key_range: Range<usize>,
    /// The key's line.
    pub(super) line: usize,
    pub(super) value: Node,
}

/// A key in JSON's form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    Name(String),
    /// `<<`, which merges the entries of another mapping.
    Merge,
}

/// The values of aliases.
#[derive(Debug, Clone, Default)]
pub(super) struct Anchors {
    /// The value of each anchor.
    pub(super) values: HashMap<usize, Value>,
    /// The line of the first alias of each anchor.
    pub(super) first_alias_lines: HashMap<usize, usize>,
}

// === impl Tree ===

impl Tree {
    /// The document's value.
    pub(super) fn value(&self) -> Value {
        self.root.value(&self.anchors)
    }

    /// The first entry, in the order of the text, whose key is in its mapping already.
    pub(super) fn duplicate_entry(&self) -> Option<&MappingEntry> {
        self.root.duplicate_entry()
    }

    /// The lines of the entries of the mapping at `path`, by their keys; empty if the text has no mapping there.
    pub(super) fn lines(&self, path: &Pointer) -> HashMap<&str, usize> {
        let (node, is_found) = self.nearest(path);
        match &node.content {
            Content::Mapping(_, entries) if is_found => {
                let written = entries.iter().filter(|entry| !entry.value.is_inserted());
                let named = written.filter_map(|entry| match &entry.key {
                    Key::Name(name) => Some((name.as_str(), entry.value.line)),
                    Key::Merge => None,
                });
                named.collect()
            }
            _ => HashMap::new(),
        }
    }

    /// The line of the node at `path`, or of its nearest ancestor in the text.
    pub(super) fn line(&self, path: &Pointer) -> usize {
        self.nearest(path).0.line
    }

    /// The node at `path` or its nearest ancestor in the text, and whether it is the node itself.
    fn nearest(&self, path: &Pointer) -> (&Node, bool) {
        let mut node = &self.root;
        for token in path.tokens() {
            let token = token.decoded();
            let child = match &node.content {
                Content::Mapping(_, entries) => entries
                    .iter()
                    .rev()
                    .find(|entry| entry.is_named(&token))
                    .map(|entry| &entry.value),
                Content::Sequence(_, items) => {
                    token.parse().ok().and_then(|index: usize| items.get(index))
                }
                _ => None,
            };
            match child {
                Some(child) if !child.is_inserted() => node = child,
                _ => return (node, false),
            }
        }
        (node, true)
    }
}

// === impl MappingEntry ===

impl MappingEntry {
    pub(super) fn is_named(&self, name: &str) -> bool {
        matches!(&self.key, Key::Name(key) if key == name)
    }
}

// === impl Node ===

impl Node {
    /// A node to insert.
    pub(super) fn inserted(value: Value) -> Self {
        Self {
            new_value: Some(value),
            ..Self::empty()
        }
    }

    fn duplicate_entry(&self) -> Option<&MappingEntry> {
        match &self.content {
            Content::Mapping(_, entries) => {
                let mut names = HashSet::new();
                entries.iter().find_map(|entry| match &entry.key {
                    Key::Name(name) if !names.insert(name) => Some(entry),
                    _ => entry.value.duplicate_entry(),
                })
            }
            Content::Sequence(_, items) => items.iter().find_map(Self::duplicate_entry),
            Content::Scalar(_) | Content::Alias(_) => None,
        }
    }

    /// Whether the node is not in the text.
    pub(super) fn is_inserted(&self) -> bool {
        self.line == 0
    }

    /// The node of an empty document.
    pub(super) fn empty() -> Self {
        Self {
            range: 0..0,
            line: 0,
            anchor: 0,
            content: Content::Scalar(Value::Null),
            new_value: None,
        }
    }

    /// The node's value in the text.
    pub(super) fn value(&self, anchors: &Anchors) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::Alias(anchor) => anchors.values.get(anchor).cloned().unwrap_or_default(),
            Content::Sequence(_, items) => items.iter().map(|item| item.value(anchors)).collect(),
            Content::Mapping(_, entries) => Value::Object(mapping_value(entries, anchors)),
        }
    }
}

/// The value of a mapping with these entries.
fn mapping_value(entries: &[MappingEntry], anchors: &Anchors) -> Map<String, Value> {
    let mut object = Map::new();
    for entry in entries {
        let value = entry.value.value(anchors);
        match &entry.key {
            Key::Name(name) => {
                object.insert(name.clone(), value);
            }
            Key::Merge => merge(&mut object, value),
        }
    }
    object
}

/// Merges as go-yaml v2 does: in the order of the text, so that later keys win; of a list of mappings the first wins.
fn merge(object: &mut Map<String, Value>, merged: Value) {
    match merged {
        Value::Object(entries) => object.extend(entries),
        Value::Array(mappings) => {
            for mapping in mappings.into_iter().rev() {
                merge(object, mapping);
            }
        }
        // The reader refuses all others.
        _ => {}
    }
}
