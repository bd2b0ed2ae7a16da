//! Files that hold what is expected, beside what it is made from.

use std::fs;
use std::path::{Path, PathBuf};

/// Reads `tests/golden/NAME`.
#[must_use]
pub fn read(name: &str) -> String {
    let path = path(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Compares `actual` with `tests/golden/NAME`.
pub fn check(name: &str, actual: &str) {
    check_file(&path(name), actual);
}

/// Compares `actual` with a file; with `UPDATE_GOLDEN=1`, writes it.
pub fn check_file(path: &Path, actual: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        fs::write(path, actual).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    if expected == actual {
        return;
    }
    let same = expected
        .lines()
        .zip(actual.lines())
        .take_while(|(want, got)| want == got);
    let line = same.count();
    let from = |text: &str| {
        text.lines()
            .skip(line)
            .take(10)
            .collect::<Vec<_>>()
            .join("\n")
    };
    panic!(
        "{} differs from line {} on; if that is right, run the test with UPDATE_GOLDEN=1\n--- wanted\n{}\n--- got\n{}\n",
        path.display(),
        line + 1,
        from(&expected),
        from(actual)
    );
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}
