//! Text from elsewhere, made safe to print. A terminal or a CI log executes what names, messages and files contain.

/// Escapes each character that [`needs_escape`], as in `\u{1b}`. Line breaks are escaped too.
pub fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for char in text.chars() {
        if needs_escape(char) {
            printable.extend(char.escape_default());
        } else {
            printable.push(char);
        }
    }
    printable
}

/// Returns true for control characters, separators of lines, and what Unicode calls format characters (Cf): they are
/// invisible, and reorder, join or hide others. <https://www.unicode.org/reports/tr44/#General_Category_Values>
pub fn needs_escape(char: char) -> bool {
    match char {
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
        | '\u{e0001}'..='\u{e007f}' => true,
        _ => char.is_control(),
    }
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
