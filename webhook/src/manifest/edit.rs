//! Brings the operations of a patch into a tree: what is new, and where it goes.

use json_patch::jsonptr::Pointer;
use json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use serde_json::Value;

use super::tree::{self, Anchors, Content, Key, MappingEntry, Node, Tree};

/// Why a change cannot be written into a document's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// A change of one use of a shared node would change the others.
    #[error("an alias on line {alias} stands for what is to be changed here: write it out there")]
    SharedNode {
        /// Where the anchor is.
        line: usize,
        /// Where its first alias is.
        alias: usize,
    },
    /// The text holds the place in a form into which the change cannot be written.
    #[error("`{path}` cannot be written into this text: use plain block style here")]
    UnsupportedLayout {
        /// The line of the place.
        line: usize,
        /// A JSON pointer.
        path: String,
    },
}

// === impl EditError ===

impl EditError {
    /// The line of the stream where the text stands that is in the way.
    #[must_use]
    pub fn line(&self) -> usize {
        match self {
            Self::SharedNode { line, .. } | Self::UnsupportedLayout { line, .. } => *line,
        }
    }
}

/// A value on its way to its place.
struct Change<'a> {
    value: &'a Value,
    /// Whether an index of a list makes room for the value, rather than naming what it replaces.
    inserts: bool,
    anchors: &'a Anchors,
}

/// Why a [`Change`] ended on its way.
enum ChangeError {
    Edit(EditError),
    /// The rest of the path does not exist here.
    PathNotFound,
}

impl Tree {
    /// Applies the operations in their order.
    pub(super) fn apply(&mut self, operations: &[PatchOperation]) -> Result<(), EditError> {
        for operation in operations {
            let (path, value, inserts) = match operation {
                PatchOperation::Add(AddOperation { path, value }) => (path, value, true),
                PatchOperation::Replace(ReplaceOperation { path, value }) => (path, value, false),
                _ => return Err(self.layout_error(operation.path())),
            };
            let change = Change {
                value,
                inserts,
                anchors: &self.anchors,
            };
            match change.apply_to_node(&mut self.root, path) {
                Ok(()) => {}
                Err(ChangeError::Edit(error)) => return Err(error),
                Err(ChangeError::PathNotFound) => return Err(self.layout_error(path)),
            }
        }
        Ok(())
    }

    /// The text does not take a change at `path`.
    pub(super) fn layout_error(&self, path: &Pointer) -> EditError {
        EditError::UnsupportedLayout {
            line: self.line(path),
            path: path.to_string(),
        }
    }
}

// === impl Change ===

impl Change<'_> {
    fn apply_to_node(&self, node: &mut Node, path: &Pointer) -> Result<(), ChangeError> {
        if let Some(&alias) = self.anchors.first_alias_lines.get(&node.anchor) {
            let line = node.line;
            return Err(ChangeError::Edit(EditError::SharedNode { line, alias }));
        }
        let Some((token, rest)) = path.split_front() else {
            node.new_value = Some(self.value.clone());
            return Ok(());
        };
        // What is written as a whole anyway, and what an alias brings, is changed as a value.
        let as_value = match &node.content {
            Content::Alias(_) => true,
            Content::Mapping(_, entries) => entries.is_empty(),
            Content::Sequence(_, items) => items.is_empty(),
            Content::Scalar(_) => false,
        };
        if node.new_value.is_some() || as_value {
            let mut value = node.value(self.anchors);
            self.apply_to_value(&mut value, path)?;
            node.new_value = Some(value);
            return Ok(());
        }
        let token = token.decoded();
        match &mut node.content {
            Content::Mapping(_, entries) => self.apply_to_mapping(entries, &token, rest),
            Content::Sequence(_, items) => self.apply_to_sequence(items, &token, rest),
            Content::Scalar(_) | Content::Alias(_) => Err(ChangeError::PathNotFound),
        }
    }

    fn apply_to_mapping(
        &self,
        entries: &mut Vec<MappingEntry>,
        token: &str,
        rest: &Pointer,
    ) -> Result<(), ChangeError> {
        let is_named =
            |entry: &&mut MappingEntry| matches!(&entry.key, Key::Name(name) if name == token);
        if let Some(entry) = entries.iter_mut().find(is_named) {
            return self.apply_to_node(&mut entry.value, rest);
        }
        let value = if rest.is_root() {
            self.value.clone()
        } else {
            // A key that `<<` brings: written out here, where it wins over the merged one.
            let mut merged = tree::mapping_value(entries, self.anchors);
            let mut value = merged.remove(token).ok_or(ChangeError::PathNotFound)?;
            self.apply_to_value(&mut value, rest)?;
            value
        };
        entries.push(MappingEntry {
            key: Key::Name(token.to_owned()),
            key_range: 0..0,
            line: 0,
            value: Node::inserted(value),
        });
        Ok(())
    }

    fn apply_to_sequence(
        &self,
        items: &mut Vec<Node>,
        token: &str,
        rest: &Pointer,
    ) -> Result<(), ChangeError> {
        let index = match token {
            "-" => items.len(),
            token => token.parse().map_err(|_| ChangeError::PathNotFound)?,
        };
        if self.inserts && rest.is_root() && index <= items.len() {
            items.insert(index, Node::inserted(self.value.clone()));
            return Ok(());
        }
        self.apply_to_node(items.get_mut(index).ok_or(ChangeError::PathNotFound)?, rest)
    }

    /// The same on a value: `path` is what remains of the path.
    fn apply_to_value(&self, value: &mut Value, path: &Pointer) -> Result<(), ChangeError> {
        let (path, new) = (path.to_buf(), self.value.clone());
        let operation = match self.inserts {
            true => PatchOperation::Add(AddOperation { path, value: new }),
            false => PatchOperation::Replace(ReplaceOperation { path, value: new }),
        };
        json_patch::patch(value, &[operation]).map_err(|_| ChangeError::PathNotFound)
    }
}
