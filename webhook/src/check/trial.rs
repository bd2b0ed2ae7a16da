//! What becomes of a small pod that asks for a drainer, and is never made: a dry run goes the whole
//! way of a pod's creation, through the webhook, quotas, Pod Security and everything else.
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run>

mod pod;

pub use pod::{ASKING, NOT_ASKING, Requests, pod};

use k8s_openapi::api::core::v1::Pod;

use super::installation::PODS_ENTRY;
use super::point::{About, Point};
use super::words::{count, names};
use crate::admission::annotations::STATUS;
use crate::admission::{CONTAINER_NAME, Code, skipped_for};
use crate::kubernetes::{Answer, Call, Unseen};

/// The name of the points.
const NAME: &str = "trial";

/// What refusals by quotas say.
const QUOTA: &str = "exceeded quota";

/// What to do when the API server has no answer.
pub(super) const UNREACHABLE: &str = "see the replicas above; if they are well, the API server cannot reach them: let it connect to their port, 10250 by default, or set `hostNetwork: true` in the chart's values where it cannot reach pods";

/// What a namespace did with trial pods.
#[derive(Debug)]
pub struct Trial {
    /// The namespace.
    pub namespace: String,
    /// What came of it.
    pub outcome: Result<Outcome, Unseen>,
}

/// What came of trial pods in a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The pod got its drainer.
    Injected,
    /// The webhook left it alone, with this code.
    Skipped(String),
    /// Nobody gave it one.
    NotSeen,
    /// It was refused since the webhook could not be asked.
    Uncalled(String),
    /// The webhook itself refused it.
    Denied {
        /// With its code.
        why: String,
        /// What to do about it, if the code is known.
        remedy: Option<&'static str>,
    },
    /// It was refused, and a pod that does not ask was not.
    Refused(String),
    /// It was refused, and so was a pod that does not ask.
    AllRefused(String),
}

/// The refusal to tell, of those that trial pods met: that of a quota, which counts what is asked for, or
/// else the last, which is as true for a drainer.
#[must_use]
pub fn telling(refusals: Vec<String>) -> String {
    let by_quota = |why: &String| why.contains(QUOTA);
    let place = refusals.iter().position(by_quota);
    let place = place.unwrap_or(refusals.len().saturating_sub(1));
    refusals.into_iter().nth(place).unwrap_or_default()
}

/// What an answer to a pod that asks means.
///
/// # Errors
/// When it is refused, and pods that do not ask must be tried too: why.
pub fn outcome(answer: Answer) -> Result<Outcome, String> {
    let uncalled = format!("failed calling webhook \"{PODS_ENTRY}\"");
    match answer {
        Ok(pod) => Ok(became(&pod)),
        Err(why) if why.contains(&uncalled) => Ok(Outcome::Uncalled(why)),
        Err(why) => denied(&why).ok_or(why),
    }
}

/// The first of the reasons for which the webhook itself refuses a pod; `None` if others do.
fn denied(why: &str) -> Option<Outcome> {
    let denies = format!("admission webhook \"{PODS_ENTRY}\" denied the request: ");
    let why = why.split_once(&denies)?.1.lines().next()?;
    let mut codes = Code::ALL.iter();
    let code = codes.find(|code| why.starts_with(&code.to_string()));
    let remedy = code.map(|code| code.remedy());
    // A refusal ends with its remedy.
    let cut = remedy.and_then(|remedy| why.strip_suffix(remedy)?.strip_suffix("; "));
    Some(Outcome::Denied {
        why: cut.unwrap_or(why).to_owned(),
        remedy,
    })
}

fn became(pod: &Pod) -> Outcome {
    let spec = pod.spec.iter();
    let mut containers = spec.flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        spec.containers.iter().chain(init)
    });
    if containers.any(|container| container.name == CONTAINER_NAME) {
        return Outcome::Injected;
    }
    let annotations = pod.metadata.annotations.as_ref();
    match annotations.and_then(|annotations| annotations.get(STATUS)) {
        Some(status) => Outcome::Skipped(match skipped_for(status) {
            Some(code) => format!("{code}: {}", code.sentence()),
            None => status.clone(),
        }),
        None => Outcome::NotSeen,
    }
}

