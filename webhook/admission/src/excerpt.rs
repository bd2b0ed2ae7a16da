//! Excerpts of foreign text that are safe to show: one line, bounded, without control characters.

use std::fmt::Display;

use drainer::text::needs_escape;

/// Returns the text on one line, with a space for each character that [`needs_escape`], cut to at most
/// `max_len` bytes, an ellipsis included.
pub fn excerpt(text: &str, max_len: usize) -> String {
    let ellipsis = "…";
    if text.len() <= max_len {
        return text.replace(needs_escape, " ");
    }
    let end = text.floor_char_boundary(max_len.saturating_sub(ellipsis.len()));
    text[..end].replace(needs_escape, " ") + ellipsis
}

/// Formats a count: `1 pod`, `2 pods`.
pub fn plural(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    let ending = if count == "1" { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// Lists at most `max` texts; the others are only counted.
pub fn list(texts: impl IntoIterator<Item = String>, max: usize) -> String {
    let mut texts = texts.into_iter();
    let listed = texts.by_ref().take(max).collect::<Vec<_>>().join(", ");
    match texts.count() {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(excerpt("a\tb\r\n", 256), "a b  ");
        assert_eq!(excerpt("a\u{202e}b\u{200b}c\u{feff}", 256), "a b c ");
        let cut = excerpt(&"é".repeat(200), 256);
        assert!(cut.len() <= 256 && cut.ends_with("é…"), "{cut}");
        assert_eq!(excerpt(&"x".repeat(256), 256), "x".repeat(256));
    }
}
