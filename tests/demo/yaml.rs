//! A value as YAML that takes little room: what fits on a line stands on one.

use serde_json::Value;

/// The width of a line.
const WIDTH: usize = 100;

/// Renders a mapping, a key a line; what does not fit on its line goes on below, deeper.
pub fn render(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

fn block(value: &Value, indent: usize, text: &mut String) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                text.push_str(&format!("{pad}{}:", scalar(key)));
                behind(value, indent, text);
            }
        }
        Value::Array(items) => {
            for item in items {
                let mut lines = String::new();
                block(item, indent + 2, &mut lines);
                // The dash takes the place of the first line's last two blanks.
                text.push_str(&format!("{pad}- {}", &lines[indent + 2..]));
            }
        }
        scalar => text.push_str(&format!("{pad}{}\n", flow(scalar))),
    }
}

/// What stands behind a key.
fn behind(value: &Value, indent: usize, text: &mut String) {
    let column = text.len() - text.rfind('\n').map_or(0, |newline| newline + 1);
    let line = flow(value);
    let is_deep = matches!(value, Value::Object(entries) if entries.values().any(Value::is_array));
    if column + 1 + line.len() <= WIDTH && !is_deep || !is_filled(value) {
        text.push_str(&format!(" {line}\n"));
        return;
    }
    match value {
        Value::Array(items) if items.iter().all(|item| !is_filled(item)) => {
            fill(items, column, indent + 4, text);
        }
        _ => {
            text.push('\n');
            block(value, indent + 2, text);
        }
    }
}

/// A list of scalars in brackets, over as many lines as it takes.
fn fill(items: &[Value], column: usize, indent: usize, text: &mut String) {
    text.push_str(" [");
    let mut column = column + 2;
    for (nth, item) in items.iter().enumerate() {
        let item = format!(
            "{}{}",
            flow(item),
            if nth + 1 < items.len() { "," } else { "]" }
        );
        if nth > 0 && column + 1 + item.len() > WIDTH {
            text.push_str(&format!("\n{}", " ".repeat(indent)));
            column = indent;
        } else if nth > 0 {
            text.push(' ');
            column += 1;
        }
        column += item.len();
        text.push_str(&item);
    }
    text.push('\n');
}

fn is_filled(value: &Value) -> bool {
    match value {
        Value::Object(entries) => !entries.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

/// A value on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(entries) => {
            let entry =
                |(key, value): (&String, &Value)| format!("{}: {}", scalar(key), flow(value));
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

/// A text, in quotes where YAML would read something else.
fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/:=@-".contains(c);
    let starts_as_text = text.starts_with(|c: char| c.is_ascii_alphabetic() || "/-".contains(c));
    let word = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let is_word = word.contains(&text.to_ascii_lowercase().as_str());
    let splits = text.ends_with(':') || text == "-" || text.starts_with("--- ");
    if starts_as_text && text.chars().all(plain) && !is_word && !splits {
        text.to_owned()
    } else if text.contains('"') && !text.contains(['\'', '\n']) {
        format!("'{text}'")
    } else {
        Value::from(text).to_string()
    }
}
