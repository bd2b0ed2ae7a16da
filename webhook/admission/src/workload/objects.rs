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

// === impl WorkloadObject ===

impl WorkloadObject<'_> {
    /// Returns true for a Gateway, whose controller creates pods with the annotations of its `spec.infrastructure`.
    /// <https://gateway-api.sigs.k8s.io/geps/gep-1762/>
    pub fn is_gateway(&self) -> bool {
        self.kind == "Gateway" && self.version.starts_with("gateway.networking.k8s.io/")
    }
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
    let known = template_path(version, kind);
    let template_path = known.or_else(|| custom_template_path(version, value));
    let template = template_path.and_then(|path| match path.resolve(value) {
        Ok(pod @ Value::Object(_)) => Some(PodTemplate {
            in_job: known.is_some() && matches!(kind, "Job" | "CronJob"),
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

/// Returns the path of the pod template in an object of this kind; `None` for an unknown kind.
pub(crate) fn template_path(version: &str, kind: &str) -> Option<&'static Pointer> {
    (served_version(kind)? == version).then_some(match kind {
        "Pod" => Pointer::root(),
        "CronJob" => Pointer::from_static("/spec/jobTemplate/spec/template"),
        _ => Pointer::from_static("/spec/template"),
    })
}

/// Returns the API version under which clusters have a kind with pods; `None` for an unknown kind. A kind of another
/// group may have the same name.
pub(super) fn served_version(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "Pod" | "ReplicationController" => "v1",
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" => "apps/v1",
        "Job" | "CronJob" => "batch/v1",
        _ => return None,
    })
}

/// Returns the path of the pod template of a custom resource that has one where Deployments have it, such as Argo's
/// Rollout, OpenKruise's CloneSet or OpenShift's DeploymentConfig. Knative's Service takes neither hooks nor init
/// containers there.
fn custom_template_path(version: &str, value: &Value) -> Option<&'static Pointer> {
    let path = Pointer::from_static("/spec/template");
    let is_custom = is_custom(version) && !version.starts_with("serving.knative.dev/");
    let containers = path.resolve(value).ok()?.pointer("/spec/containers")?;
    (is_custom && containers.is_array()).then_some(path)
}

/// Returns true for the API version of a custom resource: its group is a domain, as those of Kubernetes with pods are not.
pub(super) fn is_custom(version: &str) -> bool {
    let group = version.split_once('/').map(|(group, _)| group);
    group.is_some_and(|group| group.contains('.'))
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
            ("apps/v1", "StatefulSet", "/spec/template", false),
            ("argoproj.io/v1alpha1", "Rollout", "/spec/template", false),
            ("apps.kruise.io/v1beta1", "Job", "/spec/template", false),
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
        let spec = json!({"template": {"spec": {"containers": []}}});
        for (version, kind) in [
            ("serving.knative.dev/v1", "Service"),
            ("apps/v1beta2", "StatefulSet"),
            ("extensions/v1beta1", "Deployment"),
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
            json!({"apiVersion": "example.com/v1", "kind": "Form", "spec": {"template": {"spec": {}}}}),
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
