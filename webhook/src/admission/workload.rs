//! The second webhook: what becomes of a workload's pods is told when the workload is written, where a
//! person reads it. At the pods' own admission only a controller would.
//!
//! Warnings are the only answer: a workload is never refused or changed.

pub(crate) mod metadata_maps;
pub(crate) mod misplaced;
pub(crate) mod objects;

use serde::Deserialize;
use serde_json::value::RawValue;

use self::misplaced::find_misplaced;
use super::decide::{Decision, PodContext, decide};
use super::defaults::Defaults;
use super::diagnostics::{Code, Diagnostic};
use super::review::response::{AdmissionOutcome, RequestMeta, ReviewResponse, allow, catch_panic};

use super::pod::{Items, OwnerReference, PodView, Text, from_objects};
use super::review::request::{InvalidReview, ObjectReview};
use super::token::token;

/// A workload, borrowed from the bytes of its manifest.
#[derive(Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
struct Workload<'a> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    #[serde(borrow)]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    metadata: Option<Metadata<'a>>,
    #[serde(borrow)]
    spec: Option<Spec<'a>>,
}

#[derive(Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    generate_name: Option<Text<'a>>,
    #[serde(borrow)]
    owner_references: Option<Items<OwnerReference<'a>>>,
}

#[derive(Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    template: Option<&'a RawValue>,
    #[serde(borrow)]
    job_template: Option<JobTemplate<'a>>,
}

#[derive(Deserialize)]
#[serde(remote = "Self")]
struct JobTemplate<'a> {
    #[serde(borrow)]
    spec: Option<JobSpec<'a>>,
}

#[derive(Deserialize)]
#[serde(remote = "Self")]
struct JobSpec<'a> {
    #[serde(borrow)]
    template: Option<&'a RawValue>,
}

from_objects! {
    Workload<'a>,
    Metadata<'a>,
    Spec<'a>,
    JobTemplate<'a>,
    JobSpec<'a>,
}

/// What is said of a workload, and what it is called.
struct WorkloadAdmission {
    name: String,
    outcome: AdmissionOutcome,
    diagnostics: Vec<Diagnostic>,
}

/// Answers an AdmissionReview of a workload with what its author should know of its pods.
///
/// # Errors
/// If the bytes hold no request that could be answered, which is the caller's mistake.
pub fn admit_workload(body: &[u8], defaults: &Defaults) -> Result<ReviewResponse, InvalidReview> {
    let review = ObjectReview::decode(body)?;
    let namespace = review.namespace.as_deref();
    let advice = match review.object {
        Some(json) => catch_panic(|| WorkloadAdmission::for_object(json, namespace, defaults)),
        None => Ok(WorkloadAdmission::ignored()),
    };
    let WorkloadAdmission {
        name,
        outcome,
        diagnostics: notices,
    } = advice.unwrap_or_else(|fault| WorkloadAdmission {
        outcome: AdmissionOutcome::Failed(fault.code),
        ..WorkloadAdmission::ignored()
    });
    let about = RequestMeta {
        uid: review.uid.to_string(),
        namespace: namespace.unwrap_or_default().to_owned(),
        name,
        dry_run: review.dry_run,
    };
    Ok(allow(about, outcome, None, notices))
}

// === impl WorkloadAdmission ===

impl WorkloadAdmission {
    /// On what is no workload of a person's.
    fn ignored() -> Self {
        Self {
            name: String::new(),
            outcome: AdmissionOutcome::Ignored,
            diagnostics: Vec::new(),
        }
    }

