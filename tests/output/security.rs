//! docs/dev/claims.md names a test for each claim and for each version of Kubernetes, and each of these tests exists. The
//! pages for users have each claim, and no other version.

use std::fs;
use std::path::{Path, PathBuf};

/// The attributes of a test function, on one of the three lines above it.
const ATTRIBUTES: [&str; 2] = ["#[test]", "#[tokio::test"];

/// The parameter of a test that the macro `for_each_envoy` runs.
const ENVOY: &str = "binary: EnvoyBinary";

/// The command that runs selected scenarios of tests/e2e.
const E2E: &str = "make e2e ONLY=";

/// The page with the tests.
const PAGE: &str = "docs/dev/claims.md";

#[test]
fn every_named_test_exists() {
    let page = read(PAGE);
    let missing: Vec<_> = references(&page).filter(|test| !exists(test)).collect();
    assert!(missing.is_empty(), "{PAGE} names {missing:#?}");
}

#[test]
fn every_claim_has_a_test_or_a_reason() {
    let page = read(PAGE);
    let (claims, versions) = page.split_once("\n## Versions of Kubernetes\n").unwrap();
    for (text, rows) in [(claims, 45), (versions, 15)] {
        let mut claims: Vec<_> = text.lines().filter(|line| is_claim(line)).collect();
        assert!(claims.len() >= rows, "{} claims", claims.len());
        claims.retain(|it| references(it).count() == 0 && !it.contains("Not tested:"));
        assert!(claims.is_empty(), "{claims:#?}");
    }
    let told = read("docs/kubernetes-versions.md");
    for row in told.lines().filter(|line| is_claim(line)) {
        assert!(versions.contains(&format!("|{}|", row.split('|').nth(1).unwrap())));
    }
    let told = read("docs/security.md");
    let told: Vec<_> = told.split(['[', ',', ']']).map(str::trim).collect();
    for claim in claims.lines().filter(|line| is_claim(line)) {
        assert!(told.contains(&claim.split('|').nth(1).unwrap().trim()));
    }
}

/// Whether a line is a row of a table of claims: those begin with a number, or with a version.
fn is_claim(line: &str) -> bool {
    let row = line.strip_prefix("| ");
    row.is_some_and(|row| row.starts_with(|first: char| first.is_ascii_digit()))
}

/// The tests that a text names in backticks: `tests/integration/server.rs::name`, or `make e2e ONLY=word`.
fn references(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split('`').skip(1).step_by(2);
    code.filter(|code| code.contains(".rs::") || code.starts_with(E2E))
}

fn exists(test: &str) -> bool {
    if let Some(word) = test.strip_prefix(E2E) {
        return read("tests/e2e/scenarios.rs").contains(&format!("\"{word}\" => "));
    }
    let Some((file, name)) = test.split_once("::") else {
        return false;
    };
    let Ok(source) = fs::read_to_string(root().join(file)) else {
        return false;
    };
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    lines.iter().enumerate().any(|(at, line)| {
        let function = line.strip_prefix("async ").unwrap_or(line);
        let Some(parameters) = function.strip_prefix(&format!("fn {name}(")) else {
            return false;
        };
        let mut preceding = lines[at.saturating_sub(3)..at].iter();
        let has_attribute = preceding.any(|line| ATTRIBUTES.iter().any(|it| line.starts_with(it)));
        let next_line = lines.get(at + 1).copied().unwrap_or_default();
        has_attribute || [parameters, next_line].concat().starts_with(ENVOY)
    })
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
