//! Excerpts of foreign text that are safe to show: one line, bounded, without control characters.

/// Returns the text on one line, with a space for each character that [`needs_escape`], cut to at most
/// `max_len` bytes, an ellipsis included.
pub(super) fn excerpt(text: &str, max_len: usize) -> String {
    let ellipsis = "…";
    if text.len() <= max_len {
        return text.replace(needs_escape, " ");
    }
    let end = text.floor_char_boundary(max_len.saturating_sub(ellipsis.len()));
    text[..end].replace(needs_escape, " ") + ellipsis
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
    fn text_is_cut_between_characters() {
        assert_eq!(excerpt("a\tb\r\n", 256), "a b  ");
        assert_eq!(excerpt("a\u{202e}b\u{200b}c\u{feff}", 256), "a b c ");
        let cut = excerpt(&"é".repeat(200), 256);
        assert!(cut.len() <= 256 && cut.ends_with("é…"), "{cut}");
        assert_eq!(excerpt(&"x".repeat(256), 256), "x".repeat(256));
    }
}
