//! Values as text that YAML 1.1, YAML 1.2 and JSON readers take alike.

use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value};

use super::scalar;

/// How the lines of a document are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockFormat {
    /// Whether a list stands deeper than its key; `kubectl` writes it level.
    pub(super) indents_lists: bool,
}

/// A value in brackets.
pub(super) enum FlowFormat<'a> {
    /// On one line of YAML.
    Yaml,
    /// On one line of JSON.
    CompactJson,
    /// JSON on many, each below `indent`, one level more for each bracket.
    PrettyJson {
        indent: &'a str,
        indent_unit: &'a str,
    },
}

// === impl BlockFormat ===

impl BlockFormat {
    /// The lines of a mapping's entry whose key stands in `column`.
    pub(super) fn entry(self, column: usize, key: &str, value: &Value) -> String {
        let mut lines = String::new();
        push_indent(&mut lines, column);
        self.push_entry(&mut lines, column, key, value);
        lines
    }

    /// The lines of a list's item whose dash stands in `column`.
    pub(super) fn item(self, column: usize, value: &Value) -> String {
        let mut lines = String::new();
        push_indent(&mut lines, column);
        self.push_item(&mut lines, column, value);
        lines
    }

    /// The lines of a collection that is the value of a key in `column`; `None` where the value
    /// stands behind its key.
    pub(super) fn block_value(self, column: usize, value: &Value) -> Option<String> {
        let mut lines = String::new();
        match value {
            Value::Object(entries) if !entries.is_empty() => {
                for (key, value) in entries {
                    lines.push_str(&self.entry(column + 2, key, value));
                }
            }
            Value::Array(items) if !items.is_empty() => {
                let column = column + if self.indents_lists { 2 } else { 0 };
                for item in items {
                    lines.push_str(&self.item(column, item));
                }
            }
            _ => return None,
        }
        Some(lines)
    }

    fn push_entry(self, lines: &mut String, column: usize, key: &str, value: &Value) {
        lines.push_str(&quote_if_needed(key));
        lines.push(':');
        match self.block_value(column, value) {
            Some(below) => {
                lines.push('\n');
                lines.push_str(&below);
            }
            None => {
                lines.push(' ');
                lines.push_str(&inline(value));
                lines.push('\n');
            }
        }
    }

    fn push_item(self, lines: &mut String, column: usize, value: &Value) {
        lines.push_str("- ");
        match value {
            Value::Object(entries) if !entries.is_empty() => {
                for (nth, (key, value)) in name_first(entries).enumerate() {
                    if nth > 0 {
                        push_indent(lines, column + 2);
                    }
                    self.push_entry(lines, column + 2, key, value);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                for (nth, item) in items.iter().enumerate() {
                    if nth > 0 {
                        push_indent(lines, column + 2);
                    }
                    self.push_item(lines, column + 2, item);
                }
            }
            value => {
                lines.push_str(&inline(value));
                lines.push('\n');
            }
        }
    }
}

fn push_indent(lines: &mut String, column: usize) {
    lines.extend(std::iter::repeat_n(' ', column));
}

/// People look for a container's name first.
fn name_first(entries: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let name = entries.iter().filter(|(key, _)| *key == "name");
    name.chain(entries.iter().filter(|(key, _)| *key != "name"))
}

/// A scalar, or an empty collection.
pub(super) fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => quote_if_needed(text),
        value => value.to_string(),
    }
}

/// A string that no reader takes for anything else.
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

/// Whether a text needs no quotes: words, paths, images, flags, quantities. Whatever YAML 1.1 reads
/// as another type needs them.
fn is_plain(text: &str) -> bool {
    is_quantity(text)
        || is_word(text) && scalar::resolve(text) == Ok(Value::String(text.to_owned()))
}

fn is_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    let starts = match bytes {
        [b'-', b'-', third, ..] => third.is_ascii_alphabetic(),
        [first, ..] => first.is_ascii_alphabetic() || matches!(first, b'/' | b'_'),
        [] => false,
    };
    let goes_on = bytes.iter().enumerate().all(|(at, byte)| match byte {
        b':' => bytes
            .get(at + 1)
            .is_some_and(|next| !next.is_ascii_whitespace()),
        _ => byte.is_ascii_alphanumeric() || b"_./-@+=".contains(byte),
    });
    starts && goes_on
}

fn is_quantity(text: &str) -> bool {
    let unit = text.trim_start_matches(|char: char| char.is_ascii_digit());
    unit.len() < text.len() && ["m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"].contains(&unit)
}

fn double_quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            // What YAML calls not printable, and what YAML 1.1 takes for a line break.
            '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(char)));
            }
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}

/// A value in brackets, with as few quotes as may be.
fn flow_value(value: &Value) -> String {
    match value {
        Value::Object(entries) => {
            let entries: Vec<_> = name_first(entries)
                .map(|(key, value)| format!("{}: {}", flow_string(key), flow_value(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(flow_value).collect();
            format!("[{}]", items.join(", "))
        }
        Value::String(text) => flow_string(text),
        value => value.to_string(),
    }
}

/// A string in brackets, where older readers stumble over a colon in an unquoted one.
fn flow_string(text: &str) -> String {
    match text.contains(':') && is_plain(text) {
        true => double_quoted(text),
        false => quote_if_needed(text),
    }
}

// === impl FlowFormat ===

impl FlowFormat<'_> {
    pub(super) fn value(&self, value: &Value) -> String {
        match self {
            FlowFormat::Yaml => flow_value(value),
            FlowFormat::CompactJson => value.to_string(),
            FlowFormat::PrettyJson {
                indent,
                indent_unit: unit,
            } => {
                let formatter = PrettyFormatter::with_indent(unit.as_bytes());
                let mut json = Vec::new();
                value
                    .serialize(&mut Serializer::with_formatter(&mut json, formatter))
                    .expect("a Value has string keys, and a Vec takes all bytes");
                String::from_utf8_lossy(&json).replace('\n', &format!("\n{indent}"))
            }
        }
    }

    pub(super) fn entry(&self, key: &str, value: &Value) -> String {
        let key = self.value(&Value::from(key));
        format!("{key}: {}", self.value(value))
    }

    /// What stands between a comma and the next item.
    pub(super) fn gap(&self) -> String {
        match self {
            FlowFormat::Yaml | FlowFormat::CompactJson => " ".to_owned(),
            FlowFormat::PrettyJson { indent, .. } => format!("\n{indent}"),
        }
    }
}
