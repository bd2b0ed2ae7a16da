//! The rules, selectors and conditions of the MutatingWebhookConfiguration: does it match what the chart
//! has it match? Other controllers write to it too.

use admission::keys::INJECTION;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, RuleWithOperations};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Expression, Selector};
use kubernetes::{ReadError, api_call};

use super::installation::{Installation, PODS_ENTRY};
use super::report::{CheckResult, Section};
use crate::object_name::ObjectName;

/// The entries beside that of pods which ask, and what their lack means.
const OTHER_ENTRIES: [(&str, &str); 2] = [
    (
        "workloads.envoy-drainer.dev",
        "there are no warnings at `kubectl apply`",
    ),
    (
        "all.envoy-drainer.dev",
        "in namespaces with the label `all`, only pods that ask get a drainer",
    ),
];

/// The label with a namespace's own name.
/// <https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-metadata-name>
pub(super) const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The labels of namespaces by which the chart, or AKS, excludes some.
pub(super) const EXCLUSION_LABELS: [&str; 3] = [
    NAMESPACE_NAME,
    "control-plane",
    "kubernetes.azure.com/managedby",
];

/// The value of the label by which a namespace opts in.
pub(crate) const ENABLED: &str = "enabled";

/// The value by which it also requests drainers for all of its Envoys.
pub(crate) const ALL: &str = "all";

/// The chart's match conditions.
const CHART_CONDITIONS: [&str; 3] = ["asks", "not-mirror", "not-windows"];

const SELECTOR: &str = "namespace-selector";

/// The remedy for what the chart sets otherwise.
const RESTORE_REMEDY: &str = "upgrade the release, which restores it";

/// The remedy for what the chart does not set.
const FOREIGN_REMEDY: &str = "this was not set by the chart; remove it";

/// Checks the entries of an installation.
pub fn section(installation: &Installation) -> Section {
    let entry = &installation.pods_entry;
    let selectors = selectors(entry).unwrap_or_else(|error| {
        let what = "which pods the webhook configuration matches";
        vec![CheckResult::unknown_blocking(SELECTOR, what, &error)]
    });
    let mut results: Vec<_> = rules(entry).into_iter().chain(selectors).collect();
    results.extend(match_conditions(entry));
    results.extend(reinvocation(entry));
    for (name, effect) in OTHER_ENTRIES {
        if !installation.entries.iter().any(|entry| entry.name == name) {
            let message = format!("the entry `{name}` is missing: {effect}");
            results
                .push(CheckResult::warning("entries", message).with_remedy("upgrade the release"));
        }
    }
    if results.is_empty() {
        let message = "the webhook configuration matches annotated pods in opted-in namespaces";
        results.push(CheckResult::ok("entries", message));
    }
    for result in &mut results {
        let kind = "MutatingWebhookConfiguration";
        result.subject = Some(ObjectName::cluster_scoped(kind, &installation.name));
    }
    Section::new("configuration", results)
}

/// The requirements of a selector, all of which must be met; none without a selector.
///
/// # Errors
/// When an operator is unknown.
pub fn requirements(selector: Option<&LabelSelector>) -> Result<Vec<Expression>, ReadError> {
    let selector = Selector::try_from(selector.cloned().unwrap_or_default());
    let selector = selector.map_err(|error| ReadError::Failed {
        call: api_call("read", "mutatingwebhookconfigurations", None),
        reason: error.to_string(),
    })?;
    Ok(selector.into_iter().collect())
}

/// The key of the label that a requirement is for.
pub(super) fn key(requirement: &Expression) -> &str {
    match requirement {
        Expression::In(key, _)
        | Expression::NotIn(key, _)
        | Expression::Equal(key, _)
        | Expression::NotEqual(key, _)
        | Expression::Exists(key)
        | Expression::DoesNotExist(key) => key,
    }
}

/// The requirement that a namespace has opted in, as the chart sets it.
pub(crate) fn opt_in() -> Expression {
    let values = [ALL, ENABLED].map(str::to_owned);
    Expression::In(INJECTION.to_owned(), values.into())
}

/// Returns true for the requirement that a namespace has opted in.
pub(crate) fn is_opt_in(requirement: &Expression) -> bool {
    let opts_in = match requirement {
        Expression::In(_, values) => values.contains(ENABLED) && values.len() <= 2,
        Expression::Equal(_, value) => value == ENABLED,
        _ => false,
    };
    opts_in && key(requirement) == INJECTION
}

fn rules(entry: &MutatingWebhook) -> Option<CheckResult> {
    let has = |list: &Option<Vec<String>>, wanted: &str| {
        let mut list = list.iter().flatten();
        list.any(|listed| listed == wanted || listed == "*")
    };
    let matches_pods = |rule: &RuleWithOperations| {
        has(&rule.operations, "CREATE")
            && has(&rule.api_groups, "")
            && has(&rule.api_versions, "v1")
            && has(&rule.resources, "pods")
            && rule.scope.as_deref() != Some("Cluster")
    };
    if entry.rules.iter().flatten().any(matches_pods) {
        return None;
    }
    let message = format!("the rules of `{PODS_ENTRY}` do not match new pods");
    let remedy = "upgrade the release, which restores them";
    Some(CheckResult::error("rules", message).with_remedy(remedy))
}

