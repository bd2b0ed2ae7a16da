//! The names of the annotations and labels.

use std::fmt;

use crate::admission::diagnostics::{Code, Diagnostic};
use crate::admission::excerpt::truncate;

/// What all our annotations and labels begin with.
pub const PREFIX: &str = "envoy-drainer.dev/";

/// The annotation that asks for a drainer.
pub const INJECT: &str = "envoy-drainer.dev/inject";

/// The annotation that tells what was done to the pod, as JSON; written by us alone.
pub const STATUS: &str = "envoy-drainer.dev/status";

/// The label of namespaces whose pods may ask; its value is `enabled`. The chart's selectors read it.
pub const INJECTION: &str = "envoy-drainer.dev/injection";

/// The label of pods that have a drainer, for selectors.
pub const INJECTED: &str = "envoy-drainer.dev/injected";

/// Marks the API server's copy of a static pod.
/// <https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror>
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

/// The label that tells who made a pod.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The node labels by which a pod chooses an operating system; the second is the older one, which the
/// kubelet still sets.
/// <https://kubernetes.io/docs/reference/labels-annotations-taints/#beta-kubernetes-io-os>
pub(crate) const OS: [&str; 2] = ["kubernetes.io/os", "beta.kubernetes.io/os"];

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
const RESERVED: [&str; 3] = [
    "extra-lifecycle-hooks",
    "wait-for-replacement",
    "envoy-native-sidecar",
];

/// A slip of the pen is more like the key than this, of 1; another word less.
const SIMILARITY: f64 = 0.85;

/// As [`LIKE`], of prefixes: domains are alike by nature.
const PREFIX_SIMILARITY: f64 = 0.9;

/// In bytes: the longest name of an annotation. Likeness to longer ones would be dear to compute.
/// <https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/#syntax-and-character-set>
const MAX_NAME_LEN: usize = 63;

/// In bytes: the longest key of an annotation, with its prefix. A message cuts longer ones.
const MAX_KEY_LEN: usize = 253 + 1 + MAX_NAME_LEN;

/// In bytes. No value is nearly so long, and a message that repeats a longer one says nothing.
const MAX_VALUE_LEN: usize = 1024;

/// Reads the value of the annotation `name` under [`PREFIX`].
pub(crate) fn parse_value<T, E: fmt::Display>(
    name: &str,
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, Diagnostic> {
    let parsed = match text.len() {
        ..=MAX_VALUE_LEN => parse(text).map_err(|error| error.to_string()),
        long => Err(format!("a value of {long} bytes: at most {MAX_VALUE_LEN}")),
    };
    parsed.map_err(|error| {
        let detail = format!("`{PREFIX}{name}`: {error}");
        Code::BadValue.diagnostic(detail).for_annotations([name])
    })
}

/// Reads the value of [`INJECT`]: true if it asks for a drainer.
pub(crate) fn inject_requested(text: &str) -> Result<bool, Diagnostic> {
    parse_value("inject", text, |text| match text {
        "true" | "enabled" => Ok(true),
        "false" | "disabled" => Ok(false),
        other => Err(format!(
            "invalid value `{other}`: \"true\" asks for a drainer, \"false\" does not"
        )),
    })
}

/// True for the keys of annotations, labels and node selectors that decide something.
pub(crate) fn is_relevant_key(key: &str) -> bool {
    key.starts_with(PREFIX) || [MIRROR, MANAGED_BY].contains(&key) || OS.contains(&key)
}

/// How far unknown keys of one map are looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suggestions {
    /// The key that may have been meant is looked for.
    Enabled,
    /// Not in a map with so many keys of ours that they are no slips: each comparison takes time.
    Disabled,
}

/// In one object or pod, more unknown or misplaced keys than these are an attack rather than slips, and
/// are not reported.
pub(crate) const MAX_REPORTED_KEYS: usize = 32;

/// In one map, of more keys of ours than these none is compared with those that are known.
const MAX_COMPARED_KEYS: usize = 64;

/// Warns of an annotation under [`PREFIX`] that sets nothing, with the key that may have been meant.
pub(crate) fn lint_name(key: &str, likeness: Suggestions) -> Option<Diagnostic> {
    let is_ours = |name: &str| name.strip_prefix(PREFIX) == Some(key);
    if SETTINGS.contains(&key) || is_ours(INJECT) || is_ours(STATUS) {
        return None;
    }
    if RESERVED.contains(&key) {
        let detail = format!("this version does not support `{PREFIX}{key}`");
        return Some(
            Code::NotSupportedYet
                .diagnostic(detail)
                .for_annotations([key]),
        );
    }
    let key = truncate(key, MAX_KEY_LEN);
    let detail = match closest(&key, likeness) {
        Some(name) => format!("unknown annotation `{PREFIX}{key}`: did you mean `{name}`?"),
        None => format!("unknown annotation `{PREFIX}{key}`"),
    };
    Some(Code::UnknownKey.diagnostic(detail).for_annotations([key]))
}

