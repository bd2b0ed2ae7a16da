//! Text from elsewhere, made safe to print. A terminal or a CI log executes what names, messages and files contain.

use std::fmt::Display;

/// Escapes each character that [`needs_escape`], as in `\u{1b}`. Line breaks are escaped too.
pub fn printable(text: &str) -> String {
    escape(text, |char| char.escape_default().to_string())
}

/// Escapes these characters within the strings of JSON. The line breaks between its values stay.
pub fn printable_json(json: &str) -> String {
    escape(json, |char| match char {
        '\n' => char.to_string(),
        _ => {
            let units = char.encode_utf16(&mut [0; 2]).to_vec();
            units.iter().map(|unit| format!("\\u{unit:04x}")).collect()
        }
    })
}

fn escape(text: &str, escaped: impl Fn(char) -> String) -> String {
    let mut printable = String::with_capacity(text.len());
    for char in text.chars() {
        if needs_escape(char) {
            printable.push_str(&escaped(char));
        } else {
            printable.push(char);
        }
    }
    printable
}

/// Formats a count: `1 pod`, `2 pods`.
pub fn plural(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    let ending = if count == "1" { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// Returns true for control characters, separators of lines, and what Unicode calls format characters (Cf): they are
/// invisible, and reorder, join or hide others. <https://www.unicode.org/reports/tr44/#General_Category_Values>
pub fn needs_escape(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{ad}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{890}'..='\u{891}'
                | '\u{8e2}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{110bd}'
                | '\u{110cd}'
                | '\u{13430}'..='\u{1343f}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0001}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_format_characters_are_escaped() {
        for (text, wanted) in [
            ("Deployment shop/front — é", "Deployment shop/front — é"),
            ("a\u{1b}]0;owned\u{7}", r"a\u{1b}]0;owned\u{7}"),
            (
                "ä\u{1b}[31m\u{9b}\u{202e}\n",
                r"ä\u{1b}[31m\u{9b}\u{202e}\n",
            ),
            ("a\u{61c}b", r"a\u{61c}b"),
            ("a\r\nerror: b\t", r"a\r\nerror: b\t"),
            ("\u{7f}\u{9b}31m", r"\u{7f}\u{9b}31m"),
            ("a\u{202e}b\u{2066}", r"a\u{202e}b\u{2066}"),
            (
                "a\u{200b}b\u{2028}\u{e0041}",
                r"a\u{200b}b\u{2028}\u{e0041}",
            ),
        ] {
            assert_eq!(printable(text), wanted);
            assert_eq!(printable(wanted), wanted, "escaping is idempotent");
        }
    }
}
