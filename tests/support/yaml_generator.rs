//! A generator of hand-written YAML: any indentation and quotes, blank lines and comments anywhere.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

/// The style of a manifest.
#[derive(Debug, Clone)]
pub struct YamlStyle {
    indent: usize,
    list_indent: usize,
    newline: &'static str,
    /// What comes after each line, taken from the end.
    trivia: Vec<Trivia>,
    /// Whether each collection is in brackets, taken from the end.
    is_flow: Vec<bool>,
    quotes_all: bool,
}

#[derive(Debug, Clone, Copy)]
enum Trivia {
    None,
    Blank,
    Comment,
    IndentedComment,
    TrailingComment,
}

impl YamlStyle {
    /// Writes an object.
    pub fn write(mut self, value: &Value) -> String {
        let mut text = String::new();
        self.block(value, 0, &mut text);
        text.replace('\n', self.newline)
    }

    fn block(&mut self, value: &Value, column: usize, text: &mut String) {
        match value {
            Value::Object(entries) if !entries.is_empty() => {
                for (index, (key, value)) in entries.iter().enumerate() {
                    if index > 0 || !text.ends_with("- ") {
                        text.push_str(&" ".repeat(column));
                    }
                    text.push_str(&self.scalar(&key.as_str().into()));
                    text.push(':');
                    let deeper = match value {
                        Value::Array(_) => column + self.list_indent,
                        _ => column + self.indent,
                    };
                    self.value(value, deeper, text);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                for item in items {
                    text.push_str(&format!("{}-", " ".repeat(column)));
                    match item {
                        Value::Object(entries) if !entries.is_empty() => {
                            text.push(' ');
                            self.block(item, column + 2, text);
                        }
                        item => self.value(item, column + 2, text),
                    }
                }
            }
            _ => unreachable!("a scalar is no block"),
        }
    }

    /// Writes the value after a colon or a dash.
    fn value(&mut self, value: &Value, column: usize, text: &mut String) {
        let is_collection = value.as_array().is_some_and(|items| !items.is_empty())
            || value.as_object().is_some_and(|entries| !entries.is_empty());
        if is_collection && !self.is_flow.pop().unwrap_or(false) {
            self.end_line(column, text);
            return self.block(value, column, text);
        }
        text.push(' ');
        text.push_str(&if is_collection {
            value.to_string()
        } else {
            self.scalar(value)
        });
        self.end_line(column, text);
    }

    fn end_line(&mut self, column: usize, text: &mut String) {
        let trivia = self.trivia.pop().unwrap_or(Trivia::None);
        text.push_str(&match trivia {
            Trivia::None => "\n".to_owned(),
            Trivia::Blank => "\n  \n".to_owned(),
            Trivia::Comment => "\n# a: b\n".to_owned(),
            Trivia::IndentedComment => format!("\n{}# - c\n", " ".repeat(column)),
            Trivia::TrailingComment => "   # trailing: it\n".to_owned(),
        });
    }

    /// A scalar. Lower-case words of more than five letters, which no reader interprets otherwise, need no quotes.
    fn scalar(&self, value: &Value) -> String {
        let is_word =
            |text: &str| text.len() > 5 && text.bytes().all(|byte| byte.is_ascii_lowercase());
        match value.as_str() {
            Some(word) if !self.quotes_all && is_word(word) => word.to_owned(),
            _ => value.to_string(),
        }
    }
}

/// Any style.
pub fn yaml_style() -> impl Strategy<Value = YamlStyle> {
    let trivia = prop_oneof![
        4 => Just(Trivia::None),
        1 => Just(Trivia::Blank),
        1 => Just(Trivia::Comment),
        1 => Just(Trivia::IndentedComment),
        1 => Just(Trivia::TrailingComment),
    ];
    (
        1..5_usize,
        prop_oneof![Just(0), Just(2), Just(3)],
        prop_oneof![Just("\n"), Just("\r\n")],
        vec(trivia, 0..60),
        vec(proptest::bool::weighted(0.1), 0..30),
        any::<bool>(),
    )
        .prop_map(
            |(indent, list_indent, newline, trivia, is_flow, quotes_all)| YamlStyle {
                indent,
                list_indent,
                newline,
                trivia,
                is_flow,
                quotes_all,
            },
        )
}
