//! Which namespaces have opted in, and which only look as if they had.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::report::{CheckResult, Subject};
use super::selector::Requirement;
use super::text::{has_or_have, join, plural};
use super::webhook_configuration::{EXCLUSION_LABELS, NAMESPACE_NAME};
use crate::admission::settings::keys::{INJECTION, PREFIX};
use crate::kubernetes::ReadError;

/// The label's value that opts in.
const ENABLED: &str = "enabled";

/// Values by which people say that they do not want something.
const OPT_OUT_VALUES: [&str; 5] = ["disabled", "false", "off", "no", ""];

/// What to do about a requirement that is not the chart's.
const FOREIGN_REQUIREMENT_REMEDY: &str = "somebody else has added that: see `configuration` above";

/// The namespaces of a cluster.
#[derive(Debug)]
pub struct Namespaces {
    requirements: Vec<Requirement>,
    /// Those that API servers ask about.
    pub selected: BTreeSet<String>,
    /// Left out, labelled or not, and by what.
    excluded: BTreeMap<String, Requirement>,
    /// Labelled, and left out nevertheless, by what.
    excluded_with_label: Vec<(String, Requirement)>,
    /// Labelled with another value.
    wrong_label_values: Vec<(String, String)>,
    /// With another label, or an annotation, that is of pods.
    misplaced: Vec<(String, String)>,
}

// === impl Namespaces ===

impl Namespaces {
    /// None yet. API servers ask about those that meet all of these.
    #[must_use]
    pub fn new(asked_about: Vec<Requirement>) -> Self {
        Self {
            requirements: asked_about,
            selected: BTreeSet::new(),
            excluded: BTreeMap::new(),
            excluded_with_label: Vec::new(),
            wrong_label_values: Vec::new(),
            misplaced: Vec::new(),
        }
    }

    /// Takes one more into account. One that is going takes no new pods.
    pub fn add(&mut self, namespace: ObjectMeta) {
        let ObjectMeta {
            name: Some(name),
            labels,
            annotations,
            deletion_timestamp: None,
            ..
        } = namespace
        else {
            return;
        };
        let labels = labels.unwrap_or_default();
        let keys = labels.keys().filter(|key| *key != INJECTION);
        let annotations = annotations.unwrap_or_default();
        let ours = keys
            .chain(annotations.keys())
            .find(|key| key.starts_with(PREFIX));
        if let Some(key) = ours {
            self.misplaced.push((name.clone(), key.clone()));
        }
        let value = labels.get(INJECTION).map(String::as_str);
        let mut unmet = self
            .requirements
            .iter()
            .filter(|asked| !asked.is_met(&labels));
        let beside_label = unmet.clone().find(|unmet| unmet.key != INJECTION);
        if let Some(beside_label) = beside_label {
            self.excluded.insert(name.clone(), beside_label.clone());
        }
        let unmet = unmet.next();
        match (unmet, value) {
            (None, _) => {
                self.selected.insert(name);
            }
            (Some(unmet), Some(ENABLED)) => self.excluded_with_label.push((name, unmet.clone())),
            (Some(_), Some(value)) if !OPT_OUT_VALUES.contains(&value) => match beside_label {
                // The right value would not help.
                Some(unmet) => self.excluded_with_label.push((name, unmet.clone())),
                None => self.wrong_label_values.push((name, value.to_owned())),
            },
            (Some(_), _) => {}
        }
    }

    /// Why API servers do not ask about the pods of a namespace though it has the label, or would not if
    /// it had; and what to do about a pod that asks there.
    pub(super) fn exclusion(&self, name: &str) -> Option<(&Requirement, &'static str)> {
        let left_out = || {
            let mut left_out = self.excluded_with_label.iter();
            left_out.find(|(labelled, _)| labelled == name)
        };
        let unmet = self
            .excluded
            .get(name)
            .or_else(|| left_out().map(|(_, unmet)| unmet))?;
        let remedy = match &*unmet.key {
            NAMESPACE_NAME => {
                "run this Envoy in another namespace, or take this one out of `admission.excludedNamespaces` in the chart's values if it is there"
            }
            key if EXCLUSION_LABELS.contains(&key) => "run this Envoy in another namespace",
            _ => FOREIGN_REQUIREMENT_REMEDY,
        };
        Some((unmet, remedy))
    }

