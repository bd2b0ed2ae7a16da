//! Brings the operations of a patch into a tree: what is new, and where it goes.

use json_patch::jsonptr::Pointer;
use json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use serde_json::Value;

use super::tree::{self, Anchors, Content, Entry, Key, Node, Tree};

/// Why a change cannot be written into a document's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotEdit {
    /// A change of one use of a shared node would change the others.
    #[error("an alias on line {alias} stands for what is to be changed here: write it out there")]
    Shared {
        /// Where the anchor is.
        line: usize,
        /// Where its first alias is.
        alias: usize,
    },
    /// The text holds the place in a form into which the change cannot be written.
    #[error("`{path}` cannot be written into this text: use plain block style here")]
    Form {
        /// The line of the place.
        line: usize,
        /// A JSON pointer.
        path: String,
    },
}

// === impl CannotEdit ===

impl CannotEdit {
    /// The line of the stream where the text stands that is in the way.
    #[must_use]
    pub fn line(&self) -> usize {
        match self {
            Self::Shared { line, .. } | Self::Form { line, .. } => *line,
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
enum Stop {
    Cannot(CannotEdit),
    /// The rest of the path does not exist here.
    NoPlace,
}

impl Tree {
    /// Applies the operations in their order.
    pub(super) fn apply(&mut self, operations: &[PatchOperation]) -> Result<(), CannotEdit> {
        for operation in operations {
            let (path, value, inserts) = match operation {
                PatchOperation::Add(AddOperation { path, value }) => (path, value, true),
                PatchOperation::Replace(ReplaceOperation { path, value }) => (path, value, false),
                _ => return Err(self.form(operation.path())),
            };
            let change = Change {
                value,
                inserts,
                anchors: &self.anchors,
            };
            match change.node(&mut self.root, path) {
                Ok(()) => {}
                Err(Stop::Cannot(error)) => return Err(error),
                Err(Stop::NoPlace) => return Err(self.form(path)),
            }
        }
        Ok(())
    }

    /// The text does not take a change at `path`.
    pub(super) fn form(&self, path: &Pointer) -> CannotEdit {
        CannotEdit::Form {
            line: self.line(path),
            path: path.to_string(),
        }
    }
}

// === impl Change ===

impl Change<'_> {
    fn node(&self, node: &mut Node, path: &Pointer) -> Result<(), Stop> {
        if let Some(&alias) = self.anchors.aliases.get(&node.anchor) {
            let line = node.line;
            return Err(Stop::Cannot(CannotEdit::Shared { line, alias }));
        }
        let Some((token, rest)) = path.split_front() else {
            node.new = Some(self.value.clone());
            return Ok(());
        };
        // What is written as a whole anyway, and what an alias brings, is changed as a value.
        let as_value = match &node.content {
            Content::Alias(_) => true,
            Content::Mapping(_, entries) => entries.is_empty(),
            Content::Sequence(_, items) => items.is_empty(),
            Content::Scalar(_) => false,
        };
        if node.new.is_some() || as_value {
            let mut value = node.value(self.anchors);
            self.value(&mut value, path)?;
            node.new = Some(value);
            return Ok(());
        }
        let token = token.decoded();
        match &mut node.content {
            Content::Mapping(_, entries) => self.mapping(entries, &token, rest),
            Content::Sequence(_, items) => self.sequence(items, &token, rest),
            Content::Scalar(_) | Content::Alias(_) => Err(Stop::NoPlace),
        }
    }

    fn mapping(&self, entries: &mut Vec<Entry>, token: &str, rest: &Pointer) -> Result<(), Stop> {
        let is_named = |entry: &&mut Entry| matches!(&entry.key, Key::Name(name) if name == token);
        if let Some(entry) = entries.iter_mut().find(is_named) {
            return self.node(&mut entry.value, rest);
        }
        let value = if rest.is_root() {
            self.value.clone()
        } else {
            // A key that `<<` brings: written out here, where it wins over the merged one.
            let mut merged = tree::object(entries, self.anchors);
            let mut value = merged.remove(token).ok_or(Stop::NoPlace)?;
            self.value(&mut value, rest)?;
            value
        };
        entries.push(Entry {
            key: Key::Name(token.to_owned()),
            at: 0..0,
            line: 0,
            value: Node::inserted(value),
        });
        Ok(())
    }

    fn sequence(&self, items: &mut Vec<Node>, token: &str, rest: &Pointer) -> Result<(), Stop> {
        let index = match token {
            "-" => items.len(),
            token => token.parse().map_err(|_| Stop::NoPlace)?,
        };
        if self.inserts && rest.is_root() && index <= items.len() {
            items.insert(index, Node::inserted(self.value.clone()));
            return Ok(());
        }
        self.node(items.get_mut(index).ok_or(Stop::NoPlace)?, rest)
    }

    /// The same on a value: `path` is what remains of the path.
    fn value(&self, value: &mut Value, path: &Pointer) -> Result<(), Stop> {
        let (path, new) = (path.to_buf(), self.value.clone());
        let operation = match self.inserts {
            true => PatchOperation::Add(AddOperation { path, value: new }),
            false => PatchOperation::Replace(ReplaceOperation { path, value: new }),
        };
        json_patch::patch(value, &[operation]).map_err(|_| Stop::NoPlace)
    }
}
