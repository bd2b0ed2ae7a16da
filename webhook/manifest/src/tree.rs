//! The tree of a document: its nodes with their places in the text, and the values to write there.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::rc::Rc;

pub(super) use granit_parser::StructureStyle as Style;
use json_patch::jsonptr::Pointer;
use serde_json::{Map, Value};

/// A document's nodes.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) root: Node,
    /// The line of the first alias of each anchor.
    pub(super) first_alias_lines: HashMap<usize, usize>,
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
    /// Whether it is an item to remove.
    pub(super) is_removed: bool,
}

/// The content of a node.
#[derive(Debug, Clone)]
pub(super) enum Content {
    Scalar(Value),
    /// An alias, by the value of its anchor.
    Alias(Rc<Value>),
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

// === impl Tree ===

impl Tree {
    /// The node at `path` or its nearest ancestor in the text, and whether it is the node itself. Nothing may be inserted
    /// yet.
    pub(super) fn nearest(&self, path: &Pointer) -> (&Node, bool) {
        let mut node = &self.root;
        for token in path.tokens() {
            let token = token.decoded();
            let child = match &node.content {
                Content::Mapping(_, entries) => {
                    let entry = entries.iter().rfind(|entry| entry.is_named(&token));
                    entry.map(|entry| &entry.value)
                }
                Content::Sequence(_, items) => {
                    token.parse().ok().and_then(|index: usize| items.get(index))
                }
                Content::Scalar(_) | Content::Alias(_) => None,
            };
            let Some(child) = child else {
                return (node, false);
            };
            node = child;
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

    /// The first entry, in the order of the text, whose key is in its mapping already, and that key.
    pub(super) fn duplicate_key(&self) -> Option<(&str, &MappingEntry)> {
        match &self.content {
            Content::Mapping(_, entries) => {
                let mut names = HashSet::new();
                entries.iter().find_map(|entry| match &entry.key {
                    Key::Name(name) if !names.insert(name) => Some((&**name, entry)),
                    _ => entry.value.duplicate_key(),
                })
            }
            Content::Sequence(_, items) => items.iter().find_map(Self::duplicate_key),
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
            is_removed: false,
        }
    }

    /// The node's value in the text.
    pub(super) fn value(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::Alias(value) => Value::clone(value),
            Content::Sequence(_, items) => items.iter().map(Self::value).collect(),
            Content::Mapping(_, entries) => Value::Object(mapping_value(entries)),
        }
    }
}

/// The value of a mapping with these entries.
fn mapping_value(entries: &[MappingEntry]) -> Map<String, Value> {
    let mut object = Map::new();
    for entry in entries {
        let value = entry.value.value();
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
