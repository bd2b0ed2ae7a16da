//! The second webhook: what becomes of a workload's pods is told when the workload is written, where a
//! person reads it. At the pods' own admission only a controller would.
//!
//! Warnings are the only answer: a workload is never refused or changed.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::answer::{About, Answer, Outcome, allow, guarded};
use super::astray::search;
use super::codes::{Code, Notice};
use super::defaults::Defaults;
use super::mutate::{Facts, Verdict, mutate};
use super::object;
use super::review::{NotAReview, WrittenObject};
use super::token::token;
use super::view::{Items, OwnerReference, PodView, Text, from_objects};

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
struct Advice {
    name: String,
    outcome: Outcome,
    notices: Vec<Notice>,
}

/// Answers an AdmissionReview of a workload with what its author should know of its pods.
///
/// # Errors
/// If the bytes hold no request that could be answered, which is the caller's mistake.
pub fn advise(body: &[u8], defaults: &Defaults) -> Result<Answer, NotAReview> {
    let review = WrittenObject::decode(body)?;
    let namespace = review.namespace.as_deref();
    let advice = match review.object {
        Some(json) => guarded(|| Advice::on(json, namespace, defaults)),
        None => Ok(Advice::none()),
    };
    let Advice {
        name,
        outcome,
        notices,
    } = advice.unwrap_or_else(|fault| Advice {
        outcome: Outcome::Failed(fault.code),
        ..Advice::none()
    });
    let about = About {
        uid: review.uid.to_string(),
        namespace: namespace.unwrap_or_default().to_owned(),
        name,
        dry_run: review.dry_run,
    };
    Ok(allow(about, outcome, None, notices))
}

// === impl Advice ===

impl Advice {
    /// On what is no workload of a person's.
    fn none() -> Self {
        Self {
            name: String::new(),
            outcome: Outcome::NotOurs,
            notices: Vec::new(),
        }
    }

    /// On an object, whatever it is.
    fn on(json: &str, namespace: Option<&str>, defaults: &Defaults) -> Self {
        let workload = match serde_json::from_str::<Workload<'_>>(json) {
            Ok(workload) => workload,
            Err(error) => return Self::on_unread(&error),
        };
        let (Some(version), Some(kind)) = (&workload.api_version, &workload.kind) else {
            return Self::none();
        };
        let name = workload.name().to_owned();
        if workload.is_made_by_another() {
            return Self {
                name,
                ..Self::none()
            };
        }
        let pods = match workload.template(version, kind, json) {
            Some((template, in_job)) => of_pods(template, in_job, namespace, defaults),
            None => Ok(Vec::new()),
        };
        let strays = search(version, kind, json).into_iter();
        let strays = strays.map(|stray| stray.notice);
        let (outcome, notices) = match pods {
            Ok(pods) => {
                let notices: Vec<_> = pods.into_iter().chain(strays).collect();
                match notices.is_empty() {
                    true => (Outcome::NotAsked, notices),
                    false => (Outcome::Advised, notices),
                }
            }
            Err(unread) => (Outcome::Failed(unread.code), vec![unread]),
        };
        Self {
            name,
            outcome,
            notices,
        }
    }

    /// On what has the shape of no workload, or too much of something.
    fn on_unread(error: &serde_json::Error) -> Self {
        let why = error.to_string();
        // The position is one in JSON that nobody has seen.
        let why = why.split(" at line ").next().unwrap_or_default();
        Self {
            outcome: Outcome::Failed(Code::PodNotRead),
            notices: vec![unread(why)],
            ..Self::none()
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
    fn is_made_by_another(&self) -> bool {
        let owners = self
            .metadata
            .iter()
            .filter_map(|m| m.owner_references.as_ref());
        owners.flatten().any(|owner| owner.controller == Some(true))
    }

    /// The manifest of its pods, and whether they are a Job's. `json` is its own.
    fn template(&self, version: &str, kind: &str, json: &'a str) -> Option<(&'a str, bool)> {
        let place = object::place(version, kind)?;
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
fn of_pods(
    template: &str,
    in_job: bool,
    namespace: Option<&str>,
    defaults: &Defaults,
) -> Result<Vec<Notice>, Notice> {
    let pod = PodView::decode(template).map_err(|why| unread(&why.to_string()))?;
    let facts = Facts {
        namespace,
        in_job,
        // Nothing of the patch is kept.
        token: token(&[]),
    };
    let led = |by: &str, notice: Notice| notice.code.about(format!("{by}: {}", notice.detail));
    Ok(match mutate(&pod, &facts, defaults) {
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
    })
}

fn unread(why: &str) -> Notice {
    Code::PodNotRead.about(format!("its pods could not be read: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
        for odd in [json!(null), json!({}), json!({"kind": "Deployment"})] {
            assert_eq!(advised(&odd, as_it_is), (Outcome::NotOurs, vec![]), "{odd}");
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
            let (outcome, warnings) = advised(&object, as_it_is);
            assert_eq!(outcome, Outcome::Failed(Code::PodNotRead), "{field}");
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
        let (_, warnings) = advised(&deployment(&keys, &json!([])), as_it_is);
        assert_eq!(warnings.len(), 16);
        assert_eq!(warnings[15], "17 more warnings");
        assert_eq!(
            warnings[0],
            "DRN050: unknown annotation `envoy-drainer.dev/drain-timeou0`"
        );
    }
}
