//! Text from elsewhere that a terminal would execute, or that reorders or hides what it shows.

/// ESC, a C1 control, a bidirectional control, and a character of no width.
pub const FOREIGN_TEXT: &str = "x\u{1b}[2J\u{9b}31m\u{202e}\u{200b}";

const ESCAPED: &str = r"x\u{1b}[2J\u{9b}31m\u{202e}\u{200b}";

/// Asserts that output has the text, with escapes.
pub fn assert_escaped(output: &[u8]) {
    let output = String::from_utf8_lossy(output);
    assert!(output.contains(ESCAPED), "{output:?}");
    let is_foreign =
        |char: char| char != '\n' && FOREIGN_TEXT[1..].contains(char) && !char.is_ascii_graphic();
    assert!(!output.contains(is_foreign), "{output:?}");
}
