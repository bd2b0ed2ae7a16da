//! Whom to tell of a pod that asked for a drainer and was admitted without one. The warnings of a pod
//! that a controller made are read by nobody, so its owner is told.

use super::answer::shortened;
use super::codes::{Code, Notice};
use super::review::Review;

/// A pod that was admitted without the drainer it asked for, as its owner is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undrained {
    /// The controller that made the pod.
    pub owner: Owner,
    /// Why it has no drainer.
    pub code: Code,
    /// The same in words, and what to do about it; at most [`LONGEST_NOTE`] bytes.
    pub note: String,
}

/// The controller of a pod: a ReplicaSet, a Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// The pod's namespace, which is that of its owner.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// In bytes. The API server refuses Events with longer notes.
/// <https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/validation/events.go>
pub const LONGEST_NOTE: usize = 1024;

/// In bytes. No name in Kubernetes is longer, but what a request holds is not yet validated.
const LONGEST_NAME: usize = 253;

// === impl Undrained ===

impl Undrained {
    /// What is to be told of the pod, if it will exist, has an owner, and lacks what it asked for.
    pub(super) fn of(review: &Review<'_>, reason: &Notice) -> Option<Self> {
        if review.dry_run || !reason.code.is_told() {
            return None;
        }
        Some(Self {
            owner: Owner::of(review)?,
            code: reason.code,
            note: shortened(&format!("{reason:#}"), LONGEST_NOTE),
        })
    }
}

// === impl Owner ===

impl Owner {
    fn of(review: &Review<'_>) -> Option<Self> {
        let owner = review.pod()?.controller()?;
        let name = |text: Option<&str>| {
            let text = text.filter(|text| (1..=LONGEST_NAME).contains(&text.len()));
            text.map(str::to_owned)
        };
        // It becomes part of a path of the API.
        let is_word = |text: &&str| {
            let mut bytes = text.bytes();
            bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        Some(Self {
            api_version: name(owner.api_version.as_deref())?,
            kind: name(owner.kind.as_deref())?,
            namespace: name(review.namespace.as_deref())?,
            name: name(owner.name.as_deref())?,
            uid: name(owner.uid.as_deref().filter(is_word))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use drainer::Token;
    use serde_json::{Value, json};

    use super::*;
    use crate::admission::{Defaults, answer};

    /// A pod that is skipped for its hook, made by a ReplicaSet.
    fn review() -> Value {
        json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "namespace": "shop",
                "operation": "CREATE",
                "object": {
                    "metadata": {
                        "annotations": {"envoy-drainer.dev/inject": "true"},
                        "ownerReferences": [
                            {"apiVersion": "example.com/v1", "kind": "Shop", "name": "s", "uid": "1"},
                            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "edge-7f", "uid": "2", "controller": true},
                        ],
                    },
                    "spec": {"containers": [{"name": "envoy", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}]},
                },
            },
        })
    }

    /// What is told of the review's pod, with something else at a JSON pointer.
    fn told(pointer: &str, value: Value) -> Option<Undrained> {
        let mut review = review();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = review.pointer_mut(parent).unwrap();
        match key.parse::<usize>() {
            Ok(index) => parent[index] = value,
            Err(_) => parent[key] = value,
        }
        let defaults = Defaults::new("image", "own");
        answer(review.to_string().as_bytes(), &defaults, || Token::new(1))
            .unwrap()
            .undrained
    }

    #[test]
    fn the_controller_is_told_why_and_what_to_do() {
        let told = told("/request/name", json!("edge-7f-1")).unwrap();
        let owner = Owner {
            api_version: "apps/v1".to_owned(),
            kind: "ReplicaSet".to_owned(),
            namespace: "shop".to_owned(),
            name: "edge-7f".to_owned(),
            uid: "2".to_owned(),
        };
        assert_eq!((told.owner, told.code), (owner, Code::ExistingHook));
        assert!(told.note.starts_with("DRN008: "), "{}", told.note);
        assert!(
            told.note.ends_with(Code::ExistingHook.remedy()),
            "{}",
            told.note
        );
    }

    #[test]
    fn a_fault_of_ours_is_told_as_far_as_the_pod_can_be_read() {
        let long = "x".repeat(2000);
        let fault = told("/request/object/spec", json!({"containers": long})).unwrap();
        assert_eq!(fault.code, Code::PodNotRead);
        assert_eq!(fault.owner.name, "edge-7f");
        assert!(fault.note.len() <= LONGEST_NOTE, "{}", fault.note.len());
        let nobody = told("/request/object/metadata/labels", json!(7));
        assert_eq!(nobody, None);
    }

    #[test]
    fn nobody_is_told_where_there_is_nobody_or_nothing_to_tell() {
        let owners = "/request/object/metadata/ownerReferences";
        let owner = format!("{owners}/1");
        let injected = json!({"containers": [{"name": "envoy"}]});
        let ours = json!({"containers": [
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
            ("/request/object/spec", ours),
            (owners, json!([])),
            (owners, Value::Null),
            (&format!("{owner}/controller"), json!(false)),
            (&format!("{owner}/controller"), Value::Null),
            (&format!("{owner}/uid"), Value::Null),
            (&format!("{owner}/uid"), json!("2/../x?force=true")),
            (&format!("{owner}/name"), json!("")),
            (&format!("{owner}/name"), json!("x".repeat(254))),
        ] {
            assert_eq!(told(pointer, value.clone()), None, "{pointer}: {value}");
        }
    }
}
