//! Dry runs of small pods that request a drainer. The API server runs the whole admission chain: the
//! webhook, quotas, Pod Security and all other policies. No pod is created.
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run>

use admission::settings::keys::{INJECT, PREFIX, STATUS};
use admission::{Code, CpuLimit, Defaults, RecordedSkip};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::installation::PODS_ENTRY;
use super::report::CheckResult;
use crate::kubernetes::{DryRunResult, ReadError, api_call};
use crate::object_name::ObjectName;
use crate::pod_status::drainer;
use crate::text::{list_names, plural};

const NAME: &str = "dry-run";

/// Part of the message of a quota that rejects a pod.
const QUOTA_ERROR: &str = "exceeded quota";

/// The remedy when the API server cannot reach the webhook.
pub(super) const UNREACHABLE_REMEDY: &str = "check that the replicas are ready (section `installation`); if they are, let the API server connect to the port of the webhook's pods (10250 by default), or set `hostNetwork: true` in the chart's values if it cannot reach pods at all";

/// A pod that requests a drainer is tried with these, until one is admitted. One that requests none is also tried with
/// [`DryRunRequests::Unset`].
pub const TRIED_REQUESTS: [DryRunRequests; 3] = [
    DryRunRequests::Minimal,
    DryRunRequests::Guaranteed,
    DryRunRequests::LikeDrainer,
];

/// The resource requests of a dry run's pod, beside those of its drainer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRunRequests {
    /// Next to nothing, with higher limits: a quota that rejects the pod then rejects the drainer, which
    /// requests no more than in most pods.
    Minimal,
    /// Next to nothing, with equal limits, as some LimitRanges require. Its drainer requests as much as
    /// its own limits, and so do drainers in other pods that such LimitRanges admit.
    Guaranteed,
    /// As much as a drainer: a LimitRange that rejects the pod then rejects a drainer as well.
    LikeDrainer,
    /// Nothing: a LimitRange fills in its defaults.
    Unset,
}

#[derive(Debug)]
pub struct DryRun {
    pub namespace: String,
    pub outcome: Result<DryRunOutcome, ReadError>,
}

/// What happened to the pods of a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DryRunOutcome {
    /// The pod got a drainer.
    Injected,
    /// The webhook skipped it, for this reason.
    Skipped(String),
    /// The webhook did not see it.
    NotInjected,
    /// It was rejected since the API server could not call the webhook.
    WebhookCallFailed(String),
    /// The webhook denied it.
    Denied {
        /// The code and its detail.
        reason: String,
        /// What to do about it, if the code is known.
        remedy: Option<&'static str>,
    },
    /// It was rejected, and a pod that does not request a drainer was not.
    DrainerRejected(String),
    /// It was rejected, and so was a pod that does not request a drainer.
    PodRejected(String),
}

