//! What becomes of a small pod that asks for a drainer, and is never made: a dry run goes the whole
//! way of a pod's creation, through the webhook, quotas, Pod Security and everything else.
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run>

mod pod;

pub use pod::{DryRunRequests, INJECT_NOT_REQUESTED, INJECT_REQUESTED, sample_pod};

use k8s_openapi::api::core::v1::Pod;

use super::installation::PODS_ENTRY;
use super::report::{CheckResult, Subject};
use super::text::{join, plural};
use crate::admission::settings::keys::STATUS;
use crate::admission::{CONTAINER_NAME, Code, skip_code};
use crate::kubernetes::{ApiCall, DryRunResult, ReadError};

/// The name of the points.
const NAME: &str = "trial";

/// What refusals by quotas say.
const QUOTA_ERROR: &str = "exceeded quota";

/// What to do when the API server has no answer.
pub(super) const UNREACHABLE_REMEDY: &str = "see the replicas above; if they are well, the API server cannot reach them: let it connect to their port, 10250 by default, or set `hostNetwork: true` in the chart's values where it cannot reach pods";

/// What a namespace did with trial pods.
#[derive(Debug)]
pub struct DryRun {
    /// The namespace.
    pub namespace: String,
    /// What came of it.
    pub outcome: Result<DryRunOutcome, ReadError>,
}

/// What came of trial pods in a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DryRunOutcome {
    /// The pod got its drainer.
    Injected,
    /// The webhook left it alone, with this code.
    Skipped(String),
    /// Nobody gave it one.
    NotInjected,
    /// It was refused since the webhook could not be asked.
    WebhookCallFailed(String),
    /// The webhook itself refused it.
    Denied {
        /// With its code.
        reason: String,
        /// What to do about it, if the code is known.
        remedy: Option<&'static str>,
    },
    /// It was refused, and a pod that does not ask was not.
    DrainerRejected(String),
    /// It was refused, and so was a pod that does not ask.
    PodRejected(String),
}

/// The refusal to tell, of those that trial pods met: that of a quota, which counts what is asked for, or
/// else the last, which is as true for a drainer.
#[must_use]
pub fn most_relevant(refusals: Vec<String>) -> String {
    let by_quota = |why: &String| why.contains(QUOTA_ERROR);
    let place = refusals.iter().position(by_quota);
    let place = place.unwrap_or(refusals.len().saturating_sub(1));
    refusals.into_iter().nth(place).unwrap_or_default()
}

/// What an answer to a pod that asks means.
///
/// # Errors
/// When it is refused, and pods that do not ask must be tried too: why.
pub fn outcome(answer: DryRunResult) -> Result<DryRunOutcome, String> {
    let uncalled = format!("failed calling webhook \"{PODS_ENTRY}\"");
    match answer {
        Ok(pod) => Ok(result_of(&pod)),
        Err(why) if why.contains(&uncalled) => Ok(DryRunOutcome::WebhookCallFailed(why)),
        Err(why) => denial(&why).ok_or(why),
    }
}

/// The first of the reasons for which the webhook itself refuses a pod; `None` if others do.
fn denial(why: &str) -> Option<DryRunOutcome> {
    let denies = format!("admission webhook \"{PODS_ENTRY}\" denied the request: ");
    let why = why.split_once(&denies)?.1.lines().next()?;
    let mut codes = Code::ALL.iter();
    let code = codes.find(|code| why.starts_with(&code.to_string()));
    let remedy = code.map(|code| code.remedy());
    // A refusal ends with its remedy.
    let cut = remedy.and_then(|remedy| why.strip_suffix(remedy)?.strip_suffix("; "));
    Some(DryRunOutcome::Denied {
        reason: cut.unwrap_or(why).to_owned(),
        remedy,
    })
}

fn result_of(pod: &Pod) -> DryRunOutcome {
    let spec = pod.spec.iter();
    let mut containers = spec.flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        spec.containers.iter().chain(init)
    });
    if containers.any(|container| container.name == CONTAINER_NAME) {
        return DryRunOutcome::Injected;
    }
    let annotations = pod.metadata.annotations.as_ref();
    match annotations.and_then(|annotations| annotations.get(STATUS)) {
        Some(status) => DryRunOutcome::Skipped(match skip_code(status) {
            Some(code) => format!("{code}: {}", code.sentence()),
            None => status.clone(),
        }),
        None => DryRunOutcome::NotInjected,
    }
}

/// Why a refusal tells nothing of pods: it is for the dry run, which a webhook of others may not know.
/// <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#side-effects>
#[must_use]
pub fn unsupported(why: &str, namespace: &str) -> Option<ReadError> {
    why.contains("does not support dry run")
        .then(|| ReadError::Failed {
            call: ApiCall {
                verb: "create",
                resource: "pods",
                namespace: Some(namespace.to_owned()),
            },
            reason: why.to_owned(),
        })
}

