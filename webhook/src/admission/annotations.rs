//! The names of the annotations and labels.

use super::codes::{Code, Notice};

/// What all our annotations and labels begin with.
pub const PREFIX: &str = "envoy-drainer.dev/";

/// The annotation that asks for a drainer.
pub const INJECT: &str = "envoy-drainer.dev/inject";

/// The annotation that tells what was done to the pod, as JSON; written by us alone.
pub const STATUS: &str = "envoy-drainer.dev/status";

/// The label of pods that have a drainer, for selectors.
pub const INJECTED: &str = "envoy-drainer.dev/injected";

/// Marks the API server's copy of a static pod.
/// <https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror>
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

/// The label that tells who made a pod.
pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The node label by which a pod chooses an operating system.
pub(super) const OS: &str = "kubernetes.io/os";

/// The keys under [`PREFIX`] that set something.
const SETTINGS: [&str; 16] = [
    "envoy-container",
    "admin-address",
    "port",
    "drain-delay",
    "min-drain-duration",
    "drain-timeout",
    "idle-exit",
    "quiet-period",
    "exit-at-connections",
    "ignore-listeners",
    "native-sidecar",
    "existing-hook",
    "cpu-request",
    "memory-request",
    "cpu-limit",
    "memory-limit",
];

/// The keys under [`PREFIX`] that later versions will know.
const NOT_YET: [&str; 3] = [
    "extra-lifecycle-hooks",
    "wait-for-replacement",
    "envoy-native-sidecar",
];

/// A slip of the pen is more like the key than this, of 1; another word less.
const LIKE: f64 = 0.85;

/// In bytes: the longest name of an annotation. Likeness to longer ones would be dear to compute.
/// <https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/#syntax-and-character-set>
const LONGEST_NAME: usize = 63;

/// True for the keys of annotations, labels and node selectors that decide something.
pub(super) fn decides(key: &str) -> bool {
    key.starts_with(PREFIX) || [MIRROR, MANAGED_BY, OS].contains(&key)
}

/// Warns of an annotation under [`PREFIX`] that sets nothing, with the key that may have been meant.
pub(super) fn warning(key: &str) -> Option<Notice> {
    let is_ours = |name: &str| name.strip_prefix(PREFIX) == Some(key);
    if SETTINGS.contains(&key) || is_ours(INJECT) || is_ours(STATUS) {
        return None;
    }
    if NOT_YET.contains(&key) {
        let detail = format!("this version does not support `{PREFIX}{key}`");
        return Some(Code::NotSupportedYet.about(detail));
    }
    let known = SETTINGS.into_iter().chain(NOT_YET).chain(["inject"]);
    let nearest = known
        .filter(|_| key.len() <= LONGEST_NAME)
        .map(|name| (strsim::jaro_winkler(key, name), name))
        .filter(|(likeness, _)| *likeness > LIKE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    Some(Code::UnknownKey.about(match nearest {
        Some((_, name)) => format!("unknown annotation `{PREFIX}{key}`: did you mean `{name}`?"),
        None => format!("unknown annotation `{PREFIX}{key}`"),
    }))
}
