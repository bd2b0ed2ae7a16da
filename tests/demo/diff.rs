//! What the webhook changed, for a person.

use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::screen::{ADDED, QUIET, REMOVED, Screen};
use crate::yaml;

/// A diff of two pods as YAML. What is left out is marked.
pub fn of(before: &Value, after: &Value, screen: &Screen) -> String {
    let (before, after) = (yaml::render(before), yaml::render(after));
    let diff = TextDiff::from_lines(&before, &after);
    let mut text = String::new();
    for (nth, group) in diff.grouped_ops(1).iter().enumerate() {
        if nth > 0 {
            text.push_str(&screen.styled(QUIET, "     …"));
            text.push('\n');
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let (sign, style) = match change.tag() {
                ChangeTag::Delete => ('-', REMOVED),
                ChangeTag::Insert => ('+', ADDED),
                ChangeTag::Equal => (' ', QUIET),
            };
            let line = format!("   {sign} {}", change.value().trim_end());
            text.push_str(&screen.styled(style, &line));
            text.push('\n');
        }
    }
    text
}
