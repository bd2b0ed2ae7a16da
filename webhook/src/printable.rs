//! Text from manifests and clusters, as a terminal may have it.

use std::borrow::Cow;

use crate::admission::needs_escape;

/// The text with its control characters written out, as in `\u{1b}`: names come from others, and a terminal
/// or a CI log would obey them. So are characters that
/// reorder or hide the others.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(needs_escape) {
        return Cow::Borrowed(text);
    }
    let mut printable = String::with_capacity(text.len());
    for char in text.chars() {
        match needs_escape(char) {
            true => printable.extend(char.escape_default()),
            false => printable.push(char),
        }
    }
    Cow::Owned(printable)
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
            (
                "a\u{200b}b\u{2028}\u{e0041}",
                r"a\u{200b}b\u{2028}\u{e0041}",
            ),
        ] {
            assert_eq!(printable(text), wanted);
            assert_eq!(printable(wanted), wanted, "once is enough");
        }
    }
}