/// Judges the trials of all namespaces; so many more were not tried.
#[must_use]
pub fn results(trials: &[DryRun], untried: usize) -> Vec<CheckResult> {
    // Those of which the same is to be said.
    let mut groups: Vec<(Result<DryRunOutcome, ReadError>, Vec<&str>)> = Vec::new();
    for DryRun { namespace, outcome } in trials {
        let outcome = outcome.clone().map_err(ReadError::without_namespace);
        match groups.iter_mut().find(|(other, _)| *other == outcome) {
            Some((_, namespaces)) => namespaces.push(namespace),
            None => groups.push((outcome, vec![namespace])),
        }
    }
    let mut points: Vec<_> = groups
        .iter()
        .map(|(outcome, namespaces)| check_result(outcome, namespaces))
        .collect();
    points.sort_by_key(|point| point.severity);
    if untried > 0 {
        let message = format!("it was not tried in {}", plural(untried, "more namespace"));
        points.push(CheckResult::ok(NAME, message));
    }
    points
}

fn check_result(outcome: &Result<DryRunOutcome, ReadError>, namespaces: &[&str]) -> CheckResult {
    let listed = join(namespaces.iter().copied());
    let point = match outcome {
        Err(unseen) => {
            let what = format!("whether a pod that asks gets its drainer in {listed}");
            CheckResult::unknown_blocking(NAME, what, unseen)
        }
        Ok(DryRunOutcome::Injected) => CheckResult::ok(
            NAME,
            format!("a pod that asks gets its drainer in {listed} (dry run)"),
        ),
        Ok(DryRunOutcome::NotInjected) => CheckResult::error(
            NAME,
            format!(
                "a pod that asks gets no drainer in {listed} (dry run): the API server has no answer from the webhook"
            ),
        )
        .remedy(UNREACHABLE_REMEDY),
        Ok(DryRunOutcome::WebhookCallFailed(why)) => CheckResult::error(
            NAME,
            format!("a pod that asks is refused in {listed} (dry run): {why}"),
        )
        .remedy(UNREACHABLE_REMEDY),
        Ok(DryRunOutcome::Denied { reason: why, remedy }) => {
            let point = CheckResult::error(
                NAME,
                format!("envoy-drainer refuses a pod that asks in {listed} (dry run): {why}"),
            );
            match remedy {
                Some(remedy) => point.remedy(*remedy),
                None => point,
            }
        }
        Ok(DryRunOutcome::Skipped(why)) => CheckResult::error(
            NAME,
            format!("a pod that asks gets no drainer in {listed} (dry run): {why}"),
        )
        .remedy("another webhook may have changed the pod before"),
        Ok(DryRunOutcome::DrainerRejected(why)) => CheckResult::error(
            NAME,
            format!(
                "a pod with a drainer is refused in {listed}, and one without is not (dry run): {why}"
            ),
        )
        .remedy(rejection_remedy(why)),
        Ok(DryRunOutcome::PodRejected(why)) => CheckResult::warning(
            NAME,
            format!("even a small pod without a drainer is refused in {listed} (dry run): {why}"),
        )
        .remedy("this is not for envoy-drainer, and keeps it from being tried there"),
    };
    match namespaces {
        [namespace] => point.subject(Subject::cluster_scoped("Namespace", *namespace)),
        _ => point,
    }
}

