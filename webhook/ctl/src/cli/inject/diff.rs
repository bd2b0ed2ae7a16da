//! Unified diffs of manifests for a terminal.

use anstyle::{AnsiColor, Style};
use similar::TextDiff;

use crate::text::{PrintableText, printable};

/// Unchanged lines before and after each change.
const CONTEXT_LINES: usize = 3;

/// A unified diff of a file or stdin, with colors if `styled`; empty if nothing differs.
pub fn unified_diff(name: &str, before: &[u8], after: &[u8], styled: bool) -> PrintableText {
    let [before, after] = [before, after].map(String::from_utf8_lossy);
    let path = printable(name);
    let path = path.trim_start_matches('/');
    let diff = TextDiff::from_lines(&*before, &*after);
    let diff = diff
        .unified_diff()
        .context_radius(CONTEXT_LINES)
        .header(&format!("a/{path}"), &format!("b/{path}"))
        .to_string();
    let mut printable = PrintableText::new(styled);
    for (index, line) in diff.lines().enumerate() {
        printable.push_styled(style(line, index < 2), line);
        printable.end_line();
    }
    printable
}

fn style(line: &str, in_header: bool) -> Style {
    match line.as_bytes() {
        _ if in_header => Style::new().bold(),
        [b'+', ..] => AnsiColor::Green.on_default(),
        [b'-', ..] => AnsiColor::Red.on_default(),
        [b'@', ..] => AnsiColor::Cyan.on_default(),
        _ => Style::new(),
    }
}
