//! Adds the values of a patch to a document's tree.

use json_patch::jsonptr::Pointer;
use serde_json::Value;

use super::tree::{Anchors, Content, Key, MappingEntry, Node, Tree};

/// Why a change cannot be written into a document's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// Changing the anchored node would change its aliases as well.
    #[error(
        "an alias on line {alias} refers to what changes here: write its value out instead of the alias"
    )]
    SharedNode {
        /// The line of the anchor.
        line: usize,
        /// The line of its first alias.
        alias: usize,
    },
    /// The text at this place has a layout into which the change cannot be written.
    #[error("cannot write `{path}` into this layout: use plain block style here")]
    UnsupportedLayout {
        /// The line of the place.
        line: usize,
        /// A JSON pointer.
        path: String,
    },
}

// === impl EditError ===

impl EditError {
    /// The line of the stream whose text prevents the change.
    pub fn line(&self) -> usize {
        match self {
            Self::SharedNode { line, .. } | Self::UnsupportedLayout { line, .. } => *line,
        }
    }
}

impl Tree {
    /// Adds what an `add` at `path` added to the document's value, which is `value` since.
    ///
    /// A path that the tree does not have is left out: reading the new text again shows that.
    pub(super) fn add(&mut self, path: &Pointer, value: &Value) -> Result<(), EditError> {
        add(&mut self.root, path, value, &self.anchors)
    }

    /// The error for a change at `path` that the text cannot take.
    pub(super) fn layout_error(&self, path: &Pointer) -> EditError {
        EditError::UnsupportedLayout {
            line: self.line(path),
            path: path.to_string(),
        }
    }
}

/// Adds the node at `path` below `node`, whose value after the addition is `value`.
fn add(node: &mut Node, path: &Pointer, value: &Value, anchors: &Anchors) -> Result<(), EditError> {
    if let Some(&alias) = anchors.first_alias_lines.get(&node.anchor) {
        let line = node.line;
        return Err(EditError::SharedNode { line, alias });
    }
    let Some((token, rest)) = path.split_front().filter(|_| !node.is_written_whole()) else {
        node.new_value = Some(value.clone());
        return Ok(());
    };
    let token = token.decoded();
    match &mut node.content {
        Content::Mapping(_, entries) => {
            let value = &value[&*token];
            let mut entries_named = entries.iter_mut().filter(|entry| entry.is_named(&token));
            match entries_named.next() {
                Some(entry) => return add(&mut entry.value, rest, value, anchors),
                // A merged key is written out here, where it wins over the merged value.
                None => entries.push(MappingEntry {
                    key: Key::Name(token.into_owned()),
                    key_range: 0..0,
                    line: 0,
                    value: Node::inserted(value.clone()),
                }),
            }
        }
        Content::Sequence(_, items) => {
            // `-` is the end.
            let index = token.parse().unwrap_or(items.len());
            let value = &value[index];
            if rest.is_root() && index <= items.len() {
                items.insert(index, Node::inserted(value.clone()));
            } else if let Some(item) = items.get_mut(index) {
                return add(item, rest, value, anchors);
            }
        }
        Content::Scalar(_) | Content::Alias(_) => {}
    }
    Ok(())
}

// === impl Node ===

impl Node {
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
}
