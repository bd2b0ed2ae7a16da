//! What becomes of a small pod that asks for a drainer, and is never made: a dry run goes the whole
//! way of a pod's creation, through the webhook, quotas, Pod Security and everything else.
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run>

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, Container, Pod, PodSecurityContext, PodSpec, ResourceRequirements,
    SeccompProfile, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::installation::PODS_ENTRY;
use super::point::{About, Point};
use super::unseen::{Call, Unseen};
use super::words::{count, names};
use crate::admission::annotations::{INJECT, STATUS};
use crate::admission::{CONTAINER_NAME, Defaults, skipped_for};

/// The name of the points.
const NAME: &str = "trial";

/// What refusals by quotas say.
const QUOTA: &str = "exceeded quota";

/// What to do when the API server has no answer.
const UNREACHABLE: &str = "see the replicas above; if they are well, the API server cannot reach them: let it connect to their port, 10250 by default, or set `hostNetwork: true` in the chart's values where it cannot reach pods";

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
    /// It was refused, and a pod that does not ask was not.
    Refused(String),
    /// It was refused, and so was a pod that does not ask.
    AllRefused(String),
}

/// The API server's answer to a pod: as it would be, or why it is refused.
pub type Answer = Result<Pod, String>;

/// What a trial pod requests beside what its drainer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requests {
    /// Next to nothing: what quotas refuse is then the drainer.
    Little,
    /// As much as a drainer: what limits refuse is then true for the drainer as well.
    AsADrainer,
    /// Nothing: limits have their defaults filled in.
    Nothing,
}

/// A pod that asks is tried with these, until one is not refused.
pub const ASKING: [Requests; 2] = [Requests::Little, Requests::AsADrainer];

/// A pod that does not ask is tried with these, until one is not refused.
pub const NOT_ASKING: [Requests; 3] = [Requests::Little, Requests::AsADrainer, Requests::Nothing];

/// A pod that does what every policy for pods wants.
#[must_use]
pub fn pod(asks: bool, requests: Requests, defaults: &Defaults) -> Pod {
    // The drainers' own image: policies for images let it pass, or pods with drainers are refused too.
    let image = match &*defaults.image {
        "" => "envoy",
        image => image,
    };
    let annotations = asks.then(|| BTreeMap::from([(INJECT.to_owned(), "true".to_owned())]));
    Pod {
        metadata: ObjectMeta {
            generate_name: Some("envoy-drainer-check-".to_owned()),
            annotations,
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            automount_service_account_token: Some(false),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    localhost_profile: None,
                }),
                ..PodSecurityContext::default()
            }),
            containers: vec![Container {
                name: "envoy".to_owned(),
                image: Some(image.to_owned()),
                resources: requests.resources(defaults),
                security_context: Some(SecurityContext {
                    allow_privilege_escalation: Some(false),
                    capabilities: Some(Capabilities {
                        drop: Some(vec!["ALL".to_owned()]),
                        add: None,
                    }),
                    read_only_root_filesystem: Some(true),
                    // OpenShift chooses one.
                    run_as_user: (!defaults.open_shift).then_some(65532),
                    ..SecurityContext::default()
                }),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        status: None,
    }
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
        Err(why) => Err(why),
    }
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
        let message = format!("{} more were not tried", count(untried, "namespace"));
        points.push(Point::ok(NAME, message));
    }
    points
}

fn point(outcome: &Result<Outcome, Unseen>, namespaces: &[&str]) -> Point {
    let listed = names(namespaces.iter().copied());
    let point = match outcome {
        Err(unseen) => {
            let what = format!("whether a pod that asks gets its drainer in {listed}");
            Point::unknown(NAME, what, unseen)
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

// === impl Requests ===

impl Requests {
    fn resources(self, defaults: &Defaults) -> Option<ResourceRequirements> {
        let amounts = &*defaults.resources;
        let list = |cpu: &dyn ToString, memory: &dyn ToString| {
            BTreeMap::from([
                ("cpu".to_owned(), Quantity(cpu.to_string())),
                ("memory".to_owned(), Quantity(memory.to_string())),
            ])
        };
        let (requests, limits) = match self {
            Self::Little => (list(&"1m", &"1Mi"), list(&"1m", &"1Mi")),
            Self::AsADrainer => (
                list(&amounts.cpu_request, &amounts.memory_request),
                list(&amounts.cpu_limit, &amounts.memory_limit),
            ),
            Self::Nothing => return None,
        };
        Some(ResourceRequirements {
            requests: Some(requests),
            limits: Some(limits),
            claims: None,
        })
    }
}
