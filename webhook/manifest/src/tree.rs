//! The tree of a document: its nodes with their places in the text, and what the operations of a patch change in them.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

pub(super) use granit_parser::StructureStyle as Style;
use indexmap::IndexMap;
use indexmap::map::Entry;
use json_patch::jsonptr::Pointer;
use serde_json::{Map, Value};

use super::error::ManifestError;

/// A document's nodes.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    pub(super) root: Node,
    /// The line of the first alias of each anchor.
    pub(super) first_alias_lines: HashMap<usize, usize>,
    /// The duplicate keys: the bytes of the entry that does not count and of the one that does, and an error.
    pub(super) duplicates: Vec<(Range<usize>, Range<usize>, ManifestError)>,
    /// Where the lines of a block scalar start with which the text ends, if the last one has no line break.
    pub(super) unended_scalar: Option<usize>,
    /// How many nodes there are in the text.
    pub(super) node_count: usize,
}

/// A node in the text, or one to insert. The default is that of an empty document.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    /// Its bytes in the text, without tag and anchor. The end of a block collection is not exact: it is the start of
    /// the next token, past comments.
    pub(super) range: Range<usize>,
    /// Its line in the stream, from 1; 0 for an inserted node.
    pub(super) line: usize,
    /// The parser's number of its anchor; 0 is none.
    pub(super) anchor: usize,
    /// What is in the text.
    pub(super) content: Content,
    /// The value to write instead, or to insert.
    pub(super) new_value: Option<Value>,
    /// Whether it is an item, or the value of a key, to remove.
    pub(super) is_removed: bool,
}

/// The content of a node.
#[derive(Debug, Clone)]
pub(super) enum Content {
    Scalar(Value),
    /// An alias, by the value of its anchor.
    Alias(Rc<Value>),
    /// Of a duplicate key, the last entry.
    Mapping(Style, IndexMap<Key, MappingEntry>),
    Sequence(Style, Vec<Node>),
}

impl Default for Content {
    fn default() -> Self {
        Self::Scalar(Value::Null)
    }
}

/// The value of a key.
#[derive(Debug, Clone)]
pub(super) struct MappingEntry {
    /// The key's bytes.
    pub(super) key_range: Range<usize>,
    pub(super) value: Node,
}

/// A key in JSON's form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Name(String),
    /// `<<`, which merges the entries of another mapping, by its place in the text: a mapping may have several.
    Merge(usize),
}

/// What a tree can do with the value at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edit {
    /// Add it, or replace it in a mapping.
    Add,
    /// Remove it from a sequence, or with its key from a mapping.
    Remove,
}

// === impl Tree ===

impl Tree {
    /// The node at `path` or its nearest ancestor in the text. Nothing may be inserted on the way yet.
    pub(super) fn nearest(&self, path: &Pointer) -> &Node {
        let mut node = &self.root;
        for token in path.tokens() {
            let token = token.decoded();
            let child = match &node.content {
                Content::Mapping(_, entries) => {
                    let entry = entries.get(&Key::Name(token.into_owned()));
                    entry.map(|entry| &entry.value)
                }
                Content::Sequence(_, items) => {
                    token.parse().ok().and_then(|index: usize| items.get(index))
                }
                Content::Scalar(_) | Content::Alias(_) => None,
            };
            let Some(child) = child else {
                return node;
            };
            node = child;
        }
        node
    }
}

// === impl Node ===

impl Node {
    /// A node to insert.
    pub(super) fn inserted(value: Value) -> Self {
        Self {
            new_value: Some(value),
            ..Self::default()
        }
    }

