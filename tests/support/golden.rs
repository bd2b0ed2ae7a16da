//! Golden files: the expected output of tests, in `tests/golden`.

use std::fs;
use std::path::{Path, PathBuf};

use similar::{DiffOp, DiffTag, TextDiff};

/// The line above each object that Helm renders, before the name of its template.
const SOURCE: &str = "# Source: envoy-drainer/templates/";

/// Lines around a change.
const CONTEXT_LINES: usize = 3;

/// Reads `tests/golden/NAME`.
pub fn read(name: &str) -> String {
    let path = path(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Compares `actual` with `tests/golden/NAME`.
pub fn check(name: &str, actual: &str) {
    check_file(&path(name), actual);
}

/// Compares what differs between two texts of YAML with `tests/golden/NAME`: a unified diff, in which the header of
/// each hunk says where its first change is.
pub fn check_diff(name: &str, before: &str, after: &str) {
    check(name, &unified_diff(before, after));
}

fn unified_diff(before: &str, after: &str) -> String {
    let [old_lines, new_lines] = [before, after].map(|text| text.lines().collect::<Vec<_>>());
    let diff = TextDiff::from_lines(before, after);
    let mut diff = diff.unified_diff();
    let hunks = diff.context_radius(CONTEXT_LINES).iter_hunks();
    let texts = hunks.map(|hunk| {
        let is_change = |op: &&DiffOp| op.tag() != DiffTag::Equal;
        let change = hunk.ops().iter().find(is_change);
        let change = change.expect("a hunk has a change");
        let place = match change.tag() {
            DiffTag::Delete => place(&old_lines, change.old_range().start),
            _ => place(&new_lines, change.new_range().start),
        };
        let (header, lines) = (hunk.header().to_string(), hunk.to_string());
        lines.replacen(&header, format!("{header} {place}").trim_end(), 1)
    });
    texts.collect()
}

/// The template of a line's object, if Helm rendered it, and the keys around the line.
fn place(lines: &[&str], line: usize) -> String {
    let indent = |line: &str| line.find(|char| !matches!(char, ' ' | '-'));
    let mut inner = indent(lines[line]);
    let mut names = Vec::new();
    for line in lines[..line].iter().rev() {
        if let Some(template) = line.strip_prefix(SOURCE) {
            names.push(template.trim_end_matches(".yaml"));
            break;
        }
        let key = line.trim_start_matches([' ', '-']).strip_suffix(':');
        if let Some(key) = key.filter(|_| indent(line) < inner) {
            inner = indent(line);
            names.push(key);
        }
    }
    names.reverse();
    names.join(".")
}

/// Compares `actual` with a file; with `UPDATE_GOLDEN=1`, writes the file instead.
pub fn check_file(path: &Path, actual: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        fs::write(path, actual).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    if expected == actual {
        return;
    }
    let lines = expected.lines().zip(actual.lines());
    let common = lines.take_while(|(expected, actual)| expected == actual);
    let line = common.count();
    let excerpt = |text: &str| {
        text.lines()
            .skip(line)
            .take(10)
            .collect::<Vec<_>>()
            .join("\n")
    };
    panic!(
        "{} differs from line {} on; to accept the change, run the test with UPDATE_GOLDEN=1\n--- expected\n{}\n--- actual\n{}\n",
        path.display(),
        line + 1,
        excerpt(&expected),
        excerpt(actual)
    );
}

/// Compares `text` with what a page has between the markers `<!-- NAME: begin -->` and `<!-- NAME: end -->`.
pub fn check_section(path: &Path, name: &str, text: &str) {
    let page =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let [begin, end] = ["begin", "end"].map(|part| format!("<!-- {name}: {part} -->\n"));
    let parts = page
        .split_once(&begin)
        .and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let (before, after) =
        parts.unwrap_or_else(|| panic!("{} has no section {name}", path.display()));
    check_file(path, &[before, &begin, text, &end, after].concat());
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}
