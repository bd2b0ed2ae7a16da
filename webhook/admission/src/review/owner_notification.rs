//! Skipped pods whose owner gets an Event. A controller that creates pods ignores the warnings about them, so
//! the reason is reported on the controller.

use crate::diagnostics::{Code, Diagnostic};
use crate::excerpt::excerpt;
use crate::names::{MAX_NAME_LEN, is_dns_label};
use crate::pod::PodView;
use crate::settings::Defaults;

/// A pod that was admitted without the drainer it requests, for an Event on its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedPod {
    pub owner: Owner,
    pub code: Code,
    /// The reason as text, and what to do about it; at most [`MAX_NOTE_LEN`] bytes.
    pub note: String,
}

/// What an Event is about: the controller of a pod, such as a ReplicaSet or a Job, or a pod without one.
///
/// Any pod of the cluster can send a review, and who creates a pod chooses its owner, so only what a controller could
/// have written is accepted: [`Owner::is_valid`]. Namespace, name and uid become part of paths of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    /// The pod's namespace, which is the owner's too.
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// Maximum length of an Event's note, in bytes. The API server rejects longer ones.
/// <https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/validation/events.go>
pub const MAX_NOTE_LEN: usize = 1024;

/// The namespace of the control plane, whose pods never get a drainer.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// Maximum length of the detail in a note, in bytes, since it quotes the pod's manifest.
const MAX_DETAIL_LEN: usize = 256;

/// Maximum length of a DNS subdomain that is a name in Kubernetes.
/// <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/>
const MAX_SUBDOMAIN_LEN: usize = 253;

// === impl SkippedPod ===

impl SkippedPod {
    /// Returns the pod that will exist without the drainer it requests, if its owner gets an Event: only in a namespace
    /// whose pods can have one.
    pub(super) fn new(
        namespace: &str,
        pod: &PodView<'_>,
        reason: &Diagnostic,
        defaults: &Defaults,
    ) -> Option<Self> {
        if !reason.code.is_user_visible() {
            return None;
        }
        let owner = Owner::of_pod(pod, namespace)?;
        let is_excluded =
            [SYSTEM_NAMESPACE, &defaults.release_namespace].contains(&&*owner.namespace);
        (!is_excluded).then(|| Self {
            owner,
            code: reason.code,
            note: event_note(reason),
        })
    }
}

fn event_note(reason: &Diagnostic) -> String {
    let reason = Diagnostic {
        detail: excerpt(&reason.detail, MAX_DETAIL_LEN),
        ..reason.clone()
    };
    excerpt(&format!("{reason:#}"), MAX_NOTE_LEN)
}

// === impl Owner ===

impl Owner {
    /// Returns the controller of a pod in this namespace; `None` if there is none, or if no API server could have sent
    /// it.
    fn of_pod(pod: &PodView<'_>, namespace: &str) -> Option<Self> {
        let owner = pod.metadata.as_ref()?.controller()?;
        let owner = Self {
            api_version: owner.api_version.as_deref()?.to_owned(),
            kind: owner.kind.as_deref()?.to_owned(),
            namespace: namespace.to_owned(),
            name: owner.name.as_deref()?.to_owned(),
            uid: owner.uid.as_deref()?.to_owned(),
        };
        (owner.is_valid() && owner.can_own_pods()).then_some(owner)
    }

    /// Returns true if each field has the form that Kubernetes requires.
    pub fn is_valid(&self) -> bool {
        is_api_version(&self.api_version)
            && is_kind(&self.kind)
            && is_dns_label(&self.namespace)
            && is_subdomain(&self.name)
            // The name of the Event starts with it.
            && is_dns_label(&self.uid)
    }

    /// Returns true for a kind whose controller creates pods: these of Kubernetes, and any of other groups.
    pub fn can_own_pods(&self) -> bool {
        let kind = &*self.kind;
        match self.group() {
            "" => kind == "ReplicationController",
            "apps" => ["DaemonSet", "ReplicaSet", "StatefulSet"].contains(&kind),
            "batch" => kind == "Job",
            group => group.contains('.') && !group.ends_with(".k8s.io"),
        }
    }