/// What to do about the refusal of a drainer, by the words of who refuses.
fn rejection_remedy(why: &str) -> &'static str {
    if why.contains(QUOTA_ERROR) {
        "raise the ResourceQuota, or lower what drainers request (`drainer` in the chart's values)"
    } else if why.contains("usage per") || why.contains("limit to request ratio") {
        "change the LimitRange, or what drainers request (`drainer` in the chart's values)"
    } else if why.contains("violates PodSecurity") {
        "a drainer meets the standard `restricted`: see what else changes the pods of this namespace"
    } else {
        "ask whoever refuses it, which is a policy of this cluster"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::check::Severity;

    const QUOTA_MESSAGE: &str = r#"pods "a" is forbidden: exceeded quota: small, requested: limits.memory=65Mi, used: limits.memory=0, limited: limits.memory=50Mi"#;
    const LIMIT_RANGE_MESSAGE: &str = r#"pods "a" is forbidden: minimum memory usage per Container is 128Mi, but request is 16Mi"#;
    const CALL_FAILED_MESSAGE: &str = r#"Internal error occurred: failed calling webhook "pods.envoy-drainer.dev": failed to call webhook: Post "https://a.b.svc:443/inject?timeout=5s": dial tcp 10.96.0.1:443: connect: connection refused"#;

    fn answer(pod: Value) -> DryRunResult {
        Ok(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn what_became_of_a_pod_is_seen_in_it() {
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
                    "DRN008: Envoy's container has a preStop hook already.".to_owned(),
                ),
            ),
            (
                json!({"metadata": status("odd")}),
                DryRunOutcome::Skipped("odd".to_owned()),
            ),
        ];
        for (pod, want) in table {
            assert_eq!(outcome(answer(pod.clone())), Ok(want), "{pod}");
        }
    }

    #[test]
    fn a_refusal_is_told_from_a_webhook_that_was_not_reached() {
        let told = outcome(Err(CALL_FAILED_MESSAGE.to_owned()));
        assert_eq!(
            told,
            Ok(DryRunOutcome::WebhookCallFailed(
                CALL_FAILED_MESSAGE.to_owned()
            ))
        );
        let others = CALL_FAILED_MESSAGE.replace(PODS_ENTRY, "other");
        assert_eq!(outcome(Err(others.clone())), Err(others));
        let dry = r#"admission webhook "a" does not support dry run"#;
        assert!(unsupported(dry, "shop").is_some());
        assert!(unsupported(QUOTA_MESSAGE, "shop").is_none());
    }

    #[test]
    fn a_refusal_of_the_webhook_itself_is_told_with_its_codes_remedy() {
        let notice = Code::SocketNotMounted.diagnostic("no volume at `/run`");
        let other = Code::BadValue.diagnostic("invalid");
        let table = [
            (
                format!("{notice:#}\n{other:#}"),
                "DRN023: no volume at `/run`",
                Some(Code::SocketNotMounted.remedy()),
            ),
            (
                format!("{other:#}"),
                "DRN020: invalid",
                Some(Code::BadValue.remedy()),
            ),
            ("DRN999: of later".to_owned(), "DRN999: of later", None),
        ];
        for (told, why, remedy) in table {
            let told = format!(r#"admission webhook "{PODS_ENTRY}" denied the request: {told}"#);
            let others = told.replace(PODS_ENTRY, "other");
            assert_eq!(outcome(Err(others.clone())), Err(others));
            let why = why.to_owned();
            let denied = DryRunOutcome::Denied {
                reason: why,
                remedy,
            };
            assert_eq!(outcome(Err(told)), Ok(denied.clone()));
            let point = check_result(&Ok(denied), &["shop"]);
            assert_eq!(point.remedy.as_deref(), remedy);
        }
    }

    #[test]
    fn of_several_refusals_the_one_that_is_true_for_drainers_is_told() {
        let told =
            |refusals: &[&str]| most_relevant(refusals.iter().map(|&why| why.to_owned()).collect());
        assert_eq!(
            told(&[QUOTA_MESSAGE, "exceeded quota: 129Mi"]),
            QUOTA_MESSAGE
        );
        assert_eq!(
            told(&["but request is 1Mi", LIMIT_RANGE_MESSAGE]),
            LIMIT_RANGE_MESSAGE
        );
        assert_eq!(told(&[]), "");
    }

    #[test]
    fn namespaces_of_which_the_same_is_to_be_said_share_a_line() {
        let trial = |namespace: &str, outcome: Result<DryRunOutcome, ReadError>| DryRun {
            namespace: namespace.to_owned(),
            outcome,
        };
        let forbidden = |namespace: &str| {
            Err(ReadError::Forbidden(ApiCall {
                verb: "create",
                resource: "pods",
                namespace: Some(namespace.to_owned()),
            }))
        };
        let trials = [
            trial("a", Ok(DryRunOutcome::NotInjected)),
            trial("b", Ok(DryRunOutcome::Injected)),
            trial(
                "c",
                Ok(DryRunOutcome::DrainerRejected(QUOTA_MESSAGE.to_owned())),
            ),
            trial("d", forbidden("d")),
            trial("e", Ok(DryRunOutcome::Injected)),
            trial("f", forbidden("f")),
            trial(
                "g",
                Ok(DryRunOutcome::PodRejected(LIMIT_RANGE_MESSAGE.to_owned())),
            ),
        ];
        let told: Vec<_> = results(&trials, 3)
            .into_iter()
            .map(|point| (point.severity, point.message))
            .collect();
        let why = "the API server has no answer from the webhook";
        let want = [
            (Severity::Ok, "a pod that asks gets its drainer in `b`, `e` (dry run)".to_owned()),
            (
                Severity::Warning,
                format!("even a small pod without a drainer is refused in `g` (dry run): {LIMIT_RANGE_MESSAGE}"),
            ),
            (
                Severity::Error,
                format!("a pod that asks gets no drainer in `a` (dry run): {why}"),
            ),
            (
                Severity::Error,
                format!("a pod with a drainer is refused in `c`, and one without is not (dry run): {QUOTA_MESSAGE}"),
            ),
            (
                Severity::Unknown,
                "whether a pod that asks gets its drainer in `d`, `f` is not known: you may not create pods".to_owned(),
            ),
            (Severity::Ok, "it was not tried in 3 more namespaces".to_owned()),
        ];
        assert_eq!(told, want);
    }

    #[test]
    fn each_refuser_has_its_remedy() {
        for (why, word) in [
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
            assert!(rejection_remedy(why).contains(word), "{why}");
        }
    }
}
