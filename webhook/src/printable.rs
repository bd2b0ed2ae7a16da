//! Text from manifests and clusters, as a terminal may have it.

use std::borrow::Cow;

/// The text with its control characters written out, as in `\u{1b}`: names come from others, and a terminal
/// or a CI log would obey them. So are characters that reorder the others.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut printable = String::with_capacity(text.len());
    for char in text.chars() {
        match is_obeyed(char) {
            true => printable.extend(char.escape_default()),
            false => printable.push(char),
        }
    }
    Cow::Owned(printable)
}

/// Returns true for control characters, and for those that control bidirectional text.
/// <https://www.unicode.org/reports/tr9/#Directional_Formatting_Characters>
fn is_obeyed(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        for (text, wanted) in [
            ("Deployment shop/front — é", "Deployment shop/front — é"),
            ("a\u{1b}]0;owned\u{7}", r"a\u{1b}]0;owned\u{7}"),
            ("a\r\nerror: b\t", r"a\r\nerror: b\t"),
            ("\u{7f}\u{9b}31m", r"\u{7f}\u{9b}31m"),
            ("a\u{202e}b\u{2066}", r"a\u{202e}b\u{2066}"),
        ] {
            assert_eq!(printable(text), wanted);
            assert_eq!(printable(wanted), wanted, "once is enough");
        }
    }
}