/// A pod that complies with common policies for pods.
pub fn sample_pod(inject: bool, requests: DryRunRequests, defaults: &Defaults) -> Pod {
    // The drainers' own image: a policy for images that rejects it rejects drainers too.
    let image = match &*defaults.image {
        "" => "envoy",
        image => image,
    };
    // The pod has no volume for a Unix socket, which may be the installation's default.
    let address = format!("{PREFIX}admin-address");
    let annotations = json!({INJECT: inject.to_string(), address: "127.0.0.1:9901"});
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
                "resources": requests.resources(defaults),
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

impl DryRunRequests {
    fn resources(self, defaults: &Defaults) -> Option<Value> {
        let amounts = &defaults.settings.resources;
        let [requests, limits] = match self {
            // Quotas may require limits, and LimitRanges may bound their ratio to the requests.
            Self::Minimal => [
                json!({"cpu": "1m", "memory": "1Mi"}),
                json!({"cpu": "1m", "memory": "1025Ki"}),
            ],
            Self::Guaranteed => {
                let same = json!({"cpu": "1m", "memory": "1Mi"});
                [same.clone(), same]
            }
            Self::LikeDrainer => {
                let CpuLimit(cpu_limit) = &amounts.cpu_limit;
                let memory_limit = amounts.memory_limit.to_string();
                let mut limits = json!({"memory": memory_limit});
                if let Some(cpu) = cpu_limit {
                    limits["cpu"] = cpu.to_string().into();
                }
                let [cpu, memory] =
                    [&amounts.cpu_request, &amounts.memory_request].map(ToString::to_string);
                [json!({"cpu": cpu, "memory": memory}), limits]
            }
            Self::Unset => return None,
        };
        Some(json!({"requests": requests, "limits": limits}))
    }
}

/// The most relevant of the rejections of one namespace: that by a quota, which counts requests, or
/// else the last, which applies to a drainer as well.
pub fn most_relevant(rejections: &[String]) -> String {
    let is_by_quota = |reason: &&String| reason.contains(QUOTA_ERROR);
    let by_quota = rejections.iter().find(is_by_quota);
    by_quota.or(rejections.last()).cloned().unwrap_or_default()
}

/// Interprets the result for a pod that requests a drainer.
///
/// # Errors
/// The reason when it is rejected by others than the webhook. Whether they also reject pods that request
/// none is to be tried next.
pub fn outcome(result: DryRunResult) -> Result<DryRunOutcome, String> {
    match result {
        Ok(pod) => Ok(outcome_of_admitted(&pod)),
        Err(reason) => webhook_failure(&reason).ok_or(reason),
    }
}

/// The denial by the webhook, or the rejection for its lack of a response; `None` if others reject.
pub(super) fn webhook_failure(reason: &str) -> Option<DryRunOutcome> {
    if reason.contains(&format!("failed calling webhook \"{PODS_ENTRY}\"")) {
        return Some(DryRunOutcome::WebhookCallFailed(reason.to_owned()));
    }
    let denial = format!("admission webhook \"{PODS_ENTRY}\" denied the request: ");
    // The first of its reasons.
    let reason = reason.split_once(&denial)?.1.lines().next()?;
    let mut codes = Code::ALL.iter();
    let code = codes.find(|code| reason.starts_with(&code.to_string()));
    let remedy = code.map(|code| code.remedy());
    // A denial ends with its remedy.
    let cut = remedy.and_then(|remedy| reason.strip_suffix(remedy)?.strip_suffix("; "));
    Some(DryRunOutcome::Denied {
        reason: cut.unwrap_or(reason).to_owned(),
        remedy,
    })
}

fn outcome_of_admitted(pod: &Pod) -> DryRunOutcome {
    if drainer(pod).is_some() {
        return DryRunOutcome::Injected;
    }
    let annotations = pod.metadata.annotations.as_ref();
    let Some(status) = annotations.and_then(|annotations| annotations.get(STATUS)) else {
        return DryRunOutcome::NotInjected;
    };
    let skip = RecordedSkip::read(status).map(|skip| skip.to_string());
    DryRunOutcome::Skipped(skip.unwrap_or_else(|| status.clone()))
}

/// The error when dry runs are rejected as such, by another webhook that does not support them.
/// <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#side-effects>
pub fn unsupported(reason: &str) -> Option<ReadError> {
    let is_unsupported = reason.contains("does not support dry run");
    is_unsupported.then(|| ReadError::Failed {
        call: api_call("create", "pods", None),
        reason: reason.to_owned(),
    })
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
    use DryRunOutcome::{
        Denied, DrainerRejected, Injected, NotInjected, PodRejected, Skipped, WebhookCallFailed,
    };
    let listed = list_names(namespaces);
    let requesting = "a pod that requests a drainer";
    let error = |finding: String, reason: &str| {
        CheckResult::error(NAME, format!("{finding} (dry run): {reason}"))
    };
    let without_drainer = |reason| error(format!("{requesting} gets none in {listed}"), reason);
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
        Ok(WebhookCallFailed(reason)) => {
            error(format!("{requesting} is rejected in {listed}"), reason)
                .with_remedy(UNREACHABLE_REMEDY)
        }
        Ok(Denied { reason, remedy }) => error(
            format!("the webhook denies {requesting} in {listed}"),
            reason,
        )
        .with_optional_remedy(*remedy),
        Ok(DrainerRejected(reason)) => {
            let finding =
                format!("a pod with a drainer is rejected in {listed}, one without is admitted");
            error(finding, reason).with_remedy(rejection_remedy(reason))
        }
        Ok(PodRejected(reason)) => {
            let finding = format!("even a small pod without a drainer is rejected in {listed}");
            CheckResult::warning(NAME, format!("{finding} (dry run): {reason}"))
                .with_remedy("envoy-drainer is not the cause, but injection cannot be tested there")
        }
    };
    match namespaces {
        [namespace] => result.with_subject(ObjectName::cluster_scoped("Namespace", namespace)),
        _ => result,
    }
}

