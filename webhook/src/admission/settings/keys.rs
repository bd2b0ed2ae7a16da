//! The names of the annotations and labels.

use std::fmt;

use crate::admission::diagnostics::{Code, Diagnostic};
use crate::admission::excerpt::truncate;

pub use crate::admission::names::{INJECT, INJECTED, INJECTION, PREFIX, STATUS};

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

/// True if the key `name` under [`PREFIX`] sets something, now or in a later version.
pub(crate) fn is_setting(name: &str) -> bool {
    SETTINGS.contains(&name) || RESERVED.contains(&name)
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
    fn unknown_key_suggests_the_closest() {
        let table = [
            ("inject", None),
            ("status", None),
            ("drain-timeout", None),
            (
                "wait-for-replacement",
                Some("does not support `envoy-drainer.dev/wait-for-replacement`"),
            ),
            ("injct", Some("did you mean `inject`?")),
            ("injekt", Some("did you mean `inject`?")),
            (
                "other",
                Some("unknown annotation `envoy-drainer.dev/other`"),
            ),
        ];
        for (name, want) in table {
            let detail = lint_name(name, Suggestions::Enabled).map(|diagnostic| diagnostic.detail);
            match (&detail, want) {
                (Some(detail), Some(want)) => assert!(detail.ends_with(want), "{detail}"),
                _ => assert_eq!(detail.as_deref(), want, "{name}"),
            }
        }
    }
}
