//! The ValidatingAdmissionPolicy for the CA Secret: the webhook's account may only write `data`.

use k8s_openapi::api::core::v1::Secret;
use tests::helm::{find_helm, object, objects};

use crate::cabundle_policy::{METADATA_FIELDS, fields};
use crate::words;

#[test]
fn policy_compares_every_field_but_data() {
    let Some(helm) = find_helm() else { return };
    let objects = objects(&helm.render_with(&[]).unwrap());
    let policy = &object(&objects, "ValidatingAdmissionPolicy", "-secret")["spec"];
    let secret = object(&objects, "Secret", "-ca");
    let rule = &policy["matchConstraints"]["resourceRules"][0];
    assert_eq!(rule["resourceNames"][0], secret["metadata"]["name"]);
    let validations = policy["validations"].as_array().unwrap().iter();
    let in_rules =
        validations.flat_map(|one| one["expression"].as_str().unwrap().split_whitespace());
    let rules = in_rules.collect::<Vec<_>>().join(" ");
    for field in words(METADATA_FIELDS) {
        for wanted in [
            format!("&& object.metadata.?{field} == oldObject.metadata.?{field}"),
            format!("&& !has(object.metadata.{field})"),
        ] {
            assert!(rules.contains(&wanted), "{wanted}: {rules}");
        }
    }
    for wanted in [
        "request.operation != 'UPDATE' || object.type == oldObject.type",
        "&& object.?immutable == oldObject.?immutable",
        "request.operation != 'CREATE' || object.type == 'Opaque' && !has(object.immutable)",
    ] {
        assert!(rules.contains(wanted), "{wanted}: {rules}");
    }
}

#[test]
fn policy_knows_every_field_of_a_secret() {
    // The API server does not store `stringData`.
    let known = words("apiVersion data immutable kind metadata stringData type");
    assert_eq!(fields::<Secret>(), known.collect());
}

#[test]
fn mode_secret_renders_no_secret_policy() {
    let Some(helm) = find_helm() else { return };
    let values = ["certificates.mode=secret", "certificates.secret.name=mine"];
    let rendered = helm.render_with(&values).unwrap();
    let names = objects(&rendered);
    let mut names = names
        .iter()
        .map(|object| object["metadata"]["name"].as_str());
    assert!(!names.any(|name| name.is_some_and(|name| name.ends_with("-secret"))));
}
