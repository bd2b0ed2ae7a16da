//! `envoy-drainer lint`: its output, exit codes and page.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ctl::lint::{LintCode, REPOSITORY};
use strum::VariantArray;
use tests::{binaries, golden};

use super::text;

const HOOKS: &str = "lint/hooks.yaml";

fn lint(args: &[&str]) -> Output {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut command = Command::new(binaries::envoy_drainer().unwrap());
    let command = command.current_dir(folder).arg("lint").args(args);
    command.output().unwrap()
}

/// Checks a stream of documents.
fn lint_stdin(documents: &str) -> Output {
    let mut command = Command::new(binaries::envoy_drainer().unwrap());
    let command = command.arg("lint").stdin(Stdio::piped());
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(documents.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

#[test]
fn hooks_are_reported_with_their_remedies() {
    let output = lint(&[HOOKS]);
    golden::check("lint/hooks.txt", text(&output.stdout));
    assert_eq!(
        text(&output.stderr),
        "5 errors, 2 warnings in 4 hooks of 4 Envoys\n"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn sarif_and_json_have_each_finding_with_its_line() {
    let output = lint(&["--output=sarif", HOOKS]);
    let sarif = text(&output.stdout).replace(REPOSITORY, "https://github.com/OWNER/envoy-drainer");
    golden::check("lint/hooks.sarif", &sarif);
    let output = lint(&["--output=json", HOOKS]);
    golden::check("lint/hooks.json", text(&output.stdout));
}

#[test]
fn warnings_fail_only_with_strict() {
    let manifest = "lint/sleep.yaml";
    assert_eq!(lint(&[manifest]).status.code(), Some(0));
    assert_eq!(lint(&["--strict", manifest]).status.code(), Some(1));
}

#[test]
fn what_cannot_be_judged_is_told() {
    let service = "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: edge}\n\
        spec: {template: {spec: {containers: [{name: envoy}]}}}\n";
    let pod = |hook: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{containers: [{{name: envoy, \
             lifecycle: {{preStop: {hook}}}}}]}}\n"
        )
    };
    let get = pod("{httpGet: {path: /healthcheck/fail, port: 9901}}");
    let unknown =
        "stdin:1: warning: Service edge: its hooks are not checked: this kind is not known";
    let table = [
        (String::new(), 3, "stdin:1: skipped: nothing to check"),
        (
            "kind: A\napiVersion: v1\n".to_owned(),
            3,
            "stdin:1: skipped",
        ),
        (service.to_owned(), 3, unknown),
        (
            pod("{tcpSocket: {port: 1}}"),
            3,
            "the action of one is not known",
        ),
        ("a: [".to_owned(), 3, "stdin:1:4: error: "),
        (service.to_owned() + &get, 1, unknown),
        (pod("{httpGet: {path: /wait, port: 8090}}"), 0, "0 errors"),
    ];
    for (documents, code, told) in table {
        let output = lint_stdin(&documents);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{documents}{stderr}");
        assert!(stderr.contains(told), "{documents}{stderr}");
    }
    assert_eq!(lint(&["no-such-file.yaml"]).status.code(), Some(3));
    let strict = ["--strict", "lint/sleep.yaml", "no-such-file.yaml"];
    assert_eq!(lint(&strict).status.code(), Some(1));
    assert_eq!(lint(&["-n=shop", "lint/sleep.yaml"]).status.code(), Some(2));
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
