//! The second webhook: what becomes of a workload's pods is told when the workload is written, where a
//! person reads it. At the pods' own admission only a controller would.
//!
//! Warnings are the only answer: a workload is never refused or changed.

use serde_json::Value;

use super::answer::{About, Answer, Outcome, allow, guarded};
use super::astray::astray;
use super::codes::Notice;
use super::defaults::Defaults;
use super::mutate::{Facts, Verdict, mutate};
use super::object::{Object, Template, objects};
use super::review::{NotAReview, WrittenObject};
use super::token::token;
use super::view::PodView;

/// Answers an AdmissionReview of a workload with what its author should know of its pods.
///
/// # Errors
/// If the bytes hold no request that could be answered, which is the caller's mistake.
pub fn advise(body: &[u8], defaults: &Defaults) -> Result<Answer, NotAReview> {
    let review = WrittenObject::decode(body)?;
    let objects = objects(&review.object);
    let object = objects.first();
    let namespace = review.namespace.as_deref();
    let about = About {
        uid: review.uid.to_string(),
        namespace: namespace.unwrap_or_default().to_owned(),
        name: object.map_or("", |object| object.name).to_owned(),
        dry_run: review.dry_run,
    };
    let Some(object) = object.filter(|object| !is_made_by_another(object.value)) else {
        return Ok(allow(about, Outcome::NotOurs, None, Vec::new()));
    };
    Ok(match guarded(|| advice(object, namespace, defaults)) {
        Ok(advice) if advice.is_empty() => allow(about, Outcome::NotAsked, None, advice),
        Ok(advice) => allow(about, Outcome::Advised, None, advice),
        Err(fault) => allow(about, Outcome::Failed(fault.code), None, Vec::new()),
    })
}

/// True for the ReplicaSet of a Deployment and the Job of a CronJob: their author has been told, and
/// whoever writes them is a controller.
fn is_made_by_another(object: &Value) -> bool {
    let owners = object.pointer("/metadata/ownerReferences");
    let mut owners = owners.and_then(Value::as_array).into_iter().flatten();
    owners.any(|owner| owner["controller"] == true)
}

/// What the author of an object should know.
fn advice(object: &Object<'_>, namespace: Option<&str>, defaults: &Defaults) -> Vec<Notice> {
    let mut advice = match &object.template {
        Some(template) => of_pods(template, namespace, defaults),
        None => Vec::new(),
    };
    advice.extend(astray(object).into_iter().map(|stray| stray.notice));
    advice
}

