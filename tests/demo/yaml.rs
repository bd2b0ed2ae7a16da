//! Renders a value as compact YAML: collections that fit on a few lines are written in flow style.

use serde_json::Value;

/// Column at which lines are wrapped.
const WIDTH: usize = 96;

/// Maximum length of a line in flow style, for a single long string that cannot be wrapped.
const MAX_WIDTH: usize = 130;

/// Maximum number of lines of a collection in flow style.
const MAX_FLOW_LINES: usize = 3;

/// Renders a mapping with one key per line; values that are too large go below their key, indented.
pub(crate) fn render(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

/// Writes a value in block style.
fn block(value: &Value, indent: usize, text: &mut String) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                text.push_str(&format!("{pad}{}:", scalar(key)));
                value_after_key(value, indent, text);
            }
        }
        Value::Array(items) => {
            for item in items {
                text.push_str(&format!("{pad}-"));
                match flow_block(item, indent + 2, indent + 4) {
                    Some(filled) => text.push_str(&format!(" {filled}\n")),
                    None => {
                        let mut lines = String::new();
                        block(item, indent + 2, &mut lines);
                        // The dash replaces the first line's indentation.
                        text.push_str(&lines[indent + 1..]);
                    }
                }
            }
        }
        scalar => text.push_str(&format!("{pad}{}\n", flow(scalar))),
    }
}

/// Writes the value after a key and its colon.
fn value_after_key(value: &Value, indent: usize, text: &mut String) {
    let column = text.len() - text.rfind('\n').map_or(0, |newline| newline + 1);
    match flow_block(value, column + 1, indent + 4) {
        Some(filled) => text.push_str(&format!(" {filled}\n")),
        None => {
            text.push('\n');
            block(value, indent + 2, text);
        }
    }
}

/// Formats a value in flow style, starting in `column`; `None` if block style is more readable.
fn flow_block(value: &Value, column: usize, indent: usize) -> Option<String> {
    let (open, close, items) = match value {
        Value::Object(entries) => ('{', '}', entries.iter().map(entry).collect()),
        Value::Array(items) => ('[', ']', items.iter().map(flow).collect()),
        scalar => return Some(flow(scalar)),
    };
    let filled = fill(open, close, items, column, indent);
    let fits = filled.lines().count() <= MAX_FLOW_LINES
        && filled.lines().all(|line| line.len() <= MAX_WIDTH);
    // A program has many arguments, but each is short.
    let is_args = value
        .as_array()
        .is_some_and(|list| list.iter().all(Value::is_string));
    (fits || is_args).then_some(filled)
}

/// Joins items in brackets, wrapped at [`WIDTH`].
fn fill(open: char, close: char, items: Vec<String>, mut column: usize, indent: usize) -> String {
    let mut text = String::from(open);
    column += 1;
    let last = items.len().saturating_sub(1);
    for (index, mut item) in items.into_iter().enumerate() {
        item.push(if index == last { close } else { ',' });
        if index > 0 && column + 1 + item.len() > WIDTH {
            text.push_str(&format!("\n{}", " ".repeat(indent)));
            column = indent;
        } else if index > 0 {
            text.push(' ');
            column += 1;
        }
        column += item.len();
        text.push_str(&item);
    }
    if text.len() == 1 {
        text.push(close);
    }
    text
}

fn entry((key, value): (&String, &Value)) -> String {
    format!("{}: {}", scalar(key), flow(value))
}

/// Formats a value on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(entries) => {
            let entries: Vec<_> = entries.iter().map(entry).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        Value::String(text) => scalar(text),
        other => other.to_string(),
    }
}

/// Formats a string, quoted where YAML would read another type or value.
fn scalar(text: &str) -> String {
    const KEYWORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let is_keyword = KEYWORDS.contains(&text.to_ascii_lowercase().as_str());
    let is_plain_char = |c: char| c.is_ascii_alphanumeric() || "._/:=@-".contains(c);
    // Text that begins with a digit is a string only if it ends with a letter, unlike 1e3 and 0x1f.
    let is_quantity = text.starts_with(|c: char| ('1'..='9').contains(&c))
        && text.ends_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric());
    let begins_as_text = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        || text.starts_with("--") && !text.starts_with("---");
    if (begins_as_text || is_quantity || text == "-c")
        && text.chars().all(is_plain_char)
        && !text.ends_with(':')
        && !is_keyword
    {
        text.to_owned()
    } else if text.contains('"') && !text.contains('\'') && !text.contains(char::is_control) {
        format!("'{text}'")
    } else {
        Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rendered_yaml_parses_to_the_same_value() {
        let values = [
            serde_json::from_str(include_str!("review.json")).unwrap(),
            json!({
                "words": ["true", "No", "~", "", "null", "1e3", "0x1f", "1.5", "12:30", "a: b", "a:", "x #y"],
                "texts": ["100m", "64Mi", "--flag=1s", "-", "---", "- a", "'", "\"'", "a\nb", "{}", "&a", "*a"],
                "empty": [{}, [], null, { "a": {} }, { "b": [] }],
                "deep": [[[1, 2], [3]], { "list": vec!["a long text"; 40], "map": { "k": vec!["v"; 90] } }],
                "numbers": { "a": 1, "b": -2.5, "c": true },
            }),
        ];
        for value in values {
            let text = render(&value);
            let parsed: Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(parsed, value, "{text}");
        }
    }
}
