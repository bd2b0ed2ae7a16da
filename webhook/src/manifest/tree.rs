//! A document as a tree that knows where in the text each node stands.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use json_patch::jsonptr::Pointer;
use serde_json::{Map, Value};

/// A document's nodes and their places in its text.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) root: Node,
    pub(super) anchors: Anchors,
    /// How many nodes there are in the text.
    pub(super) node_count: usize,
}

/// A node and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Its bytes in the text, without tag and anchor. A block collection's end is not known: the
    /// parser sees it at the next token, past comments.
    pub(super) range: Range<usize>,
    /// Its line in the stream, from 1; 0 for an inserted node.
    pub(super) line: usize,
    /// The anchor that names it; 0 is none.
    pub(super) anchor: usize,
    /// What stands there in the text.
    pub(super) content: Content,
    /// What is to stand there instead; or, of an inserted node, for the first time.
    pub(super) new_value: Option<Value>,
}

/// What a node is.
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

/// A key, as JSON has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    Name(String),
    /// `<<`: the entries of another mapping stand here.
    Merge,
}

/// How a collection is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Lines and indentation.
    Block,
    /// Brackets; JSON.
    Flow,
}

/// What aliases stand for.
#[derive(Debug, Clone, Default)]
pub(super) struct Anchors {
    pub(super) values: HashMap<usize, AnchoredValue>,
    /// The line of the first alias of each anchor.
    pub(super) first_alias_lines: HashMap<usize, usize>,
}

/// What an anchor names.
#[derive(Debug, Clone)]
pub(super) struct AnchoredValue {
    pub(super) value: Value,
    /// How many nodes the value has.
    pub(super) node_count: usize,
}

// === impl Tree ===

impl Tree {
    /// The document as the API server gets it.
    pub(super) fn value(&self) -> Value {
        self.root.value(&self.anchors)
    }

    /// The first entry, in the order of the text, whose key its mapping has already.
    pub(super) fn duplicate_entry(&self) -> Option<&MappingEntry> {
        self.root.duplicate_entry()
    }

    /// The lines of the entries of the mapping at `path`, by their keys; none where no mapping is in the text.
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

    /// The line of the node at `path`, or of the nearest above it that is in the text.
    pub(super) fn line(&self, path: &Pointer) -> usize {
        self.nearest(path).0.line
    }

    /// The node at `path`, or the nearest above it that is in the text; and whether it is the former.
    fn nearest(&self, path: &Pointer) -> (&Node, bool) {
        let mut node = &self.root;
        for token in path.tokens() {
            let token = token.decoded();
            let child = match &node.content {
                Content::Mapping(_, entries) => entries
                    .iter()
                    .rev()
                    .find(|entry| matches!(&entry.key, Key::Name(name) if *name == token))
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

// === impl Node ===

impl Node {
    /// A node that is not in the text yet.
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

    /// True if nothing of the node is in the text.
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

    /// The node as the API server gets it, with what is new.
    pub(super) fn value(&self, anchors: &Anchors) -> Value {
        if let Some(new) = &self.new_value {
            return new.clone();
        }
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::Alias(anchor) => anchors.value(*anchor).cloned().unwrap_or_default(),
            Content::Sequence(_, items) => items.iter().map(|item| item.value(anchors)).collect(),
            Content::Mapping(_, entries) => Value::Object(mapping_value(entries, anchors)),
        }
    }
}

/// The mapping of these entries, as the API server gets it.
pub(super) fn mapping_value(entries: &[MappingEntry], anchors: &Anchors) -> Map<String, Value> {
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

/// Merges as go-yaml v2 does: in the order of the text, so that what stands later wins; of several
/// mappings the first wins.
fn merge(object: &mut Map<String, Value>, merged: Value) {
    match merged {
        Value::Object(entries) => object.extend(entries),
        Value::Array(mappings) => {
            for mapping in mappings.into_iter().rev() {
                merge(object, mapping);
            }
        }
        // The reader has ruled the others out.
        _ => {}
    }
}

// === impl Anchors ===

impl Anchors {
    pub(super) fn value(&self, anchor: usize) -> Option<&Value> {
        self.values.get(&anchor).map(|anchored| &anchored.value)
    }
}