/// What becomes of the pods, if their author may not expect it.
fn of_pods(template: &Template<'_>, namespace: Option<&str>, defaults: &Defaults) -> Vec<Notice> {
    let json = template.pod.to_string();
    let pod = match PodView::decode(&json) {
        Ok(pod) => pod,
        // The API server decodes the pods' fields more strictly than we do, and refuses them first.
        Err(_) => return Vec::new(),
    };
    let facts = Facts {
        namespace,
        in_job: template.in_job,
        token: token(&[]),
    };
    let led = |by: &str, notice: Notice| notice.code.about(format!("{by}: {}", notice.detail));
    match mutate(&pod, &facts, defaults) {
        Verdict::NotAsked => Vec::new(),
        Verdict::Inject { warnings, .. } => warnings,
        Verdict::Skip {
            reason, warnings, ..
        } => {
            let skip = led("its pods get no drainer as they are", reason);
            [skip].into_iter().chain(warnings).collect()
        }
        Verdict::Deny { reasons, warnings } => {
            let refusals = reasons
                .into_iter()
                .map(|reason| led("its pods will be refused", reason));
            refusals.chain(warnings).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What the answer to a review of an object is, and its warnings.
    fn advised(object: &Value, change: impl FnOnce(&mut Value)) -> (Outcome, Vec<String>) {
        let mut review = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u",
                "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
                "namespace": "shop",
                "operation": "CREATE",
                "object": object,
            },
        });
        change(&mut review["request"]);
        let answer = advise(
            review.to_string().as_bytes(),
            &Defaults::new("image", "own"),
        )
        .unwrap();
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        let response = &body["response"];
        assert_eq!(response["allowed"], true);
        assert_eq!(response.get("patch"), None);
        let warnings = response["warnings"].as_array().into_iter().flatten();
        let warnings = warnings.map(|warning| warning.as_str().unwrap().to_owned());
        (answer.outcome, warnings.collect())
    }

    fn deployment(annotations: &Value, containers: &Value) -> Value {
        let metadata = json!({"annotations": annotations});
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "edge"},
            "spec": {"template": {"metadata": metadata, "spec": {"containers": containers}}},
        })
    }

    fn as_it_is(_: &mut Value) {}

    #[test]
    fn the_author_of_a_workload_is_told_what_its_pods_will_meet() {
        let envoy = json!([{"name": "envoy", "image": "envoy"}]);
        let hooked =
            json!([{"name": "envoy", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}]);
        let asks = json!({"envoy-drainer.dev/inject": "true"});
        let bad = json!({"envoy-drainer.dev/inject": "true", "envoy-drainer.dev/drain-timeout": "90",
            "envoy-drainer.dev/quiet": "1s"});
        let table: [(Value, Value, &[&str]); 6] = [
            (json!({}), envoy.clone(), &[]),
            (asks.clone(), envoy.clone(), &[]),
            (
                asks,
                hooked,
                &["DRN008: its pods get no drainer as they are: container `envoy`"],
            ),
            (
                bad,
                envoy.clone(),
                &[
                    "DRN020: its pods will be refused: `envoy-drainer.dev/drain-timeout`",
                    "DRN050: unknown annotation `envoy-drainer.dev/quiet`",
                ],
            ),
            (
                json!({"envoy-drainer.dev/injct": "true"}),
                envoy.clone(),
                &["DRN050: unknown annotation `envoy-drainer.dev/injct`: did you mean `inject`?"],
            ),
            (
                json!({"envoy-drainer.dev/drain-timeout": "90s"}),
                envoy,
                &["DRN060: `envoy-drainer.dev/drain-timeout` is set"],
            ),
        ];
        for (annotations, containers, want) in table {
            let (outcome, warnings) = advised(&deployment(&annotations, &containers), as_it_is);
            assert_eq!(warnings.len(), want.len(), "{annotations}: {warnings:?}");
            for (warning, want) in warnings.iter().zip(want) {
                assert!(warning.starts_with(want), "{warning}");
            }
            let nothing = want.is_empty();
            let expected = if nothing {
                Outcome::NotAsked
            } else {
                Outcome::Advised
            };
            assert_eq!(outcome, expected, "{annotations}");
        }
    }

    #[test]
    fn an_annotation_of_the_workload_itself_is_told_where_it_belongs() {
        let mut object = deployment(&json!({}), &json!([{"name": "envoy"}]));
        object["metadata"]["annotations"] = json!({"envoy-drainer.dev/inject": "true"});
        let (_, warnings) = advised(&object, as_it_is);
        let [warning] = &warnings[..] else {
            panic!("{warnings:?}")
        };
        assert!(
            warning.ends_with("move to spec.template.metadata.annotations"),
            "{warning}"
        );
    }

    #[test]
    fn what_a_controller_writes_and_what_is_not_written_is_not_ours() {
        let bad = json!({"envoy-drainer.dev/inject": "maybe"});
        let object = deployment(&bad, &json!([{"name": "envoy"}]));
        let owners = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "controller": true}]);
        type Change<'a> = Box<dyn FnOnce(&mut Value) + 'a>;
        let changes: [(Change<'_>, Outcome); 5] = [
            (Box::new(as_it_is), Outcome::Advised),
            (
                Box::new(|r| r["operation"] = json!("UPDATE")),
                Outcome::Advised,
            ),
            (
                Box::new(|r| r["operation"] = json!("DELETE")),
                Outcome::NotOurs,
            ),
            (
                Box::new(|r| r["subResource"] = json!("scale")),
                Outcome::NotOurs,
            ),
            (
                Box::new(|r| r["object"]["metadata"]["ownerReferences"] = owners),
                Outcome::NotOurs,
            ),
        ];
        for (change, want) in changes {
            assert_eq!(advised(&object, change).0, want);
        }
        for odd in [json!(null), json!([1]), json!({"kind": 7})] {
            assert_eq!(advised(&odd, as_it_is), (Outcome::NotOurs, vec![]), "{odd}");
        }
    }
}
