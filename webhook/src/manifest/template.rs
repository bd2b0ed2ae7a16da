//! The pod templates of a document, and where they stand.

use json_patch::jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

/// A pod, or the template of pods, in a document.
#[derive(Debug, Clone)]
pub struct Template<'a> {
    /// The kind of the object whose pods these are.
    pub kind: &'a str,
    /// The object's namespace, if the document says it.
    pub namespace: Option<&'a str>,
    /// The object's name, or what the API server will begin it with.
    pub name: &'a str,
    /// Whether the pods are a Job's, which ends only when all of their containers have.
    pub in_job: bool,
    /// Where `metadata` and `spec` of the pod stand.
    pub path: PointerBuf,
    /// What stands there.
    pub pod: &'a Value,
}

/// The pod templates of a document: of an object, of the items of a `List`, of an array of objects.
#[must_use]
pub fn templates(document: &Value) -> Vec<Template<'_>> {
    let mut found = Vec::new();
    collect(document, Pointer::root(), &mut found);
    found
}

fn collect<'a>(value: &'a Value, path: &Pointer, found: &mut Vec<Template<'a>>) {
    if let Some(items) = value.as_array() {
        for (index, item) in items.iter().enumerate() {
            collect(item, &path.with_trailing_token(index), found);
        }
        return;
    }
    let text = |pointer| value.pointer(pointer).and_then(Value::as_str);
    let (Some(version), Some(kind)) = (text("/apiVersion"), text("/kind")) else {
        return;
    };
    if version == "v1" && kind == "List" {
        if let Some(items @ Value::Array(_)) = value.get("items") {
            collect(items, &path.with_trailing_token("items"), found);
        }
        return;
    }
    let Some(template) = place(version, kind) else {
        return;
    };
    let Ok(pod @ Value::Object(_)) = template.resolve(value) else {
        return;
    };
    found.push(Template {
        kind,
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name")
            .or_else(|| text("/metadata/generateName"))
            .unwrap_or_default(),
        in_job: matches!(kind, "Job" | "CronJob"),
        path: path.concat(template),
        pod,
    });
}

/// Where an object of this kind has its pod template. Kinds of other groups may have the same names
/// and are not ours: their controllers may do anything with a template.
fn place(version: &str, kind: &str) -> Option<&'static Pointer> {
    let group = version.split_once('/').map_or("", |(group, _)| group);
    Some(match (group, kind) {
        ("", "Pod") => Pointer::root(),
        ("", "ReplicationController")
        | ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
        | ("batch", "Job") => Pointer::from_static("/spec/template"),
        ("batch", "CronJob") => Pointer::from_static("/spec/jobTemplate/spec/template"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_has_its_template_in_its_place() {
        let spec = json!({"spec": {"containers": []}});
        let table = [
            ("v1", "Pod", "", false),
            ("v1", "ReplicationController", "/spec/template", false),
            ("apps/v1", "Deployment", "/spec/template", false),
            ("apps/v1beta2", "StatefulSet", "/spec/template", false),
            ("apps/v1", "DaemonSet", "/spec/template", false),
            ("apps/v1", "ReplicaSet", "/spec/template", false),
            ("batch/v1", "Job", "/spec/template", true),
            (
                "batch/v1",
                "CronJob",
                "/spec/jobTemplate/spec/template",
                true,
            ),
        ];
        for (version, kind, path, in_job) in table {
            let mut object = spec.clone();
            for token in path.rsplit('/').filter(|token| !token.is_empty()) {
                object = json!({ token: object });
            }
            object["apiVersion"] = version.into();
            object["kind"] = kind.into();
            object["metadata"] = json!({"name": "a", "namespace": "b"});
            let list = json!({"apiVersion": "v1", "kind": "List", "items": [{}, object.clone()]});
            for (document, base) in [(object, ""), (list, "/items/1")] {
                let found = templates(&document);
                let [template] = &found[..] else {
                    panic!("{kind}: {found:?}");
                };
                assert_eq!(template.path.as_str(), format!("{base}{path}"), "{kind}");
                assert_eq!(template.pod["spec"], spec["spec"], "{kind}");
                assert_eq!(
                    (
                        template.kind,
                        template.namespace,
                        template.name,
                        template.in_job
                    ),
                    (kind, Some("b"), "a", in_job)
                );
            }
        }
    }

    #[test]
    fn what_only_looks_like_a_template_is_none() {
        let spec = json!({"template": {"spec": {}}});
        for (version, kind) in [
            ("apps.kruise.io/v1beta1", "StatefulSet"),
            ("argoproj.io/v1alpha1", "Rollout"),
            ("v1", "Deployment"),
            ("apps/v1", "Pod"),
        ] {
            let object = json!({"apiVersion": version, "kind": kind, "spec": spec});
            assert!(templates(&object).is_empty(), "{version} {kind}");
        }
        for document in [
            json!(null),
            json!("text"),
            json!({"kind": "Pod"}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": null}}),
            json!({"apiVersion": "v1", "kind": "List", "items": null}),
        ] {
            assert!(templates(&document).is_empty(), "{document}");
        }
    }
}
