//! The dry run of a pod that requests a drainer, in each namespace. The API server runs the whole admission chain: the
//! webhook, quotas, Pod Security and all other policies. No pod is created.
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run>

use admission::keys::{INJECT, PREFIX, STATUS};
use admission::{CpuLimit, Defaults, RecordedSkip};
use drainer::SettingValue;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kubernetes::{DryRunResult, ReadError};
use serde_json::json;

use super::installation::PODS_ENTRY;
use super::report::CheckResult;
use crate::pod_status::drainer;
use crate::text::{list_names, plural};

const NAME: &str = "dry-run";

/// The remedy when the API server cannot reach the webhook.
pub(super) const UNREACHABLE_REMEDY: &str = "check that the replicas are ready (section `installation`); if they are, let the API server connect to the port of the webhook's pods (10250 by default), or set `hostNetwork: true` in the chart's values if it cannot reach pods at all";

/// The remedy when others than the webhook reject the pod.
const REJECTION_REMEDY: &str = "the message names what rejects this pod or its drainer, each of which requests as much as a drainer: injection cannot be tested there until both are admitted";

#[derive(Debug)]
pub struct DryRun {
    pub namespace: String,
    pub outcome: Result<DryRunOutcome, ReadError>,
}

/// What happened to the pod of a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DryRunOutcome {
    /// The pod got a drainer.
    Injected,
    /// The webhook skipped it, for this reason.
    Skipped(String),
    /// The webhook did not see it.
    NotInjected,
    /// It was rejected, with this message of the API server.
    Rejected(String),
}

/// A pod that requests a drainer, complies with common policies for pods, and requests as much as a drainer: a
/// LimitRange that rejects it rejects a drainer as well.
pub fn sample_pod(defaults: &Defaults) -> Pod {
    // The drainers' own image: a policy for images that rejects it rejects drainers too.
    let image = match &*defaults.image {
        "" => "envoy",
        image => image,
    };
    // The pod has no volume for a Unix socket, which may be the installation's default.
    let address = format!("{PREFIX}admin-address");
    let annotations = json!({INJECT: "true", address: "127.0.0.1:9901"});
    let amounts = &defaults.settings.values().resources;
    let mut resources = json!({
        "requests": {"cpu": amounts.cpu_request.format(), "memory": amounts.memory_request.format()},
        "limits": {"memory": amounts.memory_limit.format()},
    });
    if let CpuLimit(Some(cpu)) = &amounts.cpu_limit {
        resources["limits"]["cpu"] = cpu.format().into();
    }
    let pod = json!({
        "metadata": {"generateName": "envoy-drainer-check-", "annotations": annotations},
        "spec": {
            "automountServiceAccountToken": false,
            "securityContext": {
                "runAsNonRoot": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "envoy",
                "image": image,
                "resources": resources,
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": true,
                    // OpenShift assigns one.
                    "runAsUser": (!defaults.openshift).then_some(65532),
                },
            }],
        },
    });
    serde_json::from_value(pod).expect("all fields are a pod's")
}

/// Interprets the result for a pod that requests a drainer.
pub fn outcome(result: DryRunResult) -> DryRunOutcome {
    let pod = match result {
        Ok(pod) => pod,
        Err(message) => return DryRunOutcome::Rejected(in_one_line(&message)),
    };
    if drainer(&pod).is_some() {
        return DryRunOutcome::Injected;
    }
    let Some(status) = pod.annotations().get(STATUS) else {
        return DryRunOutcome::NotInjected;
    };
    let skip = RecordedSkip::read(status).map(|skip| skip.to_string());
    DryRunOutcome::Skipped(skip.unwrap_or_else(|| status.clone()))
}

/// A message of the API server in one line: that of a denial has a line for each reason.
pub(super) fn in_one_line(message: &str) -> String {
    message.replace('\n', "; ")
}

/// The remedy if this message rejects a pod since the API server could not call the webhook. A denial names its own.
pub(super) fn unreachable_remedy(rejection: &str) -> Option<&'static str> {
    let failed = format!("failed calling webhook \"{PODS_ENTRY}\"");
    rejection.contains(&failed).then_some(UNREACHABLE_REMEDY)
}

