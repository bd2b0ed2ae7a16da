//! docs/dev/claims.md names a test for each claim and for each version of Kubernetes, and each of these tests exists. The
//! pages for users have each claim and no other version.

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

/// Its tables, each by the heading above it, with the least number of rows.
const TABLES: [(&str, usize); 2] = [
    ("# Claims and their tests", 45),
    ("## Versions of Kubernetes", 15),
];

#[test]
fn every_named_test_exists() {
    let page = read(PAGE);
    let missing: Vec<_> = references(&page).filter(|test| !exists(test)).collect();
    assert!(missing.is_empty(), "{PAGE} names {missing:#?}");
}

#[test]
fn every_claim_has_a_test_or_a_reason() {
    let page = read(PAGE);
    for (heading, rows) in TABLES {
        let claims = rows_below(&page, heading);
        assert!(claims.len() >= rows, "{heading}: {} claims", claims.len());
        let untested: Vec<_> = claims
            .into_iter()
            .filter(|claim| references(claim).count() == 0 && !claim.contains("Not tested:"))
            .collect();
        assert!(untested.is_empty(), "{heading}: {untested:#?}");
    }
}

#[test]
fn pages_for_users_have_each_claim_and_tested_versions_alone() {
    let page = read(PAGE);
    let [(claims_heading, _), (versions_heading, _)] = TABLES;
    let security = read("docs/security.md");
    let mut numbers: Vec<_> = security.split('[').skip(1).collect();
    numbers.retain(|it| it.starts_with(|first: char| first.is_ascii_digit()));
    let numbers: Vec<_> = numbers
        .iter()
        .filter_map(|it| it.split(']').next())
        .flat_map(|it| it.split(',').map(str::trim))
        .collect();
    for claim in rows_below(&page, claims_heading) {
        let number = first_cell(claim);
        assert!(numbers.contains(&number), "security.md lacks [{number}]");
    }
    let tested: Vec<_> = rows_below(&page, versions_heading)
        .into_iter()
        .map(first_cell)
        .collect();
    let versions = read("docs/kubernetes-versions.md");
    for row in versions.lines().filter(|line| is_claim(line)) {
        assert!(tested.contains(&first_cell(row)), "{PAGE} lacks {row}");
    }
}

/// The rows of the table below a heading.
fn rows_below<'a>(page: &'a str, heading: &str) -> Vec<&'a str> {
    let below = page.split_once(&format!("{heading}\n"));
    let (_, below) = below.unwrap_or_else(|| panic!("no {heading}"));
    let section = below.split("\n## ").next().unwrap_or_default();
    section.lines().filter(|line| is_claim(line)).collect()
}

fn first_cell(row: &str) -> &str {
    row.split('|').nth(1).unwrap_or_default().trim()
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