/// Warns of a whole key that looks like one of ours and is none.
pub(crate) fn lint_key(key: &str, likeness: Suggestions) -> Option<Diagnostic> {
    if let Some(name) = key.strip_prefix(PREFIX) {
        return lint_name(name, likeness).filter(|warning| warning.code == Code::UnknownKey);
    }
    let (prefix, name) = key.split_once('/').unwrap_or((key, ""));
    resembles_prefix(prefix).then(|| {
        let key = truncate(key, MAX_KEY_LEN);
        Code::UnknownKey.diagnostic(match closest(name, likeness) {
            Some(name) => format!("unknown annotation `{key}`: did you mean `{PREFIX}{name}`?"),
            None => format!("unknown annotation `{key}`: ours begin with `{PREFIX}`"),
        })
    })
}

/// True if the key `name` under [`PREFIX`] sets something, now or in a later version.
pub(crate) fn is_setting(name: &str) -> bool {
    SETTINGS.contains(&name) || RESERVED.contains(&name)
}

/// True for `envoydrainer.io`, `envoy-drainer` and `envoy-drainr.dev`.
pub(crate) fn resembles_prefix(prefix: &str) -> bool {
    const BEGINNING: &str = "envoydrain";
    let letters = prefix.chars().filter(char::is_ascii_alphanumeric);
    let letters = letters.map(|c| c.to_ascii_lowercase());
    letters.take(BEGINNING.len()).eq(BEGINNING.chars())
        || prefix.len() <= MAX_NAME_LEN
            && strsim::jaro_winkler(prefix, PREFIX.trim_end_matches('/')) > PREFIX_SIMILARITY
}

/// The known key that one may have been meant to be.
fn closest(key: &str, likeness: Suggestions) -> Option<&'static str> {
    if likeness == Suggestions::Disabled || key.len() > MAX_NAME_LEN {
        return None;
    }
    let known = SETTINGS.into_iter().chain(RESERVED).chain(["inject"]);
    known
        .map(|name| (strsim::jaro_winkler(key, name), name))
        .filter(|(likeness, _)| *likeness > SIMILARITY)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, name)| name)
}

// === impl Suggestions ===

impl Suggestions {
    /// Of a map with so many keys of ours.
    pub(crate) fn for_key_count(keys: usize) -> Self {
        match keys {
            ..=MAX_COMPARED_KEYS => Self::Enabled,
            _ => Self::Disabled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_compared_unless_too_many() {
        let told = |keys| {
            lint_name("drain-timout", Suggestions::for_key_count(keys))
                .unwrap()
                .detail
        };
        assert!(told(64).ends_with("did you mean `drain-timeout`?"));
        assert!(told(65).ends_with("`envoy-drainer.dev/drain-timout`"));
    }

    #[test]
    fn what_looks_like_ours_is_told_from_what_is_not() {
        let ours = "`envoy-drainer.dev/inject`?";
        let table = [
            ("envoy-drainer.dev/inject", None),
            ("envoy-drainer.dev/status", None),
            ("envoy-drainer.dev/wait-for-replacement", None),
            ("envoy-drainer.dev/injct", Some("`inject`?")),
            ("envoydrainer.io/inject", Some(ours)),
            ("envoydrainer.dev/inject", Some(ours)),
            ("envoy-drainer.io/injekt", Some(ours)),
            ("envoy-drainer/inject", Some(ours)),
            ("Envoy-Drainer.dev/inject", Some(ours)),
            ("envoy-drainr.dev/inject", Some(ours)),
            ("evnoy-drainer.dev/inject", Some(ours)),
            (
                "envoy_drainer.dev/drain-timeout",
                Some("`envoy-drainer.dev/drain-timeout`?"),
            ),
            (
                "envoy-drainer.dev",
                Some("ours begin with `envoy-drainer.dev/`"),
            ),
            ("inject", None),
            ("drain-timeout", None),
            ("envoyproxy.io/inject", None),
            ("gateway.envoyproxy.io/owning-gateway-name", None),
            ("sidecar.istio.io/inject", None),
            ("linkerd.io/inject", None),
            ("envoy.dev/inject", None),
            ("node-drainer.dev/inject", None),
        ];
        for (key, want) in table {
            let told = lint_key(key, Suggestions::Enabled).map(|notice| notice.detail);
            match (&told, want) {
                (Some(told), Some(want)) => assert!(told.ends_with(want), "{told}"),
                _ => assert_eq!(told.as_deref(), want, "{key}"),
            }
        }
    }
}
