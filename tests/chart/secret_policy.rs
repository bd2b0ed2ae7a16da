//! The policy for the webhook's Secret: the account may write its data alone.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Secret;
use tests::helm::{self, object, objects};

use crate::cabundle_policy::{METADATA_FIELDS, fields};

#[test]
fn every_field_of_the_secret_but_data_is_compared() {
    let Some(helm) = helm::find_helm() else {
        return;
    };
    let objects = objects(&helm.render_with(&[]).unwrap());
    let policy = &object(&objects, "ValidatingAdmissionPolicy", "-secret")["spec"];
    let secret = object(&objects, "Secret", "-ca");
    let rule = &policy["matchConstraints"]["resourceRules"][0];
    assert_eq!(rule["resourceNames"][0], secret["metadata"]["name"]);
    let validations = policy["validations"].as_array().unwrap().iter();
    let words = validations.flat_map(|one| one["expression"].as_str().unwrap().split_whitespace());
    let rules = words.collect::<Vec<_>>().join(" ");
    for field in METADATA_FIELDS {
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
fn a_secret_has_no_field_that_the_policy_does_not_know() {
    // The API server keeps no `stringData`.
    let known = [
        "apiVersion",
        "data",
        "immutable",
        "kind",
        "metadata",
        "stringData",
        "type",
    ];
    assert_eq!(fields::<Secret>(), BTreeSet::from(known));
}

#[test]
fn a_secret_of_another_has_no_policy() {
    let Some(helm) = helm::find_helm() else {
        return;
    };
    let values = ["certificates.mode=secret", "certificates.secret.name=given"];
    let rendered = helm.render_with(&values).unwrap();
    let names = objects(&rendered);
    let mut names = names
        .iter()
        .map(|object| object["metadata"]["name"].as_str());
    assert!(!names.any(|name| name.is_some_and(|name| name.ends_with("-secret"))));
}
