//! Kubernetes' `$(NAME)` in a container's arguments, as far as the pod's manifest tells.
//! <https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/>

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// A text after expansion.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expanded<'t> {
    /// The text; what is not known stands in it as it was.
    pub text: Cow<'t, str>,
    /// The first name that is not known: from a ConfigMap or a field, or of a Service.
    pub unknown: Option<String>,
}

/// A variable of `env`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Variable<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    value: Option<Cow<'a, str>>,
    value_from: Option<IgnoredAny>,
}

/// Expands a text with the literal values of a container's `env`; `None` if it grows beyond `longest`
/// bytes.
pub(super) fn expand<'t>(
    text: &'t str,
    env: Option<&RawValue>,
    longest: usize,
) -> Option<Expanded<'t>> {
    if !text.contains('$') {
        return Some(Expanded {
            text: Cow::Borrowed(text),
            unknown: None,
        });
    }
    let (text, unknown) = replaced(text, &known(env, longest), longest)?;
    Some(Expanded {
        text: Cow::Owned(text),
        unknown,
    })
}

/// The variables whose values the manifest tells. One may be made of those before it.
fn known(env: Option<&RawValue>, longest: usize) -> HashMap<String, String> {
    // What is not as Kubernetes has it the API server refuses; here it is as good as not known.
    let variables: Vec<Variable<'_>> = env
        .and_then(|env| serde_json::from_str(env.get()).ok())
        .unwrap_or_default();
    let mut known = HashMap::new();
    for variable in variables {
        let value = match variable.value_from {
            Some(_) => None,
            None => replaced(&variable.value.unwrap_or_default(), &known, longest),
        };
        let name = variable.name.into_owned();
        match value {
            Some((value, None)) => known.insert(name, value),
            Some((_, Some(_))) | None => known.remove(&name),
        };
    }
    known
}

/// Replaces each `$(NAME)` as Kubernetes does: `$$` is a `$`, what is not known stays.
/// <https://github.com/kubernetes/kubernetes/blob/master/third_party/forked/golang/expansion/expand.go>
fn replaced(
    text: &str,
    known: &HashMap<String, String>,
    longest: usize,
) -> Option<(String, Option<String>)> {
    let mut replaced = String::new();
    let mut unknown = None;
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        replaced.push_str(before);
        let reference = after
            .strip_prefix('(')
            .and_then(|name| name.split_once(')'));
        rest = match (after.strip_prefix('$'), reference) {
            (Some(after), _) => {
                replaced.push('$');
                after
            }
            (None, Some((name, after))) => {
                match known.get(name) {
                    Some(value) => replaced.push_str(value),
                    None => {
                        replaced.push_str(&format!("$({name})"));
                        unknown.get_or_insert_with(|| name.to_owned());
                    }
                }
                after
            }
            (None, None) => {
                replaced.push('$');
                after
            }
        };
        if replaced.len() > longest {
            return None;
        }
    }
    replaced.push_str(rest);
    (replaced.len() <= longest).then_some((replaced, unknown))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json, value::to_raw_value};

    use super::*;

    fn expanded(text: &str, env: &Value) -> Option<(String, Option<String>)> {
        let env = to_raw_value(env).unwrap();
        let Expanded { text, unknown } = expand(text, Some(&env), 1000)?;
        Some((text.into_owned(), unknown))
    }

    #[test]
    fn references_are_replaced_as_kubernetes_does() {
        let env = json!([
            {"name": "PORT", "value": "99"},
            {"name": "ADDRESS", "value": "127.0.0.1:$(PORT)$(LATER)"},
            {"name": "BOTH", "value": "<$(PORT)$$(PORT)>"},
            {"name": "LATER", "value": "x"},
            {"name": "EMPTY"},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "TWICE", "value": "1"},
            {"name": "TWICE", "value": "2"},
        ]);
        let table = [
            ("port: 1", "port: 1", None),
            ("port: $(PORT)1", "port: 991", None),
            ("$(EMPTY)$(TWICE)$(BOTH)", "2<99$(PORT)>", None),
            (
                "$$(PORT) $PORT ${PORT} $ $(PORT",
                "$(PORT) $PORT ${PORT} $ $(PORT",
                None,
            ),
            ("$(IP):$(PORT):$(OTHER)", "$(IP):99:$(OTHER)", Some("IP")),
            // Made of what comes later, which Kubernetes does not know there.
            ("$(ADDRESS)", "$(ADDRESS)", Some("ADDRESS")),
            ("é$(LATER)$$", "éx$", None),
        ];
        for (text, want, unknown) in table {
            let want = Some((want.to_owned(), unknown.map(ToOwned::to_owned)));
            assert_eq!(expanded(text, &env), want, "{text}");
        }
    }

    #[test]
    fn what_is_no_env_tells_nothing() {
        for env in [
            json!({}),
            json!([{"value": "1"}]),
            json!([{"name": "A", "value": 1}]),
        ] {
            let want = Some(("$(A)".to_owned(), Some("A".to_owned())));
            assert_eq!(expanded("$(A)", &env), want, "{env}");
        }
    }

    #[test]
    fn a_text_that_grows_without_end_is_given_up() {
        let laughs = (1..60).map(|n| {
            let before = n - 1;
            json!({"name": format!("A{n}"), "value": format!("$(A{before})$(A{before})")})
        });
        let mut env = vec![json!({"name": "A0", "value": "ha"})];
        env.extend(laughs);
        let env = json!(env);
        assert_eq!(expanded("$(A8)", &env).unwrap().0.len(), 512);
        assert_eq!(expanded("$(A8)$(A8)", &env), None);
        assert_eq!(expanded("$(A59)", &env).unwrap().1.as_deref(), Some("A59"));
    }
}
