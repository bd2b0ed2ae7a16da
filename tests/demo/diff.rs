//! What the webhook changed, for a person.

use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::screen::{ADDED, DIMMED, REMOVED, Screen};
use crate::yaml;

/// A diff of two pods as YAML. Of what is the same only the keys above a change are shown.
pub(crate) fn of(before: &Value, after: &Value, screen: &Screen) -> String {
    let (before, after) = (yaml::render(before), yaml::render(after));
    let (old, new): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let mut text = String::new();
    let mut push = |sign, style, line: &str| {
        text.push_str(&screen.styled(style, &format!("   {sign} {line}")));
        text.push('\n');
    };
    // The line that was shown last, below the lines that it is in.
    let mut shown = Vec::new();
    for change in TextDiff::from_lines(&before, &after).iter_all_changes() {
        let (sign, style, lines, place) = match change.tag() {
            ChangeTag::Equal => continue,
            ChangeTag::Delete => ('-', REMOVED, &old, change.old_index()),
            ChangeTag::Insert => ('+', ADDED, &new, change.new_index()),
        };
        let path = path(lines, place.unwrap_or(0));
        let same = path.iter().zip(&shown).take_while(|(a, b)| a == b).count();
        if let Some((line, above)) = path.split_last() {
            for line in above.iter().skip(same) {
                push(' ', DIMMED, line);
            }
            push(sign, style, line);
        }
        shown = path;
    }
    text
}

/// A line below those that it is in, the outermost first.
fn path<'a>(lines: &[&'a str], place: usize) -> Vec<&'a str> {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let mut path: Vec<&str> = Vec::new();
    for line in lines[..=place].iter().rev() {
        if path.last().is_none_or(|below| depth(line) < depth(below)) {
            path.push(line);
        }
    }
    path.reverse();
    path
}