    /// The group of its kind; empty for the core group.
    pub fn group(&self) -> &str {
        let (group, _) = self.api_version.split_once('/').unwrap_or_default();
        group
    }
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN_LEN && text.split('.').all(is_dns_label)
}

/// Returns true for the form of `v1` and `apps/v1`.
fn is_api_version(text: &str) -> bool {
    match text.split_once('/') {
        Some((group, version)) => is_subdomain(group) && is_dns_label(version),
        None => is_dns_label(text),
    }
}

fn is_kind(text: &str) -> bool {
    (1..=MAX_NAME_LEN).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use drainer::Token;
    use serde_json::{Value, json};

    use super::*;
    use crate::review::admit_pod;
    use crate::review::creation_review;
    use crate::settings::Defaults;

    /// A review of a pod of a ReplicaSet that is skipped because of its hook.
    fn review() -> Value {
        let pod = json!({
            "metadata": {
                "annotations": {"envoy-drainer.dev/inject": "true"},
                "ownerReferences": [
                    {"apiVersion": "example.com/v1", "kind": "Shop", "name": "s", "uid": "1"},
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "edge-7f", "uid": "2", "controller": true},
                ],
            },
            "spec": {"containers": [{"name": "envoy", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}]},
        });
        creation_review(["", "v1", "Pod"], &pod)
    }

    /// Returns the skipped pod of the review with another value at a JSON pointer.
    fn skipped_pod(pointer: &str, value: Value) -> Option<SkippedPod> {
        let mut review = review();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = review.pointer_mut(parent).unwrap();
        match key.parse::<usize>() {
            Ok(index) => parent[index] = value,
            Err(_) => parent[key] = value,
        }
        let defaults = Defaults::new("image", "own");
        admit_pod(review.to_string().as_bytes(), false, &defaults, || Token(1))
            .unwrap()
            .skipped_pod
    }

    #[test]
    fn note_has_the_reason_and_the_remedy() {
        let skipped = skipped_pod("/request/name", json!("edge-7f-1")).unwrap();
        let owner = Owner {
            api_version: "apps/v1".to_owned(),
            kind: "ReplicaSet".to_owned(),
            namespace: "shop".to_owned(),
            name: "edge-7f".to_owned(),
            uid: "2".to_owned(),
        };
        assert_eq!((skipped.owner, skipped.code), (owner, Code::ExistingHook));
        assert!(skipped.note.starts_with("DRN008: "), "{}", skipped.note);
        assert!(
            skipped.note.ends_with(Code::ExistingHook.remedy()),
            "{}",
            skipped.note
        );
    }

    #[test]
    fn fault_is_reported_if_the_owner_is_readable() {
        let long = "x".repeat(2000);
        let fault = skipped_pod("/request/object/spec", json!({"containers": long})).unwrap();
        assert_eq!(fault.code, Code::PodNotRead);
        assert_eq!(fault.owner.name, "edge-7f");
        assert!(fault.note.len() <= MAX_NOTE_LEN, "{}", fault.note.len());
        let without_owner = skipped_pod("/request/object/metadata/labels", json!(7));
        assert_eq!(without_owner, None);
    }

    #[test]
    fn note_is_bounded_and_ends_with_the_remedy() {
        let containers = vec![json!({"name": "a\n".repeat(31)}); 20];
        let skipped =
            skipped_pod("/request/object/spec", json!({"containers": containers})).unwrap();
        let remedy = Code::NoEnvoy.remedy();
        assert!(skipped.note.ends_with(remedy), "{}", skipped.note);
        let max = MAX_DETAIL_LEN + remedy.len() + "DRN009: ; ".len();
        assert!(skipped.note.len() <= max, "{}", skipped.note.len());
        assert!(
            !skipped.note.contains(char::is_control),
            "{:?}",
            skipped.note
        );
    }

    #[test]
    fn forged_owner_gets_no_event() {
        let owner = "/request/object/metadata/ownerReferences/1";
        let path = "../../../../api/v1/namespaces/own/secrets/ca?x=";
        let long = |len: usize| "x".repeat(len);
        for (field, valid, invalid) in [
            (
                "/request/namespace".to_owned(),
                vec!["shop".to_owned(), "0".to_owned(), long(63)],
                ["Shop", "a.b", "a_b", "-a", "a-", "kube-system", "own"].as_slice(),
            ),
            (
                format!("{owner}/name"),
                vec!["edge-7f.x".to_owned(), [long(63), long(63)].join(".")],
                &["Edge", "a..b", ".a", "a\n", "a b"],
            ),
            (
                format!("{owner}/uid"),
                vec!["0b7c5a3e-6f0e-4f0c-9d5b-2f3a4c5d6e7f".to_owned()],
                &["UPPER", "2/../x?force=true", "a.b"],
            ),
            (
                format!("{owner}/kind"),
                vec!["StatefulSet".to_owned(), "DaemonSet".to_owned()],
                &[
                    "a/b",
                    "Re plica",
                    "ReplicaSet\u{1b}[0m",
                    "Deployment",
                    "V2Shop",
                ],
            ),
            (
                format!("{owner}/apiVersion"),
                vec!["apps/v2".to_owned(), "argoproj.io/v1alpha1".to_owned()],
                &[
                    "v1",
                    "batch/v1",
                    "apps/",
                    "/v1",
                    "apps/v1/x",
                    "apps/V1",
                    "apps/v1?x=1",
                ],
            ),
        ] {
            for value in valid {
                assert!(
                    skipped_pod(&field, json!(value)).is_some(),
                    "{field}: {value}"
                );
            }
            let long = long(254);
            for value in invalid
                .iter()
                .copied()
                .chain(["", ".", "..", "é", path, &long])
            {
                assert_eq!(skipped_pod(&field, json!(value)), None, "{field}: {value}");
            }
        }
    }

    #[test]
    fn only_kinds_that_own_pods_get_events() {
        for (api_version, kind, can_own) in [
            ("v1", "ReplicationController", true),
            ("v1", "Namespace", false),
            ("v1", "Secret", false),
            ("apps/v1", "ReplicaSet", true),
            ("batch/v1", "Job", true),
            ("batch/v1", "CronJob", false),
            ("argoproj.io/v1alpha1", "Rollout", true),
            ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", true),
            ("rbac.authorization.k8s.io/v1", "Role", false),
            ("policy/v1", "PodDisruptionBudget", false),
        ] {
            let owner = json!({
                "apiVersion": api_version, "kind": kind, "name": "n", "uid": "1", "controller": true,
            });
            let skipped = skipped_pod("/request/object/metadata/ownerReferences", json!([owner]));
            assert_eq!(skipped.is_some(), can_own, "{api_version} {kind}");
        }
    }

    #[test]
    fn excluded_namespace_gets_no_event() {
        for namespace in ["kube-system", "own"] {
            let mut review = review();
            review["request"]["namespace"] = json!(namespace);
            review["request"]["object"]["spec"] = json!({"containers": 7});
            let response = admit_pod(
                review.to_string().as_bytes(),
                false,
                &Defaults::new("image", "own"),
                || Token(1),
            );
            let response = response.unwrap();
            assert_eq!(response.diagnostics[0].code, Code::PodNotRead);
            assert_eq!(response.skipped_pod, None, "{namespace}");
        }
    }

    #[test]
    fn no_event_without_owner_or_reason() {
        let owners = "/request/object/metadata/ownerReferences";
        let owner = format!("{owners}/1");
        let injected = json!({"containers": [{"name": "envoy"}]});
        let already_injected = json!({"containers": [
            {"name": "envoy"},
            {"name": "envoy-drainer", "args": ["serve", "--token=0123456789abcdef"]},
        ]});
        for (pointer, value) in [
            ("/request/dryRun", json!(true)),
            ("/request/namespace", Value::Null),
            (
                "/request/object/metadata/annotations",
                json!({"envoy-drainer.dev/inject": "maybe"}),
            ),
            ("/request/object/metadata/annotations", json!({})),
            ("/request/object/spec", injected),
            ("/request/object/spec", already_injected),
            (owners, json!([])),
            (owners, Value::Null),
            (&format!("{owner}/controller"), json!(false)),
            (&format!("{owner}/controller"), Value::Null),
            (&format!("{owner}/uid"), Value::Null),
        ] {
            assert_eq!(
                skipped_pod(pointer, value.clone()),
                None,
                "{pointer}: {value}"
            );
        }
    }
}