    /// On an object, whatever it is.
    fn for_object(json: &str, namespace: Option<&str>, defaults: &Defaults) -> Self {
        let workload = match serde_json::from_str::<Workload<'_>>(json) {
            Ok(workload) => workload,
            Err(error) => return Self::for_invalid_object(&error),
        };
        let (Some(version), Some(kind)) = (&workload.api_version, &workload.kind) else {
            return Self::ignored();
        };
        let name = workload.name().to_owned();
        if workload.has_controller() {
            return Self {
                name,
                ..Self::ignored()
            };
        }
        let pods = match workload.pod_template(version, kind, json) {
            Some((template, in_job)) => warnings_for(template, in_job, namespace, defaults),
            None => Ok(Vec::new()),
        };
        let strays = find_misplaced(version, kind, json).into_iter();
        let strays = strays.map(|stray| stray.diagnostic);
        let (outcome, notices) = match pods {
            Ok(pods) => {
                let notices: Vec<_> = pods.into_iter().chain(strays).collect();
                match notices.is_empty() {
                    true => (AdmissionOutcome::NotRequested, notices),
                    false => (AdmissionOutcome::Warned, notices),
                }
            }
            Err(unread) => (AdmissionOutcome::Failed(unread.code), vec![unread]),
        };
        Self {
            name,
            outcome,
            diagnostics: notices,
        }
    }

    /// On what has the shape of no workload, or too much of something.
    fn for_invalid_object(error: &serde_json::Error) -> Self {
        let why = error.to_string();
        // The position is one in JSON that nobody has seen.
        let why = why.split(" at line ").next().unwrap_or_default();
        Self {
            outcome: AdmissionOutcome::Failed(Code::PodNotRead),
            diagnostics: vec![pod_not_read(why)],
            ..Self::ignored()
        }
    }
}

// === impl Workload ===

impl<'a> Workload<'a> {
    /// Its name, or what the API server will begin it with.
    fn name(&self) -> &str {
        let metadata = self.metadata.as_ref();
        let name = metadata.and_then(|metadata| metadata.name.as_deref());
        let prefix = || metadata?.generate_name.as_deref();
        name.or_else(prefix).unwrap_or_default()
    }

    /// True for the ReplicaSet of a Deployment and the Job of a CronJob: their author has been told, and
    /// whoever writes them is a controller.
    fn has_controller(&self) -> bool {
        let owners = self
            .metadata
            .iter()
            .filter_map(|m| m.owner_references.as_ref());
        owners.flatten().any(|owner| owner.controller == Some(true))
    }

    /// The manifest of its pods, and whether they are a Job's. `json` is its own.
    fn pod_template(&self, version: &str, kind: &str, json: &'a str) -> Option<(&'a str, bool)> {
        let place = objects::template_path(version, kind)?;
        let spec = self.spec.as_ref();
        let template = match (place.is_root(), kind) {
            (true, _) => return Some((json, false)),
            (false, "CronJob") => spec?.job_template.as_ref()?.spec.as_ref()?.template?,
            (false, _) => spec?.template?,
        };
        Some((template.get(), matches!(kind, "Job" | "CronJob")))
    }
}

/// What becomes of the pods, if their author may not expect it.
///
/// # Errors
/// With the warning that they cannot be read.
fn warnings_for(
    template: &str,
    in_job: bool,
    namespace: Option<&str>,
    defaults: &Defaults,
) -> Result<Vec<Diagnostic>, Diagnostic> {
    let pod = PodView::decode(template).map_err(|why| pod_not_read(&why.to_string()))?;
    let facts = PodContext {
        namespace,
        in_job,
        // Nothing of the patch is kept.
        token: token(&[]),
    };
    let led =
        |by: &str, notice: Diagnostic| notice.code.diagnostic(format!("{by}: {}", notice.detail));
    Ok(match decide(&pod, &facts, defaults) {
        Decision::NotRequested => Vec::new(),
        Decision::Inject { warnings, .. } => warnings,
        Decision::Skip {
            reason, warnings, ..
        } => {
            let skip = led("its pods get no drainer as they are", reason);
            [skip].into_iter().chain(warnings).collect()
        }
        Decision::Deny { reasons, warnings } => {
            let refusals = reasons
                .into_iter()
                .map(|reason| led("its pods will be refused", reason));
            refusals.chain(warnings).collect()
        }
    })
}

