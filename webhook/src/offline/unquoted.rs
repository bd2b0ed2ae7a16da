//! Annotations that are no texts for want of quotes: `90` is a number to YAML, `off` is `false`.

use std::borrow::Cow;

use serde_json::Value;

use crate::admission::settings::keys::PREFIX;
use crate::admission::{Code, Diagnostic, check_value};

/// Puts texts in the place of our annotations that are none, as their author may have meant them, and
/// tells how to write them. The API server refuses the pod as it is.
pub(super) fn quote_annotations(pod: &Value, in_job: bool) -> (Cow<'_, Value>, Vec<Diagnostic>) {
    let mut quoted = Cow::Borrowed(pod);
    let mut notices = Vec::new();
    let annotations = pod.pointer("/metadata/annotations");
    for (key, value) in annotations.and_then(Value::as_object).into_iter().flatten() {
        let Some(name) = key.strip_prefix(PREFIX) else {
            continue;
        };
        let kind = match value {
            // To the API server, null is an empty text.
            Value::String(_) | Value::Null => continue,
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::Array(_) => "list",
            Value::Object(_) => "mapping",
        };
        let (text, notice) = match intended_text(name, value, in_job) {
            Ok(text) => {
                let detail =
                    format!("`{key}`: a {kind} is not a text: write \"{text}\", with the quotes");
                (
                    text,
                    Code::BadValue.diagnostic(detail).for_annotations([name]),
                )
            }
            Err((text, misread)) => (text, misread),
        };
        notices.push(notice);
        quoted.to_mut()["metadata"]["annotations"][key] = Value::String(text);
    }
    (quoted, notices)
}

/// The text that a value of the annotation `name` was meant to be, so that it is right; else the value
/// as a text, and what is wrong with that.
fn intended_text(name: &str, value: &Value, in_job: bool) -> Result<String, (String, Diagnostic)> {
    let text = match value {
        Value::Array(items) => items.iter().map(to_text).collect::<Vec<_>>().join(","),
        value => to_text(value),
    };
    let Some(notice) = check_value(name, &text, in_job) else {
        return Ok(text);
    };
    let mut others = vec![format!("{text}s"), format!("{text}Mi")];
    if *value == Value::Bool(false) {
        others.push("off".to_owned());
    }
    let right = |other: &String| check_value(name, other, in_job).is_none();
    others.into_iter().find(right).ok_or((text, notice))
}

fn to_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_right_spelling_is_told_at_once() {
        let table = [
            (
                "inject",
                json!(true),
                "a boolean is not a text: write \"true\", with the quotes",
            ),
            (
                "drain-timeout",
                json!(90),
                "a number is not a text: write \"90s\", with the quotes",
            ),
            (
                "drain-timeout",
                json!(1.5),
                "a number is not a text: write \"1.5s\", with the quotes",
            ),
            (
                "drain-delay",
                json!(0),
                "a number is not a text: write \"0\", with the quotes",
            ),
            (
                "idle-exit",
                json!(false),
                "a boolean is not a text: write \"off\", with the quotes",
            ),
            (
                "idle-exit",
                json!(7),
                "a number is not a text: write \"7s\", with the quotes",
            ),
            (
                "port",
                json!(9903),
                "a number is not a text: write \"9903\", with the quotes",
            ),
            (
                "exit-at-connections",
                json!(3),
                "a number is not a text: write \"3\", with the quotes",
            ),
            (
                "native-sidecar",
                json!(true),
                "a boolean is not a text: write \"true\", with the quotes",
            ),
            (
                "cpu-limit",
                json!(1),
                "a number is not a text: write \"1\", with the quotes",
            ),
            (
                "memory-limit",
                json!(64),
                "a number is not a text: write \"64Mi\", with the quotes",
            ),
            (
                "ignore-listeners",
                json!([8080, "probes"]),
                "a list is not a text: write \"8080,probes\", with the quotes",
            ),
            (
                "prot",
                json!(9903),
                "a number is not a text: write \"9903\", with the quotes",
            ),
            (
                "drain-timeout",
                json!(true),
                "invalid duration `true`: write it like 90s, 1m30s or 400ms",
            ),
            (
                "port",
                json!(0),
                "invalid port `0`: a number from 1 to 65535",
            ),
        ];
        for (name, value, want) in table {
            let key = format!("{PREFIX}{name}");
            let pod = json!({"metadata": {"annotations": {(key.as_str()): value, "other": 1}}});
            let (quoted, notices) = quote_annotations(&pod, false);
            assert_eq!(
                notices,
                [Code::BadValue
                    .diagnostic(format!("`{key}`: {want}"))
                    .for_annotations([name])],
                "{name}"
            );
            assert!(
                quoted["metadata"]["annotations"][&key].is_string(),
                "{name}"
            );
            assert_eq!(quoted["metadata"]["annotations"]["other"], 1);
        }
    }

    #[test]
    fn texts_stay_as_they_are() {
        for annotations in [
            json!({"envoy-drainer.dev/inject": "true", "envoy-drainer.dev/port": null, "a": 1}),
            json!(null),
            json!([1]),
        ] {
            let pod = json!({"metadata": {"annotations": annotations}});
            let (quoted, notices) = quote_annotations(&pod, false);
            assert_eq!((&*quoted, notices), (&pod, vec![]), "{annotations}");
        }
    }
}
