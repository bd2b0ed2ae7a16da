//! The second webhook: warnings about the pods of a workload when the workload is written, since a controller
//! ignores the warnings about the pods themselves. It never denies or changes a workload.

pub(crate) mod misplaced;
pub(crate) mod objects;
mod view;

use drainer::HealthFailureDelay;

use self::misplaced::find_misplaced;
use self::view::{RollingUpdate, WorkloadView};
use super::decide::{Decision, decide};
use super::decode::{DecodeError, decode, decode_part};
use super::diagnostics::{Code, Diagnostic};
use super::plan::{PodContext, token};
use super::pod::PodView;
use super::review::{
    AdmissionOutcome, InvalidReview, RequestFilter, RequestMeta, ReviewResponse, allow,
    catch_panic, decode_review,
};
use super::settings::{Defaults, DrainerApiDefaults};

/// Responds to the AdmissionReview of a workload with warnings about its pods.
///
/// # Errors
/// If no response to the body is possible, which is the caller's error.
pub fn admit_workload(body: &[u8], defaults: &Defaults) -> Result<ReviewResponse, InvalidReview> {
    let (mut request, workload) = decode_review(body, RequestFilter::Write)?;
    let warnings = catch_panic(|| match workload {
        Some(workload) => warnings_about(workload.or_else(decode), &mut request, defaults),
        None => Ok(None),
    });
    let (outcome, warnings) = match warnings {
        Ok(Ok(None)) => (AdmissionOutcome::Ignored, Vec::new()),
        Ok(Ok(Some(warnings))) if warnings.is_empty() => (AdmissionOutcome::NotRequested, warnings),
        Ok(Ok(Some(warnings))) => (AdmissionOutcome::Warned, warnings),
        Ok(Err(fault)) => (AdmissionOutcome::Failed(fault.code), vec![fault]),
        Err(panic) => (AdmissionOutcome::Failed(panic.code), Vec::new()),
    };
    Ok(allow(&request, outcome, None, warnings))
}

/// Returns what the author of an object of any kind should know; `None` if it is no workload, or has a controller. Sets
/// the name in `request`.
///
/// # Errors
/// If the object or its pod template cannot be decoded.
fn warnings_about(
    workload: Result<WorkloadView<'_>, DecodeError>,
    request: &mut RequestMeta,
    defaults: &Defaults,
) -> Result<Option<Vec<Diagnostic>>, Diagnostic> {
    let workload = workload.and_then(|workload| Ok((workload.metadata()?, workload)));
    let (metadata, workload) = workload.map_err(|error| pod_not_read(&error))?;
    let (Some(version), Some(kind)) = (&workload.api_version, &workload.kind) else {
        return Ok(None);
    };
    request.set_name_if_missing(metadata.name());
    // The warnings were on its owner.
    if metadata.controller().is_some() {
        return Ok(None);
    }
    let Some(path) = objects::template_path(version, kind) else {
        return Ok(Some(Vec::new()));
    };
    let (mut warnings, mut metadata) = (Vec::new(), None);
    if let Some((template, in_job)) = workload.pod_template(kind) {
        let pod: PodView<'_> = decode_part(template).map_err(|error| pod_not_read(&error))?;
        let context = PodContext {
            in_job,
            // The patch, which contains the token, is dropped.
            ..PodContext::new(request.namespace(), token(&[]))
        };
        warnings = pod_warnings(kind, &workload, &pod, &context, defaults);
        metadata = Some(pod.metadata.unwrap_or_default());
    }
    let misplaced = find_misplaced(path, metadata, &workload).into_iter();
    warnings.extend(misplaced.map(|it| it.diagnostic));
    Ok(Some(warnings))
}

/// Returns what the decision on a `pod` of the workload's template warns of.
fn pod_warnings(
    kind: &str,
    workload: &WorkloadView<'_>,
    pod: &PodView<'_>,
    context: &PodContext<'_>,
    defaults: &Defaults,
) -> Vec<Diagnostic> {
    let (prefix, reasons, warnings) = match decide(pod, context, defaults) {
        Decision::NotRequested => return Vec::new(),
        Decision::Inject {
            plan, mut warnings, ..
        } => {
            let is_left_out = |warning: &Diagnostic| warning.code == Code::NoReplacementWait;
            let waits = plan.settings.waits_for_replacement();
            let late = delayed_replacement_reason(kind, workload);
            let late = late.filter(|_| waits || warnings.iter().any(is_left_out));
            warnings.extend(late.map(|late| Code::FullReplacementWait.diagnostic(late)));
            // Drainers that call the webhook ask it themselves.
            let can_ask = |api: &DrainerApiDefaults| api.replacement && (waits || api.reports);
            let asks = defaults.drainer_api.as_ref().is_some_and(can_ask);
            let delay = plan.settings.values().drain.health_failure_delay;
            let sole = sole_pod_reason(kind, workload);
            let is_due = delay == HealthFailureDelay::Auto && !asks && !plan.is_of_server();
            let sole = sole.filter(|_| is_due);
            warnings.extend(sole.map(|sole| Code::SolePod.diagnostic(sole)));
            return warnings;
        }
        Decision::Skip {
            reason, warnings, ..
        } => ("its pods get no drainer", vec![reason], warnings),
        Decision::Repair { changes, .. } => return changes,
        Decision::Deny { reasons, warnings } => ("its pods will be denied", reasons, warnings),
    };
    let reasons = reasons.into_iter().map(|reason| {
        let detail = format!("{prefix}: {}", reason.detail);
        reason.code.diagnostic(detail)
    });
    reasons.chain(warnings).collect()
}

