//! As much of a text as a message repeats.

use crate::printable::needs_escape;

/// The text in one line, without what a terminal obeys or nothing shows, of at most `longest` bytes, an ellipsis
/// included.
pub(super) fn truncate(text: &str, longest: usize) -> String {
    let ellipsis = '…';
    match text.len() > longest {
        true => {
            let end = text.floor_char_boundary(longest.saturating_sub(ellipsis.len_utf8()));
            let mut text = text[..end].replace(needs_escape, " ");
            text.push(ellipsis);
            text
        }
        false => text.replace(needs_escape, " "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(truncate("a\tb\r\n", 256), "a b  ");
        assert_eq!(truncate("a\u{202e}b\u{200b}c\u{feff}", 256), "a b c ");
        let cut = truncate(&"é".repeat(200), 256);
        assert!(cut.len() <= 256 && cut.ends_with("é…"), "{cut}");
        assert_eq!(truncate(&"x".repeat(256), 256), "x".repeat(256));
    }
}