/// Why a refusal tells nothing of pods: it is for the dry run, which a webhook of others may not know.
/// <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#side-effects>
#[must_use]
pub fn untryable(why: &str, namespace: &str) -> Option<Unseen> {
    why.contains("does not support dry run")
        .then(|| Unseen::Failed {
            call: Call {
                verb: "create",
                resource: "pods",
                namespace: Some(namespace.to_owned()),
            },
            why: why.to_owned(),
        })
}

/// Judges the trials of all namespaces; so many more were not tried.
#[must_use]
pub fn points(trials: &[Trial], untried: usize) -> Vec<Point> {
    // Those of which the same is to be said.
    let mut groups: Vec<(Result<Outcome, Unseen>, Vec<&str>)> = Vec::new();
    for Trial { namespace, outcome } in trials {
        let outcome = outcome.clone().map_err(Unseen::anywhere);
        match groups.iter_mut().find(|(other, _)| *other == outcome) {
            Some((_, namespaces)) => namespaces.push(namespace),
            None => groups.push((outcome, vec![namespace])),
        }
    }
    let mut points: Vec<_> = groups
        .iter()
        .map(|(outcome, namespaces)| point(outcome, namespaces))
        .collect();
    points.sort_by_key(|point| point.mark);
    if untried > 0 {
        let message = format!("it was not tried in {}", count(untried, "more namespace"));
        points.push(Point::ok(NAME, message));
    }
    points
}

fn point(outcome: &Result<Outcome, Unseen>, namespaces: &[&str]) -> Point {
    let listed = names(namespaces.iter().copied());
    let point = match outcome {
        Err(unseen) => {
            let what = format!("whether a pod that asks gets its drainer in {listed}");
            Point::undecided(NAME, what, unseen)
        }
        Ok(Outcome::Injected) => Point::ok(
            NAME,
            format!("a pod that asks gets its drainer in {listed} (dry run)"),
        ),
        Ok(Outcome::NotSeen) => Point::error(
            NAME,
            format!(
                "a pod that asks gets no drainer in {listed} (dry run): the API server has no answer from the webhook"
            ),
        )
        .remedy(UNREACHABLE),
        Ok(Outcome::Uncalled(why)) => Point::error(
            NAME,
            format!("a pod that asks is refused in {listed} (dry run): {why}"),
        )
        .remedy(UNREACHABLE),
        Ok(Outcome::Denied { why, remedy }) => {
            let point = Point::error(
                NAME,
                format!("envoy-drainer refuses a pod that asks in {listed} (dry run): {why}"),
            );
            match remedy {
                Some(remedy) => point.remedy(*remedy),
                None => point,
            }
        }
        Ok(Outcome::Skipped(why)) => Point::error(
            NAME,
            format!("a pod that asks gets no drainer in {listed} (dry run): {why}"),
        )
        .remedy("another webhook may have changed the pod before"),
        Ok(Outcome::Refused(why)) => Point::error(
            NAME,
            format!(
                "a pod with a drainer is refused in {listed}, and one without is not (dry run): {why}"
            ),
        )
        .remedy(of_drainer(why)),
        Ok(Outcome::AllRefused(why)) => Point::warning(
            NAME,
            format!("even a small pod without a drainer is refused in {listed} (dry run): {why}"),
        )
        .remedy("this is not for envoy-drainer, and keeps it from being tried there"),
    };
    match namespaces {
        [namespace] => point.about(About::of_cluster("Namespace", *namespace)),
        _ => point,
    }
}