    /// Judges them.
    #[must_use]
    pub fn results(&self) -> Vec<CheckResult> {
        let mut points = vec![self.opt_in_summary()];
        points.extend(self.excluded_with_label.iter().map(|(name, unmet)| {
            let message = format!(
                "`{name}` has the label, but API servers leave it out: they ask where `{unmet}`"
            );
            let remedy = match &*unmet.key {
                NAMESPACE_NAME => "remove the label and run its Envoys in another namespace, unless `admission.excludedNamespaces` in the chart's values names it",
                _ => FOREIGN_REQUIREMENT_REMEDY,
            };
            CheckResult::warning("left-out", message)
                .remedy(remedy)
                .subject(Subject::cluster_scoped("Namespace", name))
        }));
        points.extend(self.wrong_label_values.iter().map(|(name, value)| {
            let message = format!(
                "`{name}` has not opted in: the label {INJECTION} is `{value}`, and only `{ENABLED}` counts"
            );
            CheckResult::warning("label", message)
                .command(format!(
                    "kubectl label namespace {name} {INJECTION}={ENABLED} --overwrite"
                ))
                .subject(Subject::cluster_scoped("Namespace", name))
        }));
        points.extend(self.misplaced.iter().map(|(name, key)| {
            let message = format!("`{name}` has `{key}`, which means nothing for a namespace");
            CheckResult::warning("misplaced", message)
                .remedy(format!("namespaces opt in by the label {INJECTION}={ENABLED}; annotations are the pods'"))
                .subject(Subject::cluster_scoped("Namespace", name))
        }));
        points
    }

    fn opt_in_summary(&self) -> CheckResult {
        const NAME: &str = "opted-in";
        if self.selected.is_empty() {
            return CheckResult::warning(NAME, "no namespace has opted in").command(format!(
                "kubectl label namespace NAMESPACE {INJECTION}={ENABLED}"
            ));
        }
        let listed = join(self.selected.iter().map(String::as_str));
        let many = self.selected.len();
        let namespaces = plural(many, "namespace");
        CheckResult::ok(
            NAME,
            format!("{namespaces} {} opted in: {listed}", has_or_have(many)),
        )
    }
}

/// Judges the namespaces, if they could be seen.
#[must_use]
pub fn results(namespaces: &Result<Namespaces, ReadError>) -> Vec<CheckResult> {
    match namespaces {
        Ok(namespaces) => namespaces.results(),
        Err(unseen) => vec![CheckResult::unknown_blocking(
            "opted-in",
            "which namespaces have opted in",
            unseen,
        )],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::check::Severity;

    fn requirements() -> Vec<Requirement> {
        let requirement = |key: &str, operator: &str, value: &str| Requirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: vec![value.to_owned()],
        };
        vec![
            requirement(INJECTION, "In", "enabled"),
            requirement("kubernetes.io/metadata.name", "NotIn", "infra"),
        ]
    }

    /// Namespaces of these metadata beside their names.
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
        let points = namespaces.results().into_iter();
        points
            .map(|point| (point.severity, point.message))
            .collect()
    }

    #[test]
    fn those_with_the_label_have_opted_in_and_the_rest_is_nobodys_business() {
        let labelled = json!({"labels": {INJECTION: "enabled"}});
        let all = namespaces(&[
            ("shop", labelled.clone()),
            ("api", labelled),
            ("default", json!({})),
            ("quiet", json!({"labels": {INJECTION: "disabled"}})),
            (
                "gone",
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
    fn what_looks_like_opting_in_is_told() {
        let table = [
            (
                "shop",
                json!({"labels": {INJECTION: "true"}}),
                "`shop` has not opted in: the label envoy-drainer.dev/injection is `true`, and only `enabled` counts",
            ),
            (
                "shop",
                json!({"labels": {INJECTION: "Enabled"}}),
                "`shop` has not opted in: the label envoy-drainer.dev/injection is `Enabled`, and only `enabled` counts",
            ),
            (
                "infra",
                json!({"labels": {INJECTION: "enabled"}}),
                "`infra` has the label, but API servers leave it out: they ask where `kubernetes.io/metadata.name NotIn (infra)`",
            ),
            (
                "infra",
                json!({"labels": {INJECTION: "true"}}),
                "`infra` has the label, but API servers leave it out: they ask where `kubernetes.io/metadata.name NotIn (infra)`",
            ),
            (
                "shop",
                json!({"labels": {"envoy-drainer.dev/inject": "true"}}),
                "`shop` has `envoy-drainer.dev/inject`, which means nothing for a namespace",
            ),
            (
                "shop",
                json!({"annotations": {INJECTION: "enabled"}}),
                "`shop` has `envoy-drainer.dev/injection`, which means nothing for a namespace",
            ),
        ];
        for (name, metadata, want) in table {
            let told = messages(&namespaces(&[(name, metadata)]));
            assert_eq!(told[1..], [(Severity::Warning, want.to_owned())]);
        }
    }
}
