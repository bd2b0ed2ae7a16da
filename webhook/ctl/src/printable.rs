//! Escapes text from manifests and clusters for terminals and logs.

use std::borrow::Cow;

use admission::needs_escape;

/// Escapes control characters, as in `\u{1b}`, and characters that reorder or hide others: names are not trusted, and a
/// terminal or a CI log would execute them.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(needs_escape) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match needs_escape(char) {
            true => escaped.extend(char.escape_default()),
            false => escaped.push(char),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_format_characters_are_escaped() {
        for (text, wanted) in [
            ("Deployment shop/front — é", "Deployment shop/front — é"),
            ("a\u{1b}]0;owned\u{7}", r"a\u{1b}]0;owned\u{7}"),
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
