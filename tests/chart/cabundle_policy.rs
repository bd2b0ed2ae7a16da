//! The ValidatingAdmissionPolicy for the webhook configuration: it names every field that the webhook's account must
//! not change.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use tests::helm::{self, object, objects};

use crate::words;

/// The fields of a webhook entry in Kubernetes 1.37, the newest version in k8s-openapi.
const ENTRY_FIELDS: &str = "\
    admissionReviewVersions clientConfig failurePolicy matchConditions matchPolicy name namespaceSelector \
    objectSelector reinvocationPolicy rules sideEffects timeoutSeconds";

/// The fields of metadata that an update can change; the API server does not let updates change the others.
/// <https://github.com/kubernetes/apimachinery/blob/master/pkg/api/validation/objectmeta.go>
pub(crate) const METADATA_FIELDS: &str =
    "annotations finalizers generateName labels ownerReferences";

/// The fields of metadata that no update can change.
const PROTECTED_METADATA_FIELDS: &str = "\
    creationTimestamp deletionGracePeriodSeconds deletionTimestamp generation managedFields name namespace \
    resourceVersion selfLink uid";

/// The fields of a struct, as its deserializer names them.
pub(crate) fn fields<'de, T: Deserialize<'de>>() -> BTreeSet<&'static str> {
    let mut fields = BTreeSet::new();
    let _ = T::deserialize(FieldNameDeserializer(&mut fields));
    assert!(!fields.is_empty(), "a struct has fields");
    fields
}

/// Collects the names of the fields that a struct deserializes, and fails.
struct FieldNameDeserializer<'a>(&'a mut BTreeSet<&'static str>);

impl<'de> Deserializer<'de> for FieldNameDeserializer<'_> {
    type Error = de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(de::Error::custom("on purpose"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.0.extend(fields);
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The expression of the policy's only validation, in one line.
fn rule() -> Option<String> {
    let objects = objects(&helm::find_helm()?.render_with(&[]).unwrap());
    let policy = object(&objects, "ValidatingAdmissionPolicy", "-cabundle");
    let validations = policy["spec"]["validations"].as_array().unwrap();
    assert_eq!(validations.len(), 1);
    let words = validations[0]["expression"].as_str().unwrap();
    Some(words.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn policy_compares_every_field_but_the_ca_bundle() {
    let Some(rule) = rule() else { return };
    let entry = words(ENTRY_FIELDS).filter(|field| !["name", "clientConfig"].contains(field));
    let entry = entry.map(|field| format!("&& new.?{field} == old.?{field}"));
    let client = ["service", "url"];
    let client = client.map(|f| format!("&& new.clientConfig.?{f} == old.clientConfig.?{f}"));
    let metadata = words(METADATA_FIELDS)
        .map(|f| format!("&& object.metadata.?{f} == oldObject.metadata.?{f}"));
    let others = [
        "size(object.webhooks) == size(oldObject.webhooks)",
        "object.webhooks.all(new, oldObject.webhooks.exists(old, new.name == old.name &&",
    ];
    let others = others.map(str::to_owned);
    for wanted in entry.chain(client).chain(metadata).chain(others) {
        assert!(rule.contains(&wanted), "{wanted}: {rule}");
    }
}

#[test]
fn policy_knows_every_field_of_kubernetes() {
    assert_eq!(fields::<MutatingWebhook>(), words(ENTRY_FIELDS).collect());
    let client = ["caBundle", "service", "url"];
    assert_eq!(fields::<WebhookClientConfig>(), client.into());
    let metadata = words(METADATA_FIELDS).chain(words(PROTECTED_METADATA_FIELDS));
    assert_eq!(fields::<ObjectMeta>(), metadata.collect());
    let object = ["apiVersion", "kind", "metadata", "webhooks"];
    assert_eq!(fields::<MutatingWebhookConfiguration>(), object.into());
}
