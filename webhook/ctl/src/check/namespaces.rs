//! Which namespaces have opted in, and which only seem to have.

use std::collections::{BTreeMap, BTreeSet};

use admission::keys::{INJECTION, PREFIX};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{Expression, SelectorExt};
use kubernetes::ReadError;

use super::dry_run::{self, DryRun};
use super::report::{CheckResult, Section};
use super::webhook_configuration::{ALL, ENABLED, EXCLUSION_LABELS, NAMESPACE_NAME, key};
use crate::text::{has_or_have, list_names, plural};

/// Values that mean an intended opt-out.
const OPT_OUT_VALUES: [&str; 5] = ["disabled", "false", "off", "no", ""];

/// The remedy for a requirement that is not the chart's.
const FOREIGN_REQUIREMENT_REMEDY: &str =
    "this requirement was not set by the chart; see the section `configuration`";

/// Labels or annotations.
type Strings = BTreeMap<String, String>;

/// The namespaces of a cluster.
#[derive(Debug, Default)]
pub struct Namespaces {
    /// All must be met.
    requirements: Vec<Expression>,
    /// The namespaces that the webhook configuration matches.
    pub selected: BTreeSet<String>,
    /// Those of them that request drainers for all of their Envoys.
    injecting_all: BTreeSet<String>,
    /// The namespaces that are excluded whatever the label, each with the requirement that it does not meet.
    excluded: BTreeMap<String, Expression>,
    /// About namespaces that only seem to have opted in.
    warnings: Vec<CheckResult>,
}

/// Checks the namespaces and the dry runs in those that have opted in.
pub fn section(namespaces: &Result<Namespaces, ReadError>, dry_runs: Option<&[DryRun]>) -> Section {
    let results = match namespaces {
        Ok(namespaces) => {
            let mut results = namespaces.results();
            if let Some(dry_runs) = dry_runs {
                let untested = namespaces.selected.len().saturating_sub(dry_runs.len());
                results.extend(dry_run::results(dry_runs, untested));
            }
            results
        }
        Err(error) => {
            let what = "which namespaces have opted in";
            vec![CheckResult::unknown_blocking("opted-in", what, error)]
        }
    };
    Section::new("namespaces", results)
}

/// The command that opts a namespace in, whatever its label is now.
pub(crate) fn opt_in_command(namespace: &str) -> String {
    format!("kubectl label namespace {namespace} {INJECTION}={ENABLED} --overwrite")
}

fn warning(name: &'static str, namespace: &str, message: String) -> CheckResult {
    CheckResult::warning(name, message).with_only_subject("Namespace", &[namespace])
}

/// The warning about a label or annotation that is meant for pods.
fn misplaced(name: &str, labels: &Strings, annotations: &Strings) -> Option<CheckResult> {
    let others = labels.keys().filter(|key| *key != INJECTION);
    let mut keys = others.chain(annotations.keys());
    let key = keys.find(|key| key.starts_with(PREFIX))?;
    let message = format!("`{name}` has `{key}`, which has no effect on a namespace");
    let remedy = format!("opt in with the label {INJECTION}={ENABLED}; annotations belong on pods");
    Some(warning("misplaced", name, message).with_remedy(remedy))
}

/// The warning about a namespace that seems to opt in with this value of the label, but is excluded by an `unmet`
/// requirement whatever the label, or else has another value than the right one.
fn ineffective_opt_in(name: &str, value: &str, unmet: Option<&Expression>) -> CheckResult {
    let Some(unmet) = unmet else {
        let message = format!(
            "`{name}` has not opted in: the label {INJECTION} is `{value}`, not `{ENABLED}`"
        );
        return warning("label", name, message).with_command(opt_in_command(name));
    };
    let message = format!(
        "`{name}` has the label but is excluded: the webhook configuration requires `{unmet}`"
    );
    warning("left-out", name, message).with_remedy(match key(unmet) {
        NAMESPACE_NAME => "remove the label and run its Envoys in another namespace, unless `admission.excludedNamespaces` in the chart's values lists it",
        _ => FOREIGN_REQUIREMENT_REMEDY,
    })
}

// === impl Namespaces ===

impl Namespaces {
    /// No namespaces yet. Those that meet all requirements are selected.
    pub fn new(requirements: Vec<Expression>) -> Self {
        Self {
            requirements,
            ..Self::default()
        }
    }

    /// Adds a namespace, unless it is being deleted: it admits no new pods.
    pub fn add(&mut self, namespace: ObjectMeta) {
        let (Some(name), None) = (namespace.name, namespace.deletion_timestamp) else {
            return;
        };
        let labels = namespace.labels.unwrap_or_default();
        let annotations = namespace.annotations.unwrap_or_default();
        let misplaced = misplaced(&name, &labels, &annotations);
        self.warnings.extend(misplaced);
        let unmet = |it: &&Expression| !it.matches(&labels);
        let mut unmet = self.requirements.iter().filter(unmet).peekable();
        if unmet.peek().is_none() {
            if labels.get(INJECTION).is_some_and(|value| value == ALL) {
                self.injecting_all.insert(name.clone());
            }
            self.selected.insert(name);
            return;
        }
        let value = labels.get(INJECTION).map(String::as_str);
        // Of the label's own requirements, one that the right value does not meet is not the chart's.
        let foreign = unmet.find(|it| matches!(value, Some(ENABLED | ALL)) || key(it) != INJECTION);
        let opts_in = value.filter(|value| !OPT_OUT_VALUES.contains(value));
        let ineffective = opts_in.map(|value| ineffective_opt_in(&name, value, foreign));
        self.warnings.extend(ineffective);
        if let Some(unmet) = foreign {
            self.excluded.insert(name, unmet.clone());
        }
    }

