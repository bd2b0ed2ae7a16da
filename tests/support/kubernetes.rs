//! Checks objects for fields that an API server does not know.

use std::collections::BTreeSet;
use std::mem::discriminant;
use std::ops::RangeInclusive;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The supported versions of Kubernetes: the minor of 1.X.
pub const MINORS: RangeInclusive<u32> = 29..=37;

/// The fields of pods and Services that Kubernetes has added since 1.29, each with the minor of its version and with
/// the key of its parent. API servers show them to webhooks before they drop those whose feature is off.
/// <https://github.com/kubernetes/api/blob/v0.37.1/core/v1/types.go>, compared with the tags before
pub const NEW_FIELDS: [(u32, &str); 33] = [
    (30, "securityContext.appArmorProfile"),
    (30, "spec.trafficDistribution"),
    (30, "volumeMounts.recursiveReadOnly"),
    (31, "claims.request"),
    (31, "resourceClaims.resourceClaimName"),
    (31, "resourceClaims.resourceClaimTemplateName"),
    (31, "securityContext.supplementalGroupsPolicy"),
    (31, "volumes.image"),
    (32, "securityContext.seLinuxChangePolicy"),
    (32, "spec.resources"),
    (33, "lifecycle.stopSignal"),
    // Before, API servers allowed it in `initContainers` alone.
    (34, "containers.restartPolicy"),
    (34, "containers.restartPolicyRules"),
    (34, "initContainers.restartPolicyRules"),
    (34, "sources.podCertificate"),
    (34, "spec.hostnameOverride"),
    (34, "valueFrom.fileKeyRef"),
    (35, "podCertificate.userAnnotations"),
    // Only in 1.35.
    (35, "spec.workloadRef"),
    (36, "spec.schedulingGroup"),
    (37, "clusterTrustBundle.user"),
    (37, "configMap.defaultUser"),
    (37, "downwardAPI.defaultUser"),
    (37, "emptyDir.mode"),
    (37, "grpc.mode"),
    (37, "httpGet.protocol"),
    (37, "items.user"),
    (37, "podCertificate.user"),
    (37, "projected.defaultUser"),
    (37, "secret.defaultUser"),
    (37, "serviceAccountToken.user"),
    (37, "spec.evictionResponders"),
    (37, "volumeMounts.bindMountOptions"),
];

/// Returns those of [`NEW_FIELDS`] that are in a value whose parent has the key `parent`.
pub fn new_fields(parent: &str, value: &Value) -> BTreeSet<(u32, &'static str)> {
    let mut found = BTreeSet::new();
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = format!("{parent}.{key}");
                found.extend(NEW_FIELDS.into_iter().filter(|(_, field)| *field == path));
                found.extend(new_fields(key, value));
            }
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| found.extend(new_fields(parent, item))),
        _ => {}
    }
    found
}

/// Lists the fields of an object that its kind does not have, and that the API server would drop.
///
/// # Errors
/// When the kind is not known here, a required field is missing, or a field has another type.
pub fn unknown_fields(object: &Value) -> Result<Vec<String>> {
    let name = |key: &str| object[key].as_str().unwrap_or_default();
    let mut unknown = Vec::new();
    if let Some(spec) = custom_spec(name("apiVersion"), name("kind")) {
        let names = json!({ "*": "" });
        let metadata =
            json!({"name": "", "namespace?": "", "labels?": names, "annotations?": names});
        let shape = json!({"apiVersion": "", "kind": "", "metadata": metadata, "spec": spec});
        compare_shape(object, &shape, "", &mut unknown)?;
        return Ok(unknown);
    }
    let reread = match (name("apiVersion"), name("kind")) {
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration") => {
            round_trip::<MutatingWebhookConfiguration>
        }
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy") => {
            round_trip::<ValidatingAdmissionPolicy>
        }
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding") => {
            round_trip::<ValidatingAdmissionPolicyBinding>
        }
        ("apps/v1", "Deployment") => round_trip::<Deployment>,
        ("networking.k8s.io/v1", "NetworkPolicy") => round_trip::<NetworkPolicy>,
        ("policy/v1", "PodDisruptionBudget") => round_trip::<PodDisruptionBudget>,
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => round_trip::<ClusterRole>,
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => round_trip::<ClusterRoleBinding>,
        ("rbac.authorization.k8s.io/v1", "Role") => round_trip::<Role>,
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => round_trip::<RoleBinding>,
        ("v1", "ConfigMap") => round_trip::<ConfigMap>,
        ("v1", "Secret") => round_trip::<Secret>,
        ("v1", "Service") => round_trip::<Service>,
        ("v1", "ServiceAccount") => round_trip::<ServiceAccount>,
        (version, kind) => bail!("unknown kind {kind} of {version}"),
    };
    let reread = reread(object).with_context(|| format!("reading a {}", name("kind")))?;
    compare(object, &reread, "", &mut unknown);
    Ok(unknown)
}