    /// Makes the edit at `path` below this node, whose value is `value` since. Changing an anchored node would change
    /// its aliases as well, so nodes with an alias in `first_alias_lines` are refused.
    ///
    /// A path that the tree does not have, or not for this edit, is left out: reading the new text again shows that.
    pub(super) fn apply(
        &mut self,
        edit: Edit,
        path: &Pointer,
        value: &Value,
        first_alias_lines: &HashMap<usize, usize>,
    ) -> Result<(), ManifestError> {
        if let Some(alias) = first_alias_lines.get(&self.anchor) {
            return Err(ManifestError {
                line: self.line,
                column: None,
                message: format!(
                    "an alias on line {alias} refers to what changes here: write its value out instead of the alias"
                ),
            });
        }
        let Some((token, rest)) = path.split_front().filter(|_| !self.is_written_whole()) else {
            self.new_value = Some(value.clone());
            return Ok(());
        };
        let token = token.decoded();
        match &mut self.content {
            Content::Mapping(_, entries) => {
                let value = &value[&*token];
                match entries.entry(Key::Name(token.into_owned())) {
                    Entry::Occupied(mut entry) => {
                        let node = &mut entry.get_mut().value;
                        if edit == Edit::Remove && rest.is_root() {
                            node.is_removed = true;
                            return Ok(());
                        }
                        return node.apply(edit, rest, value, first_alias_lines);
                    }
                    // A merged key is written out here, where it wins over the merged value.
                    Entry::Vacant(entry) => drop(entry.insert(MappingEntry {
                        key_range: 0..0,
                        value: Self::inserted(value.clone()),
                    })),
                }
            }
            Content::Sequence(_, items) => {
                // Removed items are still in the list, since they are in the text.
                let mut kept = (0..items.len()).filter(|at| !items[*at].is_removed);
                // `-` is the end.
                let (index, at) = match token.parse() {
                    Ok(index) => (index, kept.nth(index)),
                    Err(_) => (kept.count(), None),
                };
                match at.and_then(|at| items.get_mut(at)) {
                    Some(item) if !rest.is_root() => {
                        return item.apply(edit, rest, &value[index], first_alias_lines);
                    }
                    Some(item) if edit == Edit::Remove => item.is_removed = true,
                    _ if edit == Edit::Add && rest.is_root() => {
                        let item = Self::inserted(value[index].clone());
                        items.insert(at.unwrap_or(items.len()), item);
                    }
                    _ => {}
                }
            }
            Content::Scalar(_) | Content::Alias(_) => {}
        }
        Ok(())
    }

    /// Whether a change below the node replaces the node's text as a whole.
    fn is_written_whole(&self) -> bool {
        let is_empty_or_alias = match &self.content {
            Content::Alias(_) => true,
            Content::Mapping(_, entries) => entries.is_empty(),
            Content::Sequence(_, items) => items.is_empty(),
            Content::Scalar(_) => false,
        };
        self.new_value.is_some() || is_empty_or_alias
    }

    /// Whether the node is not in the text.
    pub(super) fn is_inserted(&self) -> bool {
        self.line == 0
    }

    /// The node's value in the text.
    pub(super) fn value(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::Alias(value) => Value::clone(value),
            Content::Sequence(_, items) => items.iter().map(Self::value).collect(),
            // As go-yaml v2 does, in the order of the text, so that later keys win.
            Content::Mapping(_, entries) => {
                let mut object = Map::new();
                for (key, entry) in entries {
                    let value = entry.value.value();
                    match key {
                        Key::Name(name) => drop(object.insert(name.clone(), value)),
                        Key::Merge(_) => merge(value, &mut object),
                    }
                }
                Value::Object(object)
            }
        }
    }

    /// Whether `<<` can have it as its value: a mapping, or a list of mappings.
    pub(super) fn is_mergeable(&self) -> bool {
        let is_mapping = |item: &Self| match &item.content {
            Content::Mapping(..) => true,
            Content::Alias(value) => value.is_object(),
            _ => false,
        };
        match &self.content {
            Content::Sequence(_, items) => items.iter().all(is_mapping),
            Content::Alias(value) => match &**value {
                Value::Array(items) => items.iter().all(Value::is_object),
                value => value.is_object(),
            },
            _ => is_mapping(self),
        }
    }
}

/// Merges a mapping, or a list of mappings, of which the first wins.
fn merge(value: Value, object: &mut Map<String, Value>) {
    match value {
        Value::Object(entries) => object.extend(entries),
        Value::Array(mappings) => {
            let mappings = mappings.into_iter().rev();
            mappings.for_each(|mapping| merge(mapping, object));
        }
        // The reader refuses it.
        _ => {}
    }
}