/// Checks the selectors of namespaces and pods.
fn selectors(entry: &MutatingWebhook) -> Result<Vec<CheckResult>, ReadError> {
    let namespaces = requirements(entry.namespace_selector.as_ref())?;
    let pods = requirements(entry.object_selector.as_ref())?;
    let mut results = Vec::new();
    if !namespaces.iter().any(is_opt_in) {
        let message =
            format!("the namespaceSelector does not require the label {INJECTION}=enabled");
        results.push(CheckResult::warning(SELECTOR, message).with_remedy(RESTORE_REMEDY));
    }
    let is_foreign = |requirement: &&Expression| {
        let key = key(requirement);
        key != INJECTION && !EXCLUSION_LABELS.contains(&key)
    };
    results.extend(namespaces.iter().filter(is_foreign).map(|requirement| {
        let message = format!("the namespaceSelector also requires `{requirement}`");
        CheckResult::warning(SELECTOR, message).with_remedy(FOREIGN_REMEDY)
    }));
    results.extend(pods.iter().map(|requirement| {
        let message = format!("the objectSelector requires `{requirement}`");
        CheckResult::warning("object-selector", message).with_remedy(FOREIGN_REMEDY)
    }));
    Ok(results)
}

fn match_conditions(entry: &MutatingWebhook) -> impl Iterator<Item = CheckResult> {
    let conditions = entry.match_conditions.iter().flatten();
    let foreign = conditions.filter(|condition| !CHART_CONDITIONS.contains(&&*condition.name));
    foreign.map(|condition| {
        let (name, expression) = (&condition.name, &condition.expression);
        let message = format!("the matchConditions also require `{name}`: {expression}");
        CheckResult::warning("match-conditions", message).with_remedy(FOREIGN_REMEDY)
    })
}

fn reinvocation(entry: &MutatingWebhook) -> Option<CheckResult> {
    if entry.reinvocation_policy.as_deref() == Some("IfNeeded") {
        return None;
    }
    let message =
        "an Envoy that a later webhook adds is missed (reinvocationPolicy is not `IfNeeded`)";
    Some(CheckResult::warning("reinvocation-policy", message).with_remedy(RESTORE_REMEDY))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
    use kube::core::SelectorExt;
    use serde_json::{Value, json};

    use super::super::installation;
    use super::*;
    use crate::check::Severity;

    /// The severities and names of the results for the chart's configuration, changed.
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
        let mut entries = json!([
            entry(PODS_ENTRY),
            entry(OTHER_ENTRIES[0].0),
            entry(OTHER_ENTRIES[1].0)
        ]);
        change(&mut entries);
        let configuration: MutatingWebhookConfiguration =
            serde_json::from_value(json!({"metadata": {"name": "a"}, "webhooks": entries}))
                .unwrap();
        let installation = installation::find(vec![configuration], None).expect("it is there");
        let results = section(&installation).results.into_iter();
        results
            .map(|result| (result.severity, result.name))
            .collect()
    }

    #[test]
    fn differences_from_the_chart_are_reported() {
        fn expressions(entries: &mut Value) -> &mut Vec<Value> {
            let selector = &mut entries[0]["namespaceSelector"]["matchExpressions"];
            selector.as_array_mut().unwrap()
        }
        type Change = fn(&mut Value);
        let table: [(Change, &[(Severity, &str)]); 12] = [
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
                |entries| {
                    expressions(entries).push(json!({"key": "team", "operator": "Near"}));
                },
                &[(Severity::Unknown, "namespace-selector")],
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
                    entries.as_array_mut().unwrap().truncate(2);
                },
                &[(Severity::Warning, "entries")],
            ),
        ];
        for (at, (change, want)) in table.into_iter().enumerate() {
            assert_eq!(results(change), want, "row {at}");
        }
    }

    #[test]
    fn operators_match_as_kubernetes_defines_them() {
        let labels = [("a".to_owned(), "1".to_owned())].into();
        let table = [
            (
                json!({"operator": "In", "values": ["1", "2"]}),
                [true, false],
            ),
            (json!({"operator": "In", "values": ["2"]}), [false, false]),
            (json!({"operator": "NotIn", "values": ["1"]}), [false, true]),
            (json!({"operator": "NotIn", "values": ["2"]}), [true, true]),
            (json!({"operator": "Exists"}), [true, false]),
            (json!({"operator": "DoesNotExist"}), [false, true]),
        ];
        for (mut expression, want) in table {
            for (key, want) in ["a", "b"].into_iter().zip(want) {
                expression["key"] = json!(key);
                let selector = json!({"matchExpressions": [expression]});
                let selector = serde_json::from_value(selector).unwrap();
                let requirements = requirements(Some(&selector)).unwrap();
                assert_eq!(requirements[0].matches(&labels), want, "{expression}");
            }
        }
    }

    #[test]
    fn labels_and_expressions_are_requirements() {
        let selector = json!({
            "matchLabels": {"a": "1"},
            "matchExpressions": [
                {"key": "b", "operator": "NotIn", "values": ["2", "1"]},
                {"key": "c", "operator": "DoesNotExist"},
            ],
        });
        let selector = serde_json::from_value(selector).unwrap();
        let found = requirements(Some(&selector)).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|found| (key(found), found.to_string()))
            .collect();
        let want = [("a", "a=1"), ("b", "b notin (1,2)"), ("c", "!c")];
        assert_eq!(found, want.map(|(key, text)| (key, text.to_owned())));
        assert_eq!(requirements(None).unwrap(), []);
    }
}
