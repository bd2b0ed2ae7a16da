//! Applies the operations of a patch to a document's tree.

use std::collections::HashMap;

use indexmap::map::Entry;
use json_patch::jsonptr::Pointer;
use serde_json::Value;

use super::error::ManifestError;
use super::tree::{Content, Key, MappingEntry, Node};

/// What a tree can do with the value at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edit {
    /// Add it, or replace it in a mapping.
    Add,
    /// Remove it from a sequence.
    Remove,
}

// === impl Node ===

impl Node {
    /// Makes the edit at `path` below this node, whose value is `value` since. Changing an anchored node would change its
    /// aliases as well, so nodes with an alias in `first_alias_lines` are refused.
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
}
