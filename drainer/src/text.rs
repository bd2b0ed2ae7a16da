//! Text from elsewhere, made safe to print: Envoy, a listener's name or the webhook may send what moves a terminal's
//! cursor, or reorders a line.

/// Replaces control characters, and those that hide or reorder others, by their escapes.
pub(crate) fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_invisible(c) {
            safe.extend(c.escape_unicode());
        } else {
            safe.push(c);
        }
    }
    safe
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_direction_are_escaped() {
        let text = "ä\u{1b}[31m\u{9b}\u{202e}\n";
        assert_eq!(printable(text), r"ä\u{1b}[31m\u{9b}\u{202e}\u{a}");
    }
}