/// What to do about the refusal of a drainer, by the words of who refuses.
fn of_drainer(why: &str) -> &'static str {
    if why.contains(QUOTA) {
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
    use crate::check::Mark;

    const QUOTA_REFUSES: &str = r#"pods "a" is forbidden: exceeded quota: small, requested: limits.memory=65Mi, used: limits.memory=0, limited: limits.memory=50Mi"#;
    const LIMIT_REFUSES: &str = r#"pods "a" is forbidden: minimum memory usage per Container is 128Mi, but request is 16Mi"#;
    const UNCALLED: &str = r#"Internal error occurred: failed calling webhook "pods.envoy-drainer.dev": failed to call webhook: Post "https://a.b.svc:443/inject?timeout=5s": dial tcp 10.96.0.1:443: connect: connection refused"#;

    fn answer(pod: Value) -> Answer {
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
                Outcome::Injected,
            ),
            (
                json!({"spec": {"containers": [envoy, drainer]}}),
                Outcome::Injected,
            ),
            (json!({"spec": {"containers": [envoy]}}), Outcome::NotSeen),
            (json!({}), Outcome::NotSeen),
            (
                json!({"metadata": status(r#"{"skipped":"DRN008"}"#), "spec": {"containers": [envoy]}}),
                Outcome::Skipped(
                    "DRN008: Envoy's container has a preStop hook already.".to_owned(),
                ),
            ),
            (
                json!({"metadata": status("odd")}),
                Outcome::Skipped("odd".to_owned()),
            ),
        ];
        for (pod, want) in table {
            assert_eq!(outcome(answer(pod.clone())), Ok(want), "{pod}");
        }
    }

    #[test]
    fn a_refusal_is_told_from_a_webhook_that_was_not_reached() {
        let told = outcome(Err(UNCALLED.to_owned()));
        assert_eq!(told, Ok(Outcome::Uncalled(UNCALLED.to_owned())));
        let others = UNCALLED.replace(PODS_ENTRY, "other");
        assert_eq!(outcome(Err(others.clone())), Err(others));
        let dry = r#"admission webhook "a" does not support dry run"#;
        assert!(untryable(dry, "shop").is_some());
        assert!(untryable(QUOTA_REFUSES, "shop").is_none());
    }

    #[test]
    fn a_refusal_of_the_webhook_itself_is_told_with_its_codes_remedy() {
        let notice = Code::SocketNotMounted.about("no volume at `/run`");
        let other = Code::BadValue.about("invalid");
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
            let denied = Outcome::Denied { why, remedy };
            assert_eq!(outcome(Err(told)), Ok(denied.clone()));
            let point = point(&Ok(denied), &["shop"]);
            assert_eq!(point.remedy.as_deref(), remedy);
        }
    }

    #[test]
    fn of_several_refusals_the_one_that_is_true_for_drainers_is_told() {
        let told =
            |refusals: &[&str]| telling(refusals.iter().map(|&why| why.to_owned()).collect());
        assert_eq!(
            told(&[QUOTA_REFUSES, "exceeded quota: 129Mi"]),
            QUOTA_REFUSES
        );
        assert_eq!(told(&["but request is 1Mi", LIMIT_REFUSES]), LIMIT_REFUSES);
        assert_eq!(told(&[]), "");
    }

    #[test]
    fn namespaces_of_which_the_same_is_to_be_said_share_a_line() {
        let trial = |namespace: &str, outcome: Result<Outcome, Unseen>| Trial {
            namespace: namespace.to_owned(),
            outcome,
        };
        let forbidden = |namespace: &str| {
            Err(Unseen::Forbidden(Call {
                verb: "create",
                resource: "pods",
                namespace: Some(namespace.to_owned()),
            }))
        };
        let trials = [
            trial("a", Ok(Outcome::NotSeen)),
            trial("b", Ok(Outcome::Injected)),
            trial("c", Ok(Outcome::Refused(QUOTA_REFUSES.to_owned()))),
            trial("d", forbidden("d")),
            trial("e", Ok(Outcome::Injected)),
            trial("f", forbidden("f")),
            trial("g", Ok(Outcome::AllRefused(LIMIT_REFUSES.to_owned()))),
        ];
        let told: Vec<_> = points(&trials, 3)
            .into_iter()
            .map(|point| (point.mark, point.message))
            .collect();
        let why = "the API server has no answer from the webhook";
        let want = [
            (Mark::Ok, "a pod that asks gets its drainer in `b`, `e` (dry run)".to_owned()),
            (
                Mark::Warning,
                format!("even a small pod without a drainer is refused in `g` (dry run): {LIMIT_REFUSES}"),
            ),
            (
                Mark::Error,
                format!("a pod that asks gets no drainer in `a` (dry run): {why}"),
            ),
            (
                Mark::Error,
                format!("a pod with a drainer is refused in `c`, and one without is not (dry run): {QUOTA_REFUSES}"),
            ),
            (
                Mark::Unknown,
                "whether a pod that asks gets its drainer in `d`, `f` is not known: you may not create pods".to_owned(),
            ),
            (Mark::Ok, "it was not tried in 3 more namespaces".to_owned()),
        ];
        assert_eq!(told, want);
    }

    #[test]
    fn each_refuser_has_its_remedy() {
        for (why, word) in [
            (QUOTA_REFUSES, "ResourceQuota"),
            (LIMIT_REFUSES, "LimitRange"),
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
            assert!(of_drainer(why).contains(word), "{why}");
        }
    }
}
