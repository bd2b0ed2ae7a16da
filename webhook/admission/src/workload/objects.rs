//! The objects of a document, and the pod templates in them.

use json_patch::jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

/// An object of a document: the document itself, an item of a `List`, or an item of an array.
#[derive(Debug, Clone)]
pub struct WorkloadObject<'a> {
    pub version: &'a str,
    pub kind: &'a str,
    /// Its namespace, if the document sets it.
    pub namespace: Option<&'a str>,
    /// Its name, or else its `generateName`.
    pub name: &'a str,
    /// Its path in the document.
    pub path: PointerBuf,
    /// The object itself.
    pub value: &'a Value,
    /// Its pod or pod template; `None` for kinds without pods and for unknown kinds.
    pub template: Option<PodTemplate<'a>>,
}

/// A pod or a pod template in an object.
#[derive(Debug, Clone)]
pub struct PodTemplate<'a> {
    /// Whether the pods are a Job's, which completes only when all of their containers have ended.
    pub in_job: bool,
    /// The path of the pod's `metadata` and `spec` in the object.
    pub path: &'static Pointer,
    /// The pod or pod template itself.
    pub pod: &'a Value,
}

/// Returns the objects of a document.
pub fn objects(document: &Value) -> Vec<WorkloadObject<'_>> {
    let mut objects = Vec::new();
    collect(document, Pointer::root(), &mut objects);
    objects
}

fn collect<'a>(value: &'a Value, path: &Pointer, objects: &mut Vec<WorkloadObject<'a>>) {
    if let Some(items) = value.as_array() {
        for (index, item) in items.iter().enumerate() {
            collect(item, &path.with_trailing_token(index), objects);
        }
        return;
    }
    let text = |pointer| value.pointer(pointer).and_then(Value::as_str);
    let (Some(version), Some(kind)) = (text("/apiVersion"), text("/kind")) else {
        return;
    };
    if version == "v1" && kind == "List" {
        if let Some(items @ Value::Array(_)) = value.get("items") {
            collect(items, &path.with_trailing_token("items"), objects);
        }
        return;
    }
    let template = template_path(version, kind).and_then(|path| match path.resolve(value) {
        Ok(pod @ Value::Object(_)) => Some(PodTemplate {
            in_job: matches!(kind, "Job" | "CronJob"),
            path,
            pod,
        }),
        _ => None,
    });
    let name = text("/metadata/name").or_else(|| text("/metadata/generateName"));
    objects.push(WorkloadObject {
        version,
        kind,
        namespace: text("/metadata/namespace"),
        name: name.unwrap_or_default(),
        path: path.to_buf(),
        value,
        template,
    });
}

/// Returns the path of the pod template in an object of this kind; `None` for an unknown kind. A kind of another
/// group may have the same name, but its controller may do anything with a template.
pub(crate) fn template_path(version: &str, kind: &str) -> Option<&'static Pointer> {
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
    fn template_of_every_known_kind_is_found() {
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
                let objects = objects(&document);
                let [object] = &objects[..] else {
                    panic!("{kind}: {objects:?}");
                };
                let template = object.template.as_ref().unwrap();
                assert_eq!(object.path.as_str(), base, "{kind}");
                assert_eq!(template.path.as_str(), path, "{kind}");
                assert_eq!(template.pod["spec"], spec["spec"], "{kind}");
                assert_eq!(
                    (object.kind, object.namespace, object.name, template.in_job),
                    (kind, Some("b"), "a", in_job)
                );
            }
        }
    }

    #[test]
    fn template_of_another_kind_is_ignored() {
        let spec = json!({"template": {"spec": {}}});
        for (version, kind) in [
            ("apps.kruise.io/v1beta1", "StatefulSet"),
            ("argoproj.io/v1alpha1", "Rollout"),
            ("v1", "Deployment"),
            ("apps/v1", "Pod"),
        ] {
            let object = json!({"apiVersion": version, "kind": kind, "spec": spec});
            let [only] = &objects(&object)[..] else {
                panic!("{object}");
            };
            assert_eq!((only.version, only.kind), (version, kind));
            assert!(only.template.is_none(), "{version} {kind}");
        }
        for document in [
            json!(null),
            json!("text"),
            json!({"kind": "Pod"}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": null}}),
            json!({"apiVersion": "v1", "kind": "List", "items": null}),
        ] {
            let objects = objects(&document);
            assert!(
                objects.iter().all(|object| object.template.is_none()),
                "{document}"
            );
        }
    }
}
