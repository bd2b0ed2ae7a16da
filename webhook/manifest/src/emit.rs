//! Renders values as text that YAML 1.1, YAML 1.2 and JSON readers read alike.

use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value};

use super::scalar;

/// Characters, besides control characters, that are not printable in YAML, and line breaks of YAML 1.1.
const UNPRINTABLE: [char; 5] = ['\u{2028}', '\u{2029}', '\u{feff}', '\u{fffe}', '\u{ffff}'];

/// The layout of a document's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockFormat {
    /// Whether a list is indented below its key; `kubectl` does not indent it.
    pub(super) indents_lists: bool,
}

/// The layout of a collection in brackets. What is new in it is JSON, which is YAML too.
pub(super) struct FlowFormat<'a> {
    /// The indentation of its elements if each begins a line; else all are on one line.
    pub(super) indent: Option<&'a str>,
    /// One more level of indentation.
    pub(super) indent_unit: &'a str,
}

// === impl BlockFormat ===

impl BlockFormat {
    /// The lines of a mapping's entry whose key is in `column`.
    pub(super) fn entry(self, column: usize, key: &str, value: &Value) -> String {
        let (indent, key) = (" ".repeat(column), quote_if_needed(key));
        match self.block_value(column, value) {
            Some(below) => format!("{indent}{key}:\n{below}"),
            None => format!("{indent}{key}: {}\n", inline(value)),
        }
    }

    /// The lines of a list's item whose dash is in `column`.
    pub(super) fn item(self, column: usize, value: &Value) -> String {
        let inner = column + 2;
        let mut lines: String = match value {
            Value::Object(entries) if !entries.is_empty() => name_first(entries)
                .map(|(key, value)| self.entry(inner, key, value))
                .collect(),
            Value::Array(items) if !items.is_empty() => {
                items.iter().map(|item| self.item(inner, item)).collect()
            }
            value => format!("{}{}\n", " ".repeat(inner), inline(value)),
        };
        // The dash stands in the first line's indentation.
        lines.replace_range(column..=column, "-");
        lines
    }

    /// The lines of a collection below its key in `column`; `None` for a value on the key's line.
    pub(super) fn block_value(self, column: usize, value: &Value) -> Option<String> {
        match value {
            Value::Object(entries) if !entries.is_empty() => {
                let entry = |(key, value): (&String, &Value)| self.entry(column + 2, key, value);
                Some(entries.iter().map(entry).collect())
            }
            Value::Array(items) if !items.is_empty() => {
                let column = column + if self.indents_lists { 2 } else { 0 };
                Some(items.iter().map(|item| self.item(column, item)).collect())
            }
            _ => None,
        }
    }
}

/// The entries with `name` first, as it is written by hand in lists.
fn name_first(entries: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let name = entries.iter().filter(|(key, _)| *key == "name");
    name.chain(entries.iter().filter(|(key, _)| *key != "name"))
}

/// A scalar or an empty collection.
pub(super) fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => quote_if_needed(text),
        value => value.to_string(),
    }
}

/// A string in the style that needs the fewest escapes.
fn quote_if_needed(text: &str) -> String {
    let is_printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_plain(text) {
        text.to_owned()
    } else if is_printable && text.contains(['"', '\\']) && !text.contains('\'') {
        format!("'{text}'")
    } else {
        double_quoted(text)
    }
}

/// Whether every reader takes a text without quotes for a string: words, paths, images, flags, quantities.
fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_start = match bytes {
        [b'-', b'-', third, ..] => third.is_ascii_alphabetic(),
        // A quantity such as `64Mi`; dates and times end with a digit.
        [b'0'..=b'9', .., last] => {
            last.is_ascii_alphabetic() && bytes.iter().all(u8::is_ascii_alphanumeric)
        }
        [first, ..] => first.is_ascii_alphabetic() || matches!(first, b'/' | b'_'),
        [] => false,
    };
    let is_word = bytes.iter().enumerate().all(|(index, byte)| match byte {
        b':' => bytes
            .get(index + 1)
            .is_some_and(|next| !next.is_ascii_whitespace()),
        _ => byte.is_ascii_alphanumeric() || b"_./-@+=".contains(byte),
    });
    is_start && is_word && scalar::resolve(text) == Some(Value::String(text.to_owned()))
}

/// A string of JSON, with more escapes.
fn double_quoted(text: &str) -> String {
    let escape = |char: char| {
        if char.is_control() || UNPRINTABLE.contains(&char) {
            format!("\\u{:04x}", u32::from(char))
        } else {
            char.to_string()
        }
    };
    Value::from(text).to_string().chars().map(escape).collect()
}

// === impl FlowFormat ===

impl FlowFormat<'_> {
    pub(super) fn value(&self, value: &Value) -> String {
        let Some(indent) = self.indent else {
            return value.to_string();
        };
        let formatter = PrettyFormatter::with_indent(self.indent_unit.as_bytes());
        let mut json = Vec::new();
        value
            .serialize(&mut Serializer::with_formatter(&mut json, formatter))
            .expect("a Value has string keys, and a Vec takes all bytes");
        String::from_utf8_lossy(&json).replace('\n', &format!("\n{indent}"))
    }

    pub(super) fn entry(&self, key: &str, value: &Value) -> String {
        format!("{}: {}", Value::from(key), self.value(value))
    }

    /// The white space between a comma and the next element.
    pub(super) fn gap(&self) -> String {
        match self.indent {
            None => " ".to_owned(),
            Some(indent) => format!("\n{indent}"),
        }
    }
}
