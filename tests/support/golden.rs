//! Golden files: the expected output of tests, in `tests/golden`.

use std::fs;
use std::path::{Path, PathBuf};

/// Reads `tests/golden/NAME`.
pub fn read(name: &str) -> String {
    let path = path(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Compares `actual` with `tests/golden/NAME`.
pub fn check(name: &str, actual: &str) {
    check_file(&path(name), actual);
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
    let common = expected
        .lines()
        .zip(actual.lines())
        .take_while(|(expected, actual)| expected == actual);
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

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}