fn pod_not_read(why: &str) -> Diagnostic {
    Code::PodNotRead.diagnostic(format!("its pods could not be read: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What the answer to a review of an object is, and its warnings.
    fn admit_object(
        object: &Value,
        change: impl FnOnce(&mut Value),
    ) -> (AdmissionOutcome, Vec<String>) {
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
        let answer = admit_workload(
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

    fn unchanged(_: &mut Value) {}

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
            let (outcome, warnings) =
                admit_object(&deployment(&annotations, &containers), unchanged);
            assert_eq!(warnings.len(), want.len(), "{annotations}: {warnings:?}");
            for (warning, want) in warnings.iter().zip(want) {
                assert!(warning.starts_with(want), "{warning}");
            }
            let nothing = want.is_empty();
            let expected = if nothing {
                AdmissionOutcome::NotRequested
            } else {
                AdmissionOutcome::Warned
            };
            assert_eq!(outcome, expected, "{annotations}");
        }
    }

    #[test]
    fn an_annotation_of_the_workload_itself_is_told_where_it_belongs() {
        let mut object = deployment(&json!({}), &json!([{"name": "envoy"}]));
        object["metadata"]["annotations"] = json!({"envoy-drainer.dev/inject": "true"});
        let (_, warnings) = admit_object(&object, unchanged);
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
        let changes: [(Change<'_>, AdmissionOutcome); 5] = [
            (Box::new(unchanged), AdmissionOutcome::Warned),
            (
                Box::new(|r| r["operation"] = json!("UPDATE")),
                AdmissionOutcome::Warned,
            ),
            (
                Box::new(|r| r["operation"] = json!("DELETE")),
                AdmissionOutcome::Ignored,
            ),
            (
                Box::new(|r| r["subResource"] = json!("scale")),
                AdmissionOutcome::Ignored,
            ),
            (
                Box::new(|r| r["object"]["metadata"]["ownerReferences"] = owners),
                AdmissionOutcome::Ignored,
            ),
        ];
        for (change, want) in changes {
            assert_eq!(admit_object(&object, change).0, want);
        }
        for odd in [json!(null), json!({}), json!({"kind": "Deployment"})] {
            assert_eq!(
                admit_object(&odd, unchanged),
                (AdmissionOutcome::Ignored, vec![]),
                "{odd}"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_allowed_with_one_warning() {
        let containers = json!(vec![json!({}); 2_001]);
        let mut owned = deployment(&json!({}), &json!([]));
        owned["metadata"]["ownerReferences"] = json!(vec![json!({}); 2_001]);
        let mut long = deployment(&json!({"envoy-drainer.dev/injct": "true"}), &json!([]));
        long["spec"]["template"]["spec"]["initContainers"] = json!([{"name": "x".repeat(300_000)}]);
        for (object, field) in [
            (
                deployment(&json!({}), &containers),
                "spec.containers: more than 2000 elements",
            ),
            (owned, "more than 2000 elements"),
            (
                long,
                "spec.initContainers[0].name: a string of 300000 bytes: at most 262144",
            ),
            (json!([1]), "invalid type: sequence"),
            (json!({"kind": 7}), "invalid type: integer"),
        ] {
            let (outcome, warnings) = admit_object(&object, unchanged);
            assert_eq!(
                outcome,
                AdmissionOutcome::Failed(Code::PodNotRead),
                "{field}"
            );
            let [warning] = &warnings[..] else {
                panic!("{warnings:?}")
            };
            let want = format!("DRN080: its pods could not be read: {field}");
            assert!(warning.starts_with(&want), "{warning}");
        }
    }

    #[test]
    fn more_strays_than_slips_are_not_reported() {
        let keys = (0..1_000).map(|n| (format!("envoy-drainer.dev/drain-timeou{n}"), json!("")));
        let keys = Value::Object(keys.collect());
        let (_, warnings) = admit_object(&deployment(&keys, &json!([])), unchanged);
        assert_eq!(warnings.len(), 16);
        assert_eq!(warnings[15], "17 more warnings");
        assert_eq!(
            warnings[0],
            "DRN050: unknown annotation `envoy-drainer.dev/drain-timeou0`"
        );
    }
}
