//! Unified diffs of manifests for a terminal.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use similar::TextDiff;

use crate::printable::printable;

/// Unchanged lines before and after each change.
const CONTEXT_LINES: usize = 3;

/// A unified diff of a file or stdin, with colors if `styled`; empty if nothing differs.
pub fn unified_diff(name: &str, before: &[u8], after: &[u8], styled: bool) -> String {
    let (before, after) = (
        String::from_utf8_lossy(before),
        String::from_utf8_lossy(after),
    );
    let path = printable(name);
    let path = path.trim_start_matches('/');
    let diff = TextDiff::from_lines(&*before, &*after);
    let diff = diff
        .unified_diff()
        .context_radius(CONTEXT_LINES)
        .header(&format!("a/{path}"), &format!("b/{path}"))
        .to_string();
    if !styled {
        return diff;
    }
    let mut colored = String::with_capacity(diff.len() * 2);
    for (index, line) in diff.lines().enumerate() {
        let style = style(line, index < 2);
        let _ = writeln!(colored, "{style}{line}{style:#}");
    }
    colored
}

fn style(line: &str, in_header: bool) -> Style {
    let color = |color: AnsiColor| Style::new().fg_color(Some(color.into()));
    match line.as_bytes() {
        _ if in_header => Style::new().bold(),
        [b'+', ..] => color(AnsiColor::Green),
        [b'-', ..] => color(AnsiColor::Red),
        [b'@', ..] => color(AnsiColor::Cyan),
        _ => Style::new(),
    }
}
