//! Edits of JSON.

use serde_json::{Value, json};

/// Appends to a list that may be missing or null.
pub fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        _ => *list = json!([item]),
    }
}
