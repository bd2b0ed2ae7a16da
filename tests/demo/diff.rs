//! Prints the webhook's change to a pod as a diff of YAML.

use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::screen::{ADDED, DIMMED, REMOVED, Screen};
use crate::yaml;

/// Renders a diff of two pods as YAML. Of the unchanged lines only the parent keys of a change are printed.
pub(crate) fn render(before: &Value, after: &Value, screen: &Screen) -> String {
    let (before, after) = (yaml::render(before), yaml::render(after));
    let (old, new): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let mut text = String::new();
    let mut push = |sign, style, line: &str| {
        text.push_str(&screen.styled(style, &format!("   {sign} {line}")));
        text.push('\n');
    };
    // The last printed line with its parents, the outermost first.
    let mut printed = Vec::new();
    for change in TextDiff::from_lines(&before, &after).iter_all_changes() {
        let (sign, style, lines, index) = match change.tag() {
            ChangeTag::Equal => continue,
            ChangeTag::Delete => ('-', REMOVED, &old, change.old_index()),
            ChangeTag::Insert => ('+', ADDED, &new, change.new_index()),
        };
        let path = path(lines, index.unwrap_or(0));
        let common = path
            .iter()
            .zip(&printed)
            .take_while(|(a, b)| a == b)
            .count();
        if let Some((line, parents)) = path.split_last() {
            for line in parents.iter().skip(common) {
                push(' ', DIMMED, line);
            }
            push(sign, style, line);
        }
        printed = path;
    }
    text
}

/// Returns a line and its parents in the YAML tree, the outermost first.
fn path<'a>(lines: &[&'a str], index: usize) -> Vec<&'a str> {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let mut path: Vec<&str> = Vec::new();
    for line in lines[..=index].iter().rev() {
        if path.last().is_none_or(|child| depth(line) < depth(child)) {
            path.push(line);
        }
    }
    path.reverse();
    path
}
