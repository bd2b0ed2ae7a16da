//! Keys of annotations and labels, and advice on unknown ones.

use super::all;
use crate::diagnostics::{Code, Diagnostic};
use crate::excerpt::excerpt;

pub use crate::names::{INJECT, INJECTED, INJECTION, PREFIX, STATUS};

/// Minimum Jaro–Winkler similarity (0–1) to suggest a known key.
const SIMILARITY: f64 = 0.85;

/// In bytes: the maximum length of an annotation's name. The similarity of longer names would be expensive to compute.
/// <https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/#syntax-and-character-set>
const MAX_NAME_LEN: usize = 63;

/// In bytes: the maximum length of an annotation's key, with its prefix. Messages truncate longer ones.
const MAX_KEY_LEN: usize = 253 + 1 + MAX_NAME_LEN;

/// In bytes. Valid values are much shorter, and a message that repeats a longer one is of no use.
const MAX_VALUE_LEN: usize = 1024;

/// Parses the value of the annotation `name` under [`PREFIX`].
pub fn parse_value<T>(
    name: &str,
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, Diagnostic> {
    let parsed = match text.len() {
        ..=MAX_VALUE_LEN => parse(text),
        long => Err(format!(
            "a value of {long} bytes: the limit is {MAX_VALUE_LEN}"
        )),
    };
    parsed.map_err(|error| {
        let detail = format!("`{PREFIX}{name}`: {error}");
        Code::BadValue.diagnostic(detail).for_annotations([name])
    })
}

/// Parses the value of [`INJECT`]: true if it requests a drainer.
pub fn inject_requested(text: &str) -> Result<bool, Diagnostic> {
    parse_value("inject", text, |text| match text {
        "true" | "enabled" => Ok(true),
        "false" | "disabled" => Ok(false),
        other => Err(format!(
            "invalid value `{other}`: \"true\" requests a drainer, \"false\" does not"
        )),
    })
}

/// The number of unknown or misplaced keys that are reported of one object or pod. More of them are an attack rather
/// than mistakes.
pub(crate) const MAX_REPORTED_KEYS: usize = 32;

/// If a map has more keys under our prefix than these, none is compared with the known ones, since each comparison
/// takes time: they are too many to be mistakes.
const MAX_COMPARED_KEYS: usize = 64;

/// Warns about the unknown ones of a pod's annotations under [`PREFIX`], at most `MAX_REPORTED_KEYS`.
pub fn lint_names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> Vec<Diagnostic> {
    let count = names.len();
    let unknown = names.filter_map(|name| lint_name(name, count));
    unknown.take(MAX_REPORTED_KEYS).collect()
}

/// Warns about an unknown annotation under [`PREFIX`], one of `key_count`, with the nearest known key.
pub(crate) fn lint_name(key: &str, key_count: usize) -> Option<Diagnostic> {
    let mut known = setting_names().chain(["inject", "status"]);
    if known.any(|name| name == key) {
        return None;
    }
    let key = excerpt(key, MAX_KEY_LEN);
    let detail = match closest(&key, key_count) {
        Some(name) => format!("unknown annotation `{PREFIX}{key}`: did you mean `{name}`?"),
        None => format!("unknown annotation `{PREFIX}{key}`"),
    };
    Some(Code::UnknownKey.diagnostic(detail).for_annotations([key]))
}

pub(crate) fn is_setting(name: &str) -> bool {
    setting_names().any(|known| known == name)
}

fn setting_names() -> impl Iterator<Item = &'static str> {
    all().iter().map(|definition| definition.name)
}

/// The known key that is nearest to `key`, one of `key_count`, if it is similar enough.
fn closest(key: &str, key_count: usize) -> Option<&'static str> {
    if key_count > MAX_COMPARED_KEYS || key.len() > MAX_NAME_LEN {
        return None;
    }
    let known = setting_names().chain(["inject"]);
    let rated = known.map(|name| (strsim::jaro_winkler(key, name), name));
    let similar = rated.filter(|(similarity, _)| *similarity > SIMILARITY);
    let (_, closest) = similar.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    Some(closest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_compared_unless_there_are_too_many() {
        let detail = |key_count| lint_name("drain-timout", key_count).unwrap().detail;
        assert!(detail(64).ends_with("did you mean `drain-timeout`?"));
        assert!(detail(65).ends_with("`envoy-drainer.dev/drain-timout`"));
    }

    #[test]
    fn unknown_key_suggests_the_closest() {
        let table = [
            ("inject", None),
            ("status", None),
            ("drain-timeout", None),
            ("injct", Some("did you mean `inject`?")),
            ("injekt", Some("did you mean `inject`?")),
            (
                "other",
                Some("unknown annotation `envoy-drainer.dev/other`"),
            ),
        ];
        for (name, want) in table {
            let detail = lint_name(name, 1).map(|diagnostic| diagnostic.detail);
            match (&detail, want) {
                (Some(detail), Some(want)) => assert!(detail.ends_with(want), "{detail}"),
                _ => assert_eq!(detail.as_deref(), want, "{name}"),
            }
        }
    }
}
