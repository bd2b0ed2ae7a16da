//! The JSON output of `explain`. The names and values of its fields are stable.

use admission::{AdminCandidates, AdminEndpoint, ContainerList, DrainPlan, ShutdownManager};
use drainer::ReadinessProbe;
use serde_json::{Value, json};

use super::timeline::{Prospect, TimelineEvent, planned, timeline};
use crate::offline::{LocatedDiagnostic, Message, WorkloadResult};
use crate::running_pod::{RunningDrainer, RunningPod};

/// The whole output; `running` only if there are pods of a cluster.
pub(super) fn report(
    pods: &[(String, WorkloadResult)],
    running: &[RunningPod],
    errors: &[(String, Message)],
) -> Value {
    let mut report = json!({
        "pods": pods.iter().map(|(file, workload)| pod(file, workload)).collect::<Value>(),
        "errors": errors.iter().map(|(file, message)| error(file, message)).collect::<Value>(),
    });
    if !running.is_empty() {
        report["running"] = running.iter().map(running_pod).collect();
    }
    report
}

/// A pod of a cluster; `drainer` is `null` if it has none, or one whose arguments cannot be read.
fn running_pod(pod: &RunningPod) -> Value {
    json!({
        "kind": pod.object.kind,
        "namespace": pod.object.namespace,
        "name": pod.object.name,
        "hasDrainer": pod.has_drainer,
        "drainer": pod.drainer.as_ref().map(running_drainer),
        "notes": pod.all_notes().collect::<Vec<_>>(),
    })
}

/// An injected drainer. A setting's `annotation` is `null` without one; it has no effect on a running pod.
fn running_drainer(drainer: &RunningDrainer) -> Value {
    let settings = drainer.settings.iter().map(|setting| {
        let value = json!({"value": setting.value, "annotation": setting.annotation});
        (setting.name.to_owned(), value)
    });
    let recorded = &drainer.recorded;
    json!({
        "envoy": {
            "container": (!recorded.container.is_empty()).then_some(&recorded.container),
            "movedTo": recorded.envoy.map(|_| ContainerList::InitContainers.key()),
        },
        "extraHooks": recorded.extra_hooks,
        "form": drainer.sidecar,
        "list": drainer.sidecar.container_list().key(),
        "image": drainer.image,
        "port": drainer.config.settings.port,
        "grace": drainer.grace,
        "settings": settings.collect::<Value>(),
        "timeline": events(timeline(&drainer.config, drainer.grace, &[], None, Prospect::Drain)),
    })
}

/// A line; `null` for an object of a cluster.
fn line(line: usize) -> Option<usize> {
    (line > 0).then_some(line)
}

/// A pod or a pod template; `plan` is `null` unless it is injected.
fn pod(file: &str, workload: &WorkloadResult) -> Value {
    json!({
        "file": file,
        "line": line(workload.line),
        "kind": workload.object.kind,
        "namespace": workload.object.namespace,
        "name": workload.object.name,
        "outcome": workload.outcome,
        "reasons": workload.reasons.iter().map(reason).collect::<Value>(),
        "warnings": workload.warnings.iter().map(reason).collect::<Value>(),
        "verdict": workload.verdict(),
        "plan": workload.plan.as_deref().map(|it| plan(it, Prospect::of(workload))),
    })
}

/// A document that cannot be read or changed; `column` is `null` unless it is about a single character.
fn error(file: &str, message: &Message) -> Value {
    json!({
        "file": file,
        "line": message.line,
        "column": message.column,
        "message": message.text,
    })
}

/// A reason or a warning; `remedy` is `null` where the message contains it.
fn reason(LocatedDiagnostic { line, diagnostic }: &LocatedDiagnostic) -> Value {
    json!({
        "code": diagnostic.code.to_string(),
        "line": self::line(*line),
        "message": diagnostic.detail,
        "remedy": diagnostic.remedy(),
    })
}

fn plan(plan: &DrainPlan, prospect: Prospect) -> Value {
    let rows = plan.settings.rows().into_iter();
    let settings: Value = rows.map(|row| (row.name, json!(row))).collect();
    // The shutdown manager whose container is removed.
    let adopted = |it: ShutdownManager| json!({"manager": it.product, "versions": it.versions});
    let probe =
        |it: &ReadinessProbe| json!({"port": it.port, "periodSeconds": it.period.as_secs()});
    json!({
        "envoy": {
            "container": plan.envoy.name,
            "list": plan.envoy.container_ref.list.key(),
            "foundBy": plan.envoy.source,
            "addedArgs": plan.added_args,
            "movedTo": plan.is_envoy_moved.then_some(ContainerList::InitContainers.key()),
        },
        "admin": admin(&plan.admin),
        "drainer": {
            "form": plan.sidecar,
            "list": plan.sidecar.container_list().key(),
            "before": plan.is_before_envoy().then_some(&plan.envoy.name),
            "port": plan.drainer.settings.port,
        },
        "grace": plan.grace,
        "extraHooks": plan.extra_hooks.iter().map(|hook| &*hook.container).collect::<Value>(),
        "adopted": plan.adopted.map(adopted),
        "replacesHook": plan.replaced_hook.is_some(),
        "readinessProbes": plan.drainer.readiness_probes.iter().map(probe).collect::<Value>(),
        "settings": settings,
        "timeline": events(planned(plan, prospect)),
    })
}

/// The annotated address, or those that the drainer asks before it searches.
fn admin(admin: &AdminCandidates) -> Value {
    let endpoint =
        |it: &AdminEndpoint| json!({"address": it.address.to_string(), "foundBy": it.source});
    match admin.first().filter(|_| admin.annotated().is_some()) {
        Some(annotated) => endpoint(annotated),
        None => json!({"hints": admin.iter().map(endpoint).collect::<Value>()}),
    }
}

/// The timeline of a pod's termination.
fn events(events: Vec<TimelineEvent>) -> Value {
    let event = |TimelineEvent { at, name, text }| json!({"seconds": at.as_secs_f64(), "event": name, "text": text});
    events.into_iter().map(event).collect()
}
