//! The token of a pod that has no admission request.

use serde_json::Value;

use super::ObjectName;
use crate::admission;

/// Makes the token from the object's kind, namespace and name, and from what its pod template means:
/// the same document gives the same token on every run, and only a change that rolls the pods anyway
/// gives another. Comments, quotes and the order of keys do not count.
pub(super) fn token(object: &ObjectName, pod: &Value) -> drainer::Token {
    let mut source = String::new();
    let ObjectName {
        kind,
        namespace,
        name,
    } = object;
    for part in [kind, namespace.as_deref().unwrap_or_default(), name] {
        source.push_str(part);
        source.push('\0');
    }
    write_canonical(pod, &mut source);
    admission::token(source.as_bytes())
}

/// JSON with sorted keys; serde_json sorts them too unless some crate asks it not to.
fn write_canonical(value: &Value, source: &mut String) {
    match value {
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            source.push('{');
            for (key, value) in entries {
                source.push_str(&Value::from(key.as_str()).to_string());
                write_canonical(value, source);
            }
            source.push('}');
        }
        Value::Array(items) => {
            source.push('[');
            for item in items {
                write_canonical(item, source);
            }
            source.push(']');
        }
        scalar => {
            source.push_str(&scalar.to_string());
            source.push(',');
        }
    }
}