/// The `spec` of a custom resource as far as the chart writes it, each field with a value of its type; `None` for
/// another kind. A field whose name ends with `?` may be missing, and `*` is any name.
fn custom_spec(version: &str, kind: &str) -> Option<Value> {
    // <https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.RelabelConfig>
    let relabeling = json!({"action?": "", "regex?": "", "targetLabel?": "", "replacement?": ""});
    let endpoint = json!({
        "port": "", "path": "", "interval": "", "scrapeTimeout?": "",
        "relabelings?": [relabeling], "metricRelabelings?": [relabeling],
    });
    let monitor = |endpoints: &str| {
        json!({
            "selector": {"matchLabels": {"*": ""}},
            "namespaceSelector": {"matchNames": [""]},
            endpoints: [endpoint],
        })
    };
    let names = json!({ "*": "" });
    let rule = json!({"alert": "", "expr": "", "for?": "", "labels": names, "annotations": names});
    Some(match (version, kind) {
        // <https://cert-manager.io/docs/reference/api-docs/#cert-manager.io/v1.CertificateSpec>
        ("cert-manager.io/v1", "Certificate") => json!({
            "secretName": "", "isCA?": true, "commonName": "", "dnsNames?": [""], "usages": [""],
            "privateKey": {"algorithm": "", "size": 0, "rotationPolicy": ""},
            "duration": "", "renewBefore?": "", "issuerRef": {"name": "", "kind?": "", "group?": ""},
        }),
        // <https://cert-manager.io/docs/reference/api-docs/#cert-manager.io/v1.IssuerSpec>
        ("cert-manager.io/v1", "Issuer") => json!({"selfSigned?": {}, "ca?": {"secretName": ""}}),
        // <https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.PodMonitorSpec>
        ("monitoring.coreos.com/v1", "PodMonitor") => monitor("podMetricsEndpoints"),
        // <https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.PrometheusRuleSpec>
        ("monitoring.coreos.com/v1", "PrometheusRule") => {
            json!({"groups": [{"name": "", "rules": [rule]}]})
        }
        // <https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.ServiceMonitorSpec>
        ("monitoring.coreos.com/v1", "ServiceMonitor") => monitor("endpoints"),
        _ => return None,
    })
}

/// Adds the paths of the fields that [`custom_spec`] does not have.
fn compare_shape(
    value: &Value,
    shape: &Value,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<()> {
    match (value, shape) {
        (Value::Object(fields), Value::Object(shapes)) => {
            for (name, value) in fields {
                let path = format!("{path}/{name}");
                let optional = || shapes.get(&format!("{name}?"));
                let shape = shapes.get(name).or_else(optional);
                match shape.or_else(|| shapes.get("*")) {
                    Some(shape) => compare_shape(value, shape, &path, unknown)?,
                    None => unknown.push(path),
                }
            }
            let is_optional = |name: &str| name == "*" || name.ends_with('?');
            let mut required = shapes.keys().filter(|name| !is_optional(name));
            let missing = required.find(|name| !fields.contains_key(*name));
            missing.map_or(Ok(()), |name| bail!("{path} has no {name}"))
        }
        (Value::Array(items), Value::Array(shapes)) => items
            .iter()
            .try_for_each(|item| compare_shape(item, &shapes[0], path, unknown)),
        (value, shape) if discriminant(value) == discriminant(shape) => Ok(()),
        _ => bail!("{path} has another type: {value}"),
    }
}

/// Deserializes an object as a `T`, and serializes it again.
fn round_trip<T: DeserializeOwned + Serialize>(object: &Value) -> Result<Value> {
    let read: T = serde_json::from_value(object.clone())?;
    Ok(serde_json::to_value(read)?)
}

fn compare(written: &Value, known: &Value, path: &str, unknown: &mut Vec<String>) {
    match (written, known) {
        (Value::Object(written), Value::Object(known)) => {
            for (key, value) in written {
                let path = format!("{path}/{key}");
                match known.get(key) {
                    Some(known) => compare(value, known, &path, unknown),
                    None => unknown.push(path),
                }
            }
        }
        (Value::Array(written), Value::Array(known)) => {
            for (index, (value, known)) in written.iter().zip(known).enumerate() {
                compare(value, known, &format!("{path}/{index}"), unknown);
            }
        }
        (written, known) if written != known => unknown.push(path.to_owned()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_found_at_any_depth() {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "a", "lables": {}},
            "rules": [{"verbs": ["get"]}, {"verbs": ["get"], "resource": ["secrets"]}],
        });
        let unknown = unknown_fields(&role).unwrap();
        assert_eq!(unknown, ["/metadata/lables", "/rules/1/resource"]);
    }

    #[test]
    fn value_of_another_type_is_an_error() {
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "a"},
            "spec": {"ports": [{"port": "443"}]},
        });
        assert!(unknown_fields(&service).is_err());
    }
}
