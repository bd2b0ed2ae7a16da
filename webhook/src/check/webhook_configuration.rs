//! Whether API servers ask about the pods that the chart has them ask about. Others write there too.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, RuleWithOperations};

use super::installation::{Installation, PODS_ENTRY};
use super::report::{CheckResult, Section, Subject};
use super::selector::{Requirement, requirements};
use crate::admission::settings::keys::INJECTION;

/// The entry that advises the authors of workloads.
const WORKLOADS_ENTRY: &str = "workloads.envoy-drainer.dev";

/// The label with a namespace's own name.
/// <https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-metadata-name>
pub(super) const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The labels of namespaces by which the chart, or AKS, leaves some out.
pub(super) const EXCLUSION_LABELS: [&str; 3] = [
    NAMESPACE_NAME,
    "control-plane",
    "kubernetes.azure.com/managedby",
];

/// The conditions of the chart.
const CHART_CONDITIONS: [&str; 3] = ["asks", "not-mirror", "not-windows"];

/// Judges the entries of an installation.
#[must_use]
pub fn section(installation: &Installation) -> Section {
    let mut points = Vec::new();
    if let Some(entry) = installation.pods_entry() {
        points.extend(rules(entry));
        points.extend(namespace_selector(entry));
        points.extend(pod_filters(entry));
        points.extend(reinvocation(entry));
    }
    let mut entries = installation.entries.iter();
    if !entries.any(|entry| entry.name == WORKLOADS_ENTRY) {
        let message =
            format!("the entry `{WORKLOADS_ENTRY}` is missing: nothing warns at `kubectl apply`");
        points.push(CheckResult::warning("entries", message).remedy("upgrade the release"));
    }
    if points.is_empty() {
        let message = "API servers ask about every pod with the annotation, in every namespace with the label";
        points.push(CheckResult::ok("entries", message));
    }
    let about = Subject::cluster_scoped("MutatingWebhookConfiguration", &installation.name);
    Section {
        name: "configuration",
        results: points
            .into_iter()
            .map(|point| point.subject(about.clone()))
            .collect(),
    }
}

/// The namespaces that API servers ask about, as one requirement after the other.
#[must_use]
pub fn namespace_requirements(entry: &MutatingWebhook) -> Vec<Requirement> {
    requirements(entry.namespace_selector.as_ref())
}

/// Returns true for the requirement that a namespace has opted in.
#[must_use]
pub fn is_opt_in(requirement: &Requirement) -> bool {
    requirement.key == INJECTION
        && requirement.operator == "In"
        && requirement.values == ["enabled"]
}

fn rules(entry: &MutatingWebhook) -> Option<CheckResult> {
    let has = |list: &Option<Vec<String>>, wanted: &str| {
        let mut list = list.iter().flatten();
        list.any(|listed| listed == wanted || listed == "*")
    };
    let asks = |rule: &RuleWithOperations| {
        has(&rule.operations, "CREATE")
            && has(&rule.api_groups, "")
            && has(&rule.api_versions, "v1")
            && has(&rule.resources, "pods")
            && rule.scope.as_deref() != Some("Cluster")
    };
    if entry.rules.iter().flatten().any(asks) {
        return None;
    }
    let message =
        format!("API servers do not ask about new pods: the rules of `{PODS_ENTRY}` differ");
    Some(CheckResult::error("rules", message).remedy("upgrade the release, which writes them anew"))
}

fn namespace_selector(entry: &MutatingWebhook) -> Vec<CheckResult> {
    const NAME: &str = "namespace-selector";
    let asked = namespace_requirements(entry);
    let mut points = Vec::new();
    if !asked.iter().any(is_opt_in) {
        let message = format!("API servers do not ask by the label {INJECTION}=enabled");
        points.push(
            CheckResult::warning(NAME, message).remedy("upgrade the release, which writes it anew"),
        );
    }
    let of_others = asked.iter().filter(|requirement| {
        requirement.key != INJECTION && !EXCLUSION_LABELS.contains(&&*requirement.key)
    });
    let narrows = of_others.map(|requirement| {
        let message = format!("API servers ask only about namespaces with `{requirement}` too");
        CheckResult::warning(NAME, message)
            .remedy("somebody else has added that: nothing of the chart's needs it")
    });
    points.extend(narrows);
    points
}