/// What to do about the rejection of a drainer, by its message.
fn rejection_remedy(reason: &str) -> &'static str {
    if reason.contains(QUOTA_ERROR) {
        "raise the ResourceQuota, or lower what drainers request (`drainer` in the chart's values)"
    } else if reason.contains("usage per") || reason.contains("limit to request ratio") {
        "change the LimitRange, or what drainers request (`drainer` in the chart's values)"
    } else if reason.contains("violates PodSecurity") {
        "a drainer meets the standard `restricted`: check what else changes the pods of this namespace"
    } else {
        "ask the owner of the cluster's policy that rejects it"
    }
}

#[cfg(test)]
mod tests {
    use admission::{
        Decision, NativeSidecar, PodContext, PodSettings, PodView, Settings, decide, token,
    };

    use super::*;
    use crate::check::Severity;

    const QUOTA_MESSAGE: &str = r#"pods "a" is forbidden: exceeded quota: small, requested: limits.memory=65Mi, used: limits.memory=0, limited: limits.memory=50Mi"#;
    const LIMIT_RANGE_MESSAGE: &str = r#"pods "a" is forbidden: minimum memory usage per Container is 128Mi, but request is 16Mi"#;
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
            assert_eq!(outcome(admitted(pod.clone())), Ok(want), "{pod}");
        }
    }

    #[test]
    fn failed_call_differs_from_other_rejections() {
        assert_eq!(
            outcome(Err(CALL_FAILED_MESSAGE.to_owned())),
            Ok(DryRunOutcome::WebhookCallFailed(
                CALL_FAILED_MESSAGE.to_owned()
            ))
        );
        let others = CALL_FAILED_MESSAGE.replace(PODS_ENTRY, "other");
        assert_eq!(outcome(Err(others.clone())), Err(others));
        let dry = r#"admission webhook "a" does not support dry run"#;
        assert!(unsupported(dry).is_some());
        assert!(unsupported(QUOTA_MESSAGE).is_none());
    }

    #[test]
    fn denial_has_the_remedy_of_its_code() {
        let denial = Code::SocketNotMounted.diagnostic("no volume at `/run`");
        let other = Code::BadValue.diagnostic("invalid");
        let table = [
            (
                format!("{denial:#}\n{other:#}"),
                "DRN023: no volume at `/run`",
                Some(Code::SocketNotMounted.remedy()),
            ),
            (
                format!("{other:#}"),
                "DRN020: invalid",
                Some(Code::BadValue.remedy()),
            ),
            (
                "DRN999: of a later version".to_owned(),
                "DRN999: of a later version",
                None,
            ),
        ];
        for (message, reason, remedy) in table {
            let message =
                format!(r#"admission webhook "{PODS_ENTRY}" denied the request: {message}"#);
            let others = message.replace(PODS_ENTRY, "other");
            assert_eq!(outcome(Err(others.clone())), Err(others));
            let denied = DryRunOutcome::Denied {
                reason: reason.to_owned(),
                remedy,
            };
            assert_eq!(outcome(Err(message)), Ok(denied.clone()));
            let result = result(&Ok(denied), &["shop"]);
            assert_eq!(result.remedy.as_deref(), remedy);
        }
    }

    #[test]
    fn rejection_by_quota_is_most_relevant() {
        let relevant = |rejections: &[&str]| {
            let rejections: Vec<_> = rejections.iter().map(|&reason| reason.to_owned()).collect();
            most_relevant(&rejections)
        };
        assert_eq!(
            relevant(&[QUOTA_MESSAGE, "exceeded quota: 129Mi"]),
            QUOTA_MESSAGE
        );
        assert_eq!(
            relevant(&["but request is 1Mi", LIMIT_RANGE_MESSAGE]),
            LIMIT_RANGE_MESSAGE
        );
        assert_eq!(relevant(&[]), "");
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
            dry_run(
                "c",
                Ok(DryRunOutcome::DrainerRejected(QUOTA_MESSAGE.to_owned())),
            ),
            dry_run("d", forbidden()),
            dry_run("e", Ok(DryRunOutcome::Injected)),
            dry_run("f", forbidden()),
            dry_run(
                "g",
                Ok(DryRunOutcome::PodRejected(LIMIT_RANGE_MESSAGE.to_owned())),
            ),
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
                format!("even a small pod without a drainer is rejected in `g` (dry run): {LIMIT_RANGE_MESSAGE}"),
            ),
            (
                Severity::Error,
                format!("a pod that requests a drainer gets none in `a` (dry run): {reason}"),
            ),
            (
                Severity::Error,
                format!("a pod with a drainer is rejected in `c`, one without is admitted (dry run): {QUOTA_MESSAGE}"),
            ),
            (
                Severity::Unknown,
                "whether a pod that requests a drainer gets it in `d`, `f` is unknown: forbidden: create pods".to_owned(),
            ),
            (Severity::Ok, "only 7 namespaces were tried, 3 more were not".to_owned()),
        ];
        assert_eq!(found, want);
    }

    #[test]
    fn remedy_depends_on_the_rejecting_policy() {
        for (reason, word) in [
            (QUOTA_MESSAGE, "ResourceQuota"),
            (LIMIT_RANGE_MESSAGE, "LimitRange"),
            (
                r#"cpu max limit to request ratio per Container is 2, but provided ratio is 4"#,
                "LimitRange",
            ),
            (
                r#"pods "a" is forbidden: violates PodSecurity "restricted:latest": …"#,
                "restricted",
            ),
            ("denied by team policy", "policy"),
        ] {
            assert!(rejection_remedy(reason).contains(word), "{reason}");
        }
    }

    fn decision(pod: &Pod, defaults: &Defaults) -> Decision {
        let json = serde_json::to_string(pod).unwrap();
        let context = PodContext::new(Some("shop"), token(&[]));
        decide(&PodView::decode(&json).unwrap(), &context, defaults)
    }

    #[test]
    fn sample_pod_is_injected_without_warnings_if_requested() {
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
        let tried = TRIED_REQUESTS.into_iter().chain([DryRunRequests::Unset]);
        let tried: Vec<_> = tried.collect();
        for (defaults, &requests) in all
            .iter()
            .flat_map(|all| tried.iter().map(move |r| (all, r)))
        {
            let requested = decision(&sample_pod(true, requests, defaults), defaults);
            let Decision::Inject { warnings, .. } = requested else {
                panic!("{requested:?}");
            };
            assert_eq!(warnings, []);
            let not_requested = decision(&sample_pod(false, requests, defaults), defaults);
            assert!(matches!(not_requested, Decision::NotRequested));
        }
    }

    #[test]
    fn drainer_requests_limits_only_in_guaranteed_pods() {
        let defaults = Defaults::new("drainer:1", "infra");
        for (requests, cpu) in [
            (DryRunRequests::Minimal, "25m"),
            (DryRunRequests::Guaranteed, "100m"),
            (DryRunRequests::LikeDrainer, "25m"),
        ] {
            let decision = decision(&sample_pod(true, requests, &defaults), &defaults);
            let Decision::Inject { plan, .. } = decision else {
                panic!("{decision:?}");
            };
            let requested = plan.container.resources.unwrap().requests.unwrap();
            assert_eq!(requested["cpu"].0, cpu, "{requests:?}");
        }
    }

    #[test]
    fn sample_pod_has_no_user_on_openshift() {
        let defaults = Defaults {
            openshift: true,
            ..Defaults::new("drainer:1", "infra")
        };
        let pod = sample_pod(true, DryRunRequests::Unset, &defaults);
        let container = &pod.spec.unwrap().containers[0];
        assert_eq!(container.resources, None);
        let security_context = container.security_context.as_ref().unwrap();
        assert_eq!(security_context.run_as_user, None);
    }
}
