//! `envoy-drainer lint`: its output, exit codes and page.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use ctl::lint::LintCode;
use serde_json::Value;
use strum::VariantArray;
use tests::{binaries, golden};

const HOOKS: &str = "lint/hooks.yaml";

fn lint(args: &[&str]) -> Output {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut command = Command::new(binaries::envoy_drainer().unwrap());
    let command = command.current_dir(folder).arg("lint").args(args);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn hooks_are_reported_with_their_remedies() {
    let output = lint(&[HOOKS]);
    golden::check("lint/hooks.txt", text(&output.stdout));
    assert_eq!(
        text(&output.stderr),
        "3 errors, 2 warnings in 3 hooks of Envoys\n"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn sarif_has_each_finding_with_its_line() {
    let output = lint(&["--output=sarif", HOOKS]);
    golden::check("lint/hooks.sarif", text(&output.stdout));
    let log: Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.len(), 5);
}

#[test]
fn warnings_fail_only_with_strict() {
    let manifest = "lint/sleep.yaml";
    assert_eq!(lint(&[manifest]).status.code(), Some(0));
    assert_eq!(lint(&["--strict", manifest]).status.code(), Some(1));
    assert_eq!(lint(&["no-such-file.yaml"]).status.code(), Some(1));
}

#[test]
fn page_lists_every_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/lint.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let mut table = String::from("| code | severity | finding |\n| --- | --- | --- |\n");
    for code in LintCode::VARIANTS {
        let (severity, title) = (code.severity(), code.title());
        let _ = writeln!(
            table,
            "| [{code}](#{}) | {severity} | {title} |",
            code.to_string().to_lowercase()
        );
        assert!(
            page.contains(&format!("\n### {code}\n")),
            "{code} has no section"
        );
    }
    golden::check_section(&path, "codes", &table);
}