fn pod_filters(entry: &MutatingWebhook) -> Vec<CheckResult> {
    let labels = requirements(entry.object_selector.as_ref());
    let labels = labels.iter().map(|requirement| {
        let message = format!("API servers ask only about pods with the labels `{requirement}`");
        CheckResult::warning("object-selector", message)
            .remedy("somebody else has added that: nothing of the chart's needs it")
    });
    let conditions = entry.match_conditions.iter().flatten();
    let others = conditions.filter(|condition| !CHART_CONDITIONS.contains(&&*condition.name));
    let others = others.map(|condition| {
        let message = format!(
            "API servers ask only about pods that meet the condition `{}` too: {}",
            condition.name, condition.expression
        );
        CheckResult::warning("match-conditions", message)
            .remedy("somebody else has added that: nothing of the chart's needs it")
    });
    labels.chain(others).collect()
}

fn reinvocation(entry: &MutatingWebhook) -> Option<CheckResult> {
    if entry.reinvocation_policy.as_deref() == Some("IfNeeded") {
        return None;
    }
    let message = "an Envoy that a later webhook adds to a pod is not seen (reinvocationPolicy is not `IfNeeded`)";
    Some(
        CheckResult::warning("reinvocation-policy", message)
            .remedy("upgrade the release, which writes it anew"),
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
    use serde_json::{Value, json};

    use super::super::installation;
    use super::*;
    use crate::check::Severity;

    /// The marks and names of what is said about an installation as the chart makes it, changed.
    fn results(change: impl FnOnce(&mut Value)) -> Vec<(Severity, &'static str)> {
        let selector = json!({"matchExpressions": [
            {"key": "envoy-drainer.dev/injection", "operator": "In", "values": ["enabled"]},
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]},
        ]});
        let entry = |name: &str| {
            json!({
                "name": name,
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": {"name": "a", "namespace": "infra"}},
                "sideEffects": "None",
                "namespaceSelector": selector,
                "matchConditions": [{"name": "asks", "expression": "true"}],
                "reinvocationPolicy": "IfNeeded",
                "rules": [{
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["pods"],
                    "operations": ["CREATE"],
                    "scope": "Namespaced",
                }],
            })
        };
        let mut entries = json!([entry(PODS_ENTRY), entry(WORKLOADS_ENTRY)]);
        change(&mut entries);
        let configuration: MutatingWebhookConfiguration =
            serde_json::from_value(json!({"metadata": {"name": "a"}, "webhooks": entries}))
                .unwrap();
        let installation = installation::find(vec![configuration], None).expect("it is there");
        let points = section(&installation).results.into_iter();
        points.map(|point| (point.severity, point.name)).collect()
    }

    #[test]
    fn what_differs_from_the_chart_is_told() {
        fn expressions(entries: &mut Value) -> &mut Vec<Value> {
            let selector = &mut entries[0]["namespaceSelector"]["matchExpressions"];
            selector.as_array_mut().unwrap()
        }
        type Change = fn(&mut Value);
        let table: [(Change, &[(Severity, &str)]); 11] = [
            (|_| {}, &[(Severity::Ok, "entries")]),
            (
                |entries| entries[0]["rules"][0]["operations"] = json!(["UPDATE"]),
                &[(Severity::Error, "rules")],
            ),
            (
                |entries| entries[0]["rules"] = json!(null),
                &[(Severity::Error, "rules")],
            ),
            (
                |entries| {
                    entries[0]["rules"][0]["apiGroups"] = json!(["*"]);
                    entries[0]["rules"][0]["scope"] = json!("*");
                },
                &[(Severity::Ok, "entries")],
            ),
            (
                |entries| entries[0]["namespaceSelector"] = json!(null),
                &[(Severity::Warning, "namespace-selector")],
            ),
            (
                // What AKS' admissions enforcer adds.
                |entries| {
                    let added = json!({"key": "control-plane", "operator": "DoesNotExist"});
                    expressions(entries).push(added);
                },
                &[(Severity::Ok, "entries")],
            ),
            (
                |entries| {
                    expressions(entries).push(json!({"key": "team", "operator": "Exists"}));
                },
                &[(Severity::Warning, "namespace-selector")],
            ),
            (
                |entries| entries[0]["objectSelector"] = json!({"matchLabels": {"a": "1"}}),
                &[(Severity::Warning, "object-selector")],
            ),
            (
                |entries| entries[0]["matchConditions"][0]["name"] = json!("ours"),
                &[(Severity::Warning, "match-conditions")],
            ),
            (
                |entries| entries[0]["reinvocationPolicy"] = json!("Never"),
                &[(Severity::Warning, "reinvocation-policy")],
            ),
            (
                |entries| {
                    entries.as_array_mut().unwrap().truncate(1);
                },
                &[(Severity::Warning, "entries")],
            ),
        ];
        for (at, (change, want)) in table.into_iter().enumerate() {
            assert_eq!(results(change), want, "row {at}");
        }
    }
}