/// Returns why replacements start too late, after the pod has terminated, at least in a rollout; `None` if they start
/// earlier.
fn delayed_replacement_reason(kind: &str, workload: &WorkloadView<'_>) -> Option<&'static str> {
    let reason = match kind {
        // Its pods have fixed names, so there is at most one of each.
        "StatefulSet" => "a StatefulSet replaces a pod after it has terminated",
        "DaemonSet" if has_max_surge(workload.strategy().rolling_update) != Some(true) => {
            "a DaemonSet without `maxSurge` replaces a pod after it has terminated"
        }
        "Deployment" if workload.strategy().kind.as_deref() == Some("Recreate") => {
            "with the strategy `Recreate`, a rollout starts new pods after the old ones have terminated"
        }
        // <https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#pod-replacement-policy>
        "Deployment" if workload.pod_replacement_policy() == Some("TerminationComplete") => {
            "with `podReplacementPolicy: TerminationComplete`, a pod is replaced after it has terminated"
        }
        _ => return None,
    };
    Some(reason)
}

/// Returns why a rollout ends the only pod of a workload before its replacement starts; `None` if it does not.
fn sole_pod_reason(kind: &str, workload: &WorkloadView<'_>) -> Option<&'static str> {
    let has_surge = has_max_surge(workload.strategy().rolling_update);
    match kind {
        "Deployment" | "StatefulSet" if !workload.has_one_replica() => None,
        "Deployment" if has_surge == Some(false) => {
            Some("with `maxSurge: 0`, a rollout ends the only pod before it starts another")
        }
        "Deployment" | "StatefulSet" => delayed_replacement_reason(kind, workload),
        _ => None,
    }
}

/// Returns whether a rolling update is to start pods before it ends others; `None` if it does not say.
fn has_max_surge(rolling_update: Option<RollingUpdate<'_>>) -> Option<bool> {
    let max_surge = rolling_update?.max_surge?;
    Some(!matches!(&*max_surge.text(), "0" | "0%"))
}

fn pod_not_read(error: &DecodeError) -> Diagnostic {
    Code::PodNotRead.diagnostic(format!("its pods could not be read: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::review::creation_review;

    /// Reviews an object; returns the outcome and the warnings.
    fn admit_object(
        object: &Value,
        change: impl FnOnce(&mut Value),
    ) -> (AdmissionOutcome, Vec<String>) {
        let mut review = creation_review(["apps", "v1", "Deployment"], object);
        change(&mut review["request"]);
        let response = admit_workload(
            review.to_string().as_bytes(),
            &Defaults::new("image", "own"),
        )
        .unwrap();
        let body: Value = serde_json::from_slice(&response.body).unwrap();
        let body = &body["response"];
        assert_eq!(body["allowed"], true);
        assert_eq!(body.get("patch"), None);
        let warnings = body["warnings"].as_array().into_iter().flatten();
        let warnings = warnings.map(|warning| warning.as_str().unwrap().to_owned());
        (response.outcome, warnings.collect())
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
    fn author_of_a_workload_is_warned_about_its_pods() {
        let envoy = json!([{"name": "envoy", "image": "envoy"}]);
        let hooked =
            json!([{"name": "envoy", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}]);
        let inject = json!({"envoy-drainer.dev/inject": "true"});
        let bad = json!({"envoy-drainer.dev/inject": "true", "envoy-drainer.dev/drain-timeout": "90",
            "envoy-drainer.dev/quiet": "1s"});
        let table: [(Value, Value, &[&str]); 6] = [
            (json!({}), envoy.clone(), &[]),
            (inject.clone(), envoy.clone(), &[]),
            (
                inject,
                hooked,
                &["DRN008: its pods get no drainer: container `envoy`"],
            ),
            (
                bad,
                envoy.clone(),
                &[
                    "DRN020: its pods will be denied: `envoy-drainer.dev/drain-timeout`",
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
            let expected = if want.is_empty() {
                AdmissionOutcome::NotRequested
            } else {
                AdmissionOutcome::Warned
            };
            assert_eq!(outcome, expected, "{annotations}");
        }
    }

    #[test]
    fn author_of_a_sole_pod_is_told_to_keep_its_health() {
        let envoy = json!([{"name": "envoy", "image": "envoy"}]);
        let recreate = json!({"type": "Recreate"});
        let no_surge = json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}});
        let table = [
            // (kind, replicas, strategy, health-failure-delay, whether it is told)
            ("StatefulSet", json!(1), json!({}), "auto", true),
            ("StatefulSet", json!(null), json!({}), "auto", true),
            ("StatefulSet", json!(1), json!({}), "end", false),
            ("StatefulSet", json!(1), json!({}), "0s", false),
            ("StatefulSet", json!(2), json!({}), "auto", false),
            ("Deployment", json!(1), json!({}), "auto", false),
            ("Deployment", json!(1), recreate.clone(), "auto", true),
            ("Deployment", json!(3), recreate, "auto", false),
            ("Deployment", json!(1), no_surge.clone(), "auto", true),
            ("Deployment", json!(2), no_surge, "auto", false),
        ];
        for (kind, replicas, strategy, delay, want) in table {
            let annotations = json!({"envoy-drainer.dev/inject": "true",
                "envoy-drainer.dev/health-failure-delay": delay});
            let mut object = deployment(&annotations, &envoy);
            object["kind"] = json!(kind);
            object["spec"]["replicas"] = replicas;
            object["spec"]["strategy"] = strategy;
            let (_, warnings) = admit_object(&object, unchanged);
            let is_told = warnings.iter().any(|it| it.starts_with("DRN086: "));
            assert_eq!(is_told, want, "{object}: {warnings:?}");
        }
    }

    #[test]
    fn misplaced_annotation_names_the_right_place() {
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
    fn only_written_objects_without_controller_are_checked() {
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
        for invalid in [json!(null), json!({}), json!({"kind": "Deployment"})] {
            assert_eq!(
                admit_object(&invalid, unchanged),
                (AdmissionOutcome::Ignored, vec![]),
                "{invalid}"
            );
        }
    }

    #[test]
    fn unreadable_workload_is_allowed_with_one_warning() {
        let containers = json!(vec![json!({}); 2_001]);
        let mut owned = deployment(&json!({}), &json!([]));
        owned["metadata"]["ownerReferences"] = json!(vec![json!({}); 2_001]);
        let mut long = deployment(&json!({"envoy-drainer.dev/injct": "true"}), &json!([]));
        long["spec"]["template"]["spec"]["initContainers"] = json!([{"name": "x".repeat(300_000)}]);
        for (object, field) in [
            (
                deployment(&json!({}), &containers),
                "spec.containers: more than 2000 elements in its lists together",
            ),
            (
                owned,
                "ownerReferences: more than 2000 elements in its lists together",
            ),
            (
                long,
                "spec.initContainers[0].name: a string of 300000 bytes: the limit is 262144",
            ),
            (json!([1]), "[0]: invalid type: integer"),
            (json!({"kind": 7}), "kind: invalid type: integer"),
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
    fn reported_keys_are_bounded() {
        let keys = (0..1_000).map(|n| (format!("envoy-drainer.dev/drain-timeou{n}"), json!("")));
        let keys = Value::Object(keys.collect());
        let (_, warnings) = admit_object(&deployment(&keys, &json!([])), unchanged);
        assert_eq!(warnings.len(), 16);
        assert_eq!(warnings[15], "17 more warnings");
        assert_eq!(
            warnings[0],
            "DRN050: unknown annotation `envoy-drainer.dev/drain-timeou0`: did you mean `drain-timeout`?"
        );
    }
}

#[cfg(test)]
mod replacement_tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replacements_are_late_by_kind_and_strategy() {
        let surge = |value| json!({"updateStrategy": {"rollingUpdate": {"maxSurge": value}}});
        let table = [
            ("Deployment", json!({}), None),
            (
                "Deployment",
                json!({"strategy": {"type": "RollingUpdate"}}),
                None,
            ),
            (
                "Deployment",
                json!({"strategy": {"type": "Recreate"}}),
                Some("`Recreate`, a rollout starts"),
            ),
            (
                "Deployment",
                json!({"podReplacementPolicy": "TerminationStarted"}),
                None,
            ),
            (
                "Deployment",
                json!({"podReplacementPolicy": "TerminationComplete"}),
                Some("`podReplacementPolicy: TerminationComplete`"),
            ),
            (
                "Deployment",
                json!({"strategy": 7, "podReplacementPolicy": null}),
                None,
            ),
            ("StatefulSet", json!({}), Some("StatefulSet")),
            ("DaemonSet", json!({}), Some("`maxSurge`")),
            ("DaemonSet", surge(json!(0)), Some("`maxSurge`")),
            ("DaemonSet", surge(json!("0%")), Some("`maxSurge`")),
            ("DaemonSet", surge(json!(1)), None),
            ("DaemonSet", surge(json!("10%")), None),
            ("ReplicaSet", json!({}), None),
            ("Job", json!({"podReplacementPolicy": "Failed"}), None),
        ];
        for (kind, spec, want) in table {
            let object = json!({"kind": kind, "spec": spec}).to_string();
            let view = serde_json::from_str(&object).unwrap();
            let reason = delayed_replacement_reason(kind, &view);
            match (&reason, want) {
                (Some(reason), Some(want)) => assert!(reason.contains(want), "{reason}"),
                _ => assert_eq!(reason, want, "{object}"),
            }
        }
    }
}