/// The results of all dry runs. `untested` more namespaces had none.
pub(super) fn results(dry_runs: &[DryRun], untested: usize) -> Vec<CheckResult> {
    // Namespaces with one outcome share a result.
    let mut groups: Vec<(&Result<DryRunOutcome, ReadError>, Vec<&str>)> = Vec::new();
    for DryRun { namespace, outcome } in dry_runs {
        match groups.iter_mut().find(|(other, _)| *other == outcome) {
            Some((_, namespaces)) => namespaces.push(namespace),
            None => groups.push((outcome, vec![namespace])),
        }
    }
    let groups = groups.iter().map(|(outcome, names)| result(outcome, names));
    let mut results: Vec<_> = groups.collect();
    results.sort_by_key(|result| result.severity);
    if untested > 0 {
        let was = |count| if count == 1 { "was" } else { "were" };
        let (tried, tried_was) = (plural(dry_runs.len(), "namespace"), was(dry_runs.len()));
        let untested_was = was(untested);
        let message = format!("only {tried} {tried_was} tried, {untested} more {untested_was} not");
        results.push(CheckResult::ok(NAME, message));
    }
    results
}

fn result(outcome: &Result<DryRunOutcome, ReadError>, namespaces: &[&str]) -> CheckResult {
    use DryRunOutcome::{Injected, NotInjected, Rejected, Skipped};
    let listed = list_names(namespaces);
    let requesting = "a pod that requests a drainer";
    let without_drainer = |reason: &str| {
        let message = format!("{requesting} gets none in {listed} (dry run): {reason}");
        CheckResult::error(NAME, message)
    };
    let result = match outcome {
        Err(error) => {
            let what = format!("whether {requesting} gets it in {listed}");
            CheckResult::unknown_blocking(NAME, what, error)
        }
        Ok(Injected) => {
            CheckResult::ok(NAME, format!("{requesting} gets it in {listed} (dry run)"))
        }
        Ok(NotInjected) => without_drainer("the webhook did not respond to the API server")
            .with_remedy(UNREACHABLE_REMEDY),
        Ok(Skipped(reason)) => {
            without_drainer(reason).with_remedy("another webhook may have changed the pod first")
        }
        Ok(Rejected(reason)) => {
            let message = format!("{requesting} is rejected in {listed} (dry run): {reason}");
            // By the webhook's denial, or for the lack of its response.
            let is_by_webhook = reason.contains(&format!("webhook \"{PODS_ENTRY}\""));
            if is_by_webhook {
                let remedy = unreachable_remedy(reason);
                CheckResult::error(NAME, message).with_optional_remedy(remedy)
            } else {
                CheckResult::warning(NAME, message).with_remedy(REJECTION_REMEDY)
            }
        }
    };
    result.with_only_subject("Namespace", namespaces)
}

#[cfg(test)]
mod tests {
    use admission::{
        Decision, NativeSidecar, PodContext, PodSettings, PodView, Settings, decide, token,
    };
    use kubernetes::api_call;

    use serde_json::Value;

    use super::*;
    use crate::check::Severity;

    const QUOTA_MESSAGE: &str = r#"pods "a" is forbidden: exceeded quota: small, requested: limits.memory=65Mi, used: limits.memory=0, limited: limits.memory=50Mi"#;
    const CALL_FAILED_MESSAGE: &str = r#"Internal error occurred: failed calling webhook "pods.envoy-drainer.dev": failed to call webhook: Post "https://a.b.svc:443/inject?timeout=5s": dial tcp 10.96.0.1:443: connect: connection refused"#;

