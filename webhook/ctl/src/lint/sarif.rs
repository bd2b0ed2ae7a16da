//! Findings as SARIF 2.1.0, which code hosts show beside the lines.
//! <https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>

use serde_json::{Value, json};
use strum::VariantArray;

use super::finding::{LintCode, LintFinding};

/// The address of the repository, which the build of a release sets.
pub const REPOSITORY: &str = match option_env!("REPOSITORY") {
    Some(repository) => repository,
    None => "https://github.com/OWNER/envoy-drainer",
};

/// The findings as a log of one run.
pub fn to_sarif(findings: &[LintFinding]) -> Value {
    let rules = LintCode::VARIANTS.iter().map(|code| {
        let anchor = code.to_string().to_lowercase();
        json!({
            "id": code.to_string(),
            "shortDescription": {"text": code.title()},
            "helpUri": format!("{REPOSITORY}/blob/main/docs/lint.md#{anchor}"),
            "help": {"text": format!("{} Remedy: {}.", code.title(), code.remedy())},
            "defaultConfiguration": {"level": code.severity().to_string()},
        })
    });
    let results = findings.iter().map(|finding| {
        let LintFinding { object, container, message, remedy, .. } = finding;
        let mut location = json!({"artifactLocation": {"uri": finding.source}});
        if let Some(line) = finding.line {
            location["region"] = json!({"startLine": line});
        }
        json!({
            "ruleId": finding.code.to_string(),
            "level": finding.severity.to_string(),
            "message": {"text": format!("{object}, container {container}: {message}. Remedy: {remedy}.")},
            "locations": [{
                "physicalLocation": location,
                "logicalLocations": [{"fullyQualifiedName": object.to_string(), "kind": "object"}],
            }],
        })
    });
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "envoy-drainer",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.collect::<Vec<_>>(),
            }},
            "results": results.collect::<Vec<_>>(),
        }],
    })
}