    /// Whether a namespace is known to request drainers for all of its Envoys.
    pub(super) fn injects_all(namespaces: Option<&Self>, name: Option<&str>) -> bool {
        let known = namespaces.zip(name);
        known.is_some_and(|(namespaces, name)| namespaces.injecting_all.contains(name))
    }

    /// The requirement by which a namespace is excluded whatever its label, and the remedy for a pod there
    /// that requests a drainer.
    pub(super) fn exclusion(&self, name: &str) -> Option<(&Expression, &'static str)> {
        let unmet = self.excluded.get(name)?;
        let remedy = match key(unmet) {
            NAMESPACE_NAME => {
                "run this Envoy in another namespace, or remove this one from `admission.excludedNamespaces` in the chart's values if it is listed there"
            }
            key if EXCLUSION_LABELS.contains(&key) => "run this Envoy in another namespace",
            _ => FOREIGN_REQUIREMENT_REMEDY,
        };
        Some((unmet, remedy))
    }

    fn results(&self) -> Vec<CheckResult> {
        let mut warnings = self.warnings.clone();
        warnings.sort_by_key(|warning| warning.name);
        [vec![self.opt_in_summary()], warnings].concat()
    }

    fn opt_in_summary(&self) -> CheckResult {
        const NAME: &str = "opted-in";
        let count = self.selected.len();
        if count == 0 {
            let command = format!("kubectl label namespace NAMESPACE {INJECTION}={ENABLED}");
            return CheckResult::warning(NAME, "no namespace has opted in").with_command(command);
        }
        let (namespaces, have) = (plural(count, "namespace"), has_or_have(count));
        let names = list_names(&self.selected);
        CheckResult::ok(NAME, format!("{namespaces} {have} opted in: {names}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::check::Severity;

    fn requirements() -> Vec<Expression> {
        let text = str::to_owned;
        vec![
            Expression::In(text(INJECTION), [text("enabled")].into()),
            Expression::NotIn(text(NAMESPACE_NAME), [text("infra")].into()),
        ]
    }

    /// Namespaces with these names and metadata.
    fn namespaces(all: &[(&str, Value)]) -> Namespaces {
        let mut namespaces = Namespaces::new(requirements());
        for (name, metadata) in all {
            let mut metadata = metadata.clone();
            metadata["name"] = json!(name);
            metadata["labels"]["kubernetes.io/metadata.name"] = json!(name);
            namespaces.add(serde_json::from_value(metadata).unwrap());
        }
        namespaces
    }

    fn messages(namespaces: &Namespaces) -> Vec<(Severity, String)> {
        let results = namespaces.results().into_iter();
        results
            .map(|result| (result.severity, result.message))
            .collect()
    }

    #[test]
    fn only_namespaces_with_the_label_are_selected() {
        let labeled = json!({"labels": {INJECTION: "enabled"}});
        let all = namespaces(&[
            ("shop", labeled.clone()),
            ("api", labeled),
            ("default", json!({})),
            ("opted-out", json!({"labels": {INJECTION: "disabled"}})),
            (
                "terminating",
                json!({"labels": {INJECTION: "enabled"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}),
            ),
        ]);
        let message = "2 namespaces have opted in: `api`, `shop`".to_owned();
        assert_eq!(messages(&all), [(Severity::Ok, message)]);
        let none = namespaces(&[("default", json!({}))]);
        let message = "no namespace has opted in".to_owned();
        assert_eq!(messages(&none), [(Severity::Warning, message)]);
    }

    #[test]
    fn ineffective_opt_ins_are_warnings() {
        let table = [
            (
                "shop",
                json!({"labels": {INJECTION: "true"}}),
                "`shop` has not opted in: the label envoy-drainer.dev/injection is `true`, not `enabled`",
            ),
            (
                "shop",
                json!({"labels": {INJECTION: "Enabled"}}),
                "`shop` has not opted in: the label envoy-drainer.dev/injection is `Enabled`, not `enabled`",
            ),
            (
                "infra",
                json!({"labels": {INJECTION: "enabled"}}),
                "`infra` has the label but is excluded: the webhook configuration requires `kubernetes.io/metadata.name notin (infra)`",
            ),
            (
                "infra",
                json!({"labels": {INJECTION: "true"}}),
                "`infra` has the label but is excluded: the webhook configuration requires `kubernetes.io/metadata.name notin (infra)`",
            ),
            (
                "shop",
                json!({"labels": {"envoy-drainer.dev/inject": "true"}}),
                "`shop` has `envoy-drainer.dev/inject`, which has no effect on a namespace",
            ),
            (
                "shop",
                json!({"annotations": {INJECTION: "enabled"}}),
                "`shop` has `envoy-drainer.dev/injection`, which has no effect on a namespace",
            ),
        ];
        for (name, metadata, want) in table {
            let found = messages(&namespaces(&[(name, metadata)]));
            assert_eq!(found[1..], [(Severity::Warning, want.to_owned())]);
        }
    }
}