    fn admitted(pod: Value) -> DryRunResult {
        Ok(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn outcome_is_read_from_the_admitted_pod() {
        let envoy = json!({"name": "envoy"});
        let drainer = json!({"name": "envoy-drainer"});
        let status = |status: &str| json!({"annotations": {STATUS: status}});
        let table = [
            (
                json!({"spec": {"containers": [envoy], "initContainers": [drainer]}}),
                DryRunOutcome::Injected,
            ),
            (
                json!({"spec": {"containers": [envoy, drainer]}}),
                DryRunOutcome::Injected,
            ),
            (
                json!({"spec": {"containers": [envoy]}}),
                DryRunOutcome::NotInjected,
            ),
            (json!({}), DryRunOutcome::NotInjected),
            (
                json!({"metadata": status(r#"{"skipped":"DRN008"}"#), "spec": {"containers": [envoy]}}),
                DryRunOutcome::Skipped(
                    "DRN008: Envoy's container has a preStop hook already".to_owned(),
                ),
            ),
            (
                json!({"metadata": status("odd")}),
                DryRunOutcome::Skipped("odd".to_owned()),
            ),
        ];
        for (pod, want) in table {
            assert_eq!(outcome(admitted(pod.clone())), want, "{pod}");
        }
    }

    #[test]
    fn rejection_by_others_is_a_warning() {
        let denied = format!("admission webhook \"{PODS_ENTRY}\" denied the request: DRN020: no");
        let foreign = |message: &str| message.replace(PODS_ENTRY, "other");
        let table = [
            (denied.clone(), Severity::Error, None),
            (foreign(&denied), Severity::Warning, Some(REJECTION_REMEDY)),
            (
                CALL_FAILED_MESSAGE.to_owned(),
                Severity::Error,
                Some(UNREACHABLE_REMEDY),
            ),
            (
                foreign(CALL_FAILED_MESSAGE),
                Severity::Warning,
                Some(REJECTION_REMEDY),
            ),
            (
                QUOTA_MESSAGE.to_owned(),
                Severity::Warning,
                Some(REJECTION_REMEDY),
            ),
        ];
        for (message, severity, remedy) in table {
            let outcome = outcome(Err(message.clone()));
            assert_eq!(outcome, DryRunOutcome::Rejected(message));
            let result = result(&Ok(outcome), &["shop"]);
            assert_eq!(
                (result.severity, result.remedy.as_deref()),
                (severity, remedy)
            );
        }
    }

    #[test]
    fn namespaces_with_one_outcome_share_a_result() {
        let dry_run = |namespace: &str, outcome: Result<DryRunOutcome, ReadError>| DryRun {
            namespace: namespace.to_owned(),
            outcome,
        };
        let forbidden = || Err(ReadError::Forbidden(api_call("create", "pods", None)));
        let dry_runs = [
            dry_run("a", Ok(DryRunOutcome::NotInjected)),
            dry_run("b", Ok(DryRunOutcome::Injected)),
            dry_run("c", Ok(DryRunOutcome::Rejected(QUOTA_MESSAGE.to_owned()))),
            dry_run("d", forbidden()),
            dry_run("e", Ok(DryRunOutcome::Injected)),
            dry_run("f", forbidden()),
        ];
        let found: Vec<_> = results(&dry_runs, 3)
            .into_iter()
            .map(|result| (result.severity, result.message))
            .collect();
        let reason = "the webhook did not respond to the API server";
        let want = [
            (Severity::Ok, "a pod that requests a drainer gets it in `b`, `e` (dry run)".to_owned()),
            (
                Severity::Warning,
                format!("a pod that requests a drainer is rejected in `c` (dry run): {QUOTA_MESSAGE}"),
            ),
            (
                Severity::Error,
                format!("a pod that requests a drainer gets none in `a` (dry run): {reason}"),
            ),
            (
                Severity::Unknown,
                "whether a pod that requests a drainer gets it in `d`, `f` is unknown: forbidden: create pods".to_owned(),
            ),
            (Severity::Ok, "only 6 namespaces were tried, 3 more were not".to_owned()),
        ];
        assert_eq!(found, want);
    }

    fn decision(pod: &Pod, defaults: &Defaults) -> Decision {
        let json = serde_json::to_string(pod).unwrap();
        let context = PodContext::new(Some("shop"), token(&[]));
        decide(&PodView::decode(&json).unwrap(), &context, defaults)
    }

    #[test]
    fn sample_pod_gets_drainer_that_requests_as_much() {
        let product = || Defaults::new("drainer:1", "infra");
        let all = [
            product(),
            Defaults {
                settings: Settings::try_new(PodSettings {
                    admin_address: "unix:/run/envoy/admin.sock".parse().unwrap(),
                    ..PodSettings::default()
                })
                .unwrap(),
                ..product()
            },
            Defaults {
                settings: Settings::try_new(PodSettings {
                    native_sidecar: NativeSidecar::False,
                    ..PodSettings::default()
                })
                .unwrap(),
                ..product()
            },
            Defaults {
                openshift: true,
                ..product()
            },
        ];
        for defaults in all {
            let pod = sample_pod(&defaults);
            let Decision::Inject { plan, warnings, .. } = decision(&pod, &defaults) else {
                panic!("{defaults:?}");
            };
            assert_eq!(warnings, []);
            let resources = &pod.spec.unwrap().containers[0].resources;
            assert_eq!(plan.container.resources, *resources);
        }
    }

    #[test]
    fn sample_pod_has_no_user_on_openshift() {
        let defaults = Defaults {
            openshift: true,
            ..Defaults::new("drainer:1", "infra")
        };
        let pod = sample_pod(&defaults);
        let container = &pod.spec.unwrap().containers[0];
        let security_context = container.security_context.as_ref().unwrap();
        assert_eq!(security_context.run_as_user, None);
    }
}
