//! The output model of `explain`, for text and JSON. The names and values of its fields are stable: `explain -o json`
//! prints these types.

use drainer::ReadinessProbe;
use serde::Serialize;

use super::settings::SettingsModel;
use super::timeline::{TimelineEvent, timeline};
use crate::admission::{
    AdminAddressSource, ContainerList, Decision, Diagnostic, DrainPlan, EnvoyContainerSource,
    GracePeriod, SidecarMode,
};
use crate::offline::WorkloadResult;

/// A pod, or pod template, and what the webhook would do with it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The file, or `stdin`.
    pub file: String,
    /// The line where it requests a drainer, or where it starts.
    pub line: usize,
    /// The kind of the pod, or of the object with its template.
    pub kind: String,
    /// The object's namespace, if the document has it.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
    /// The outcome.
    pub outcome: InjectionOutcome,
    /// The reasons to skip or deny it; empty otherwise.
    pub reasons: Vec<ReasonModel>,
    /// The warnings.
    pub warnings: Vec<ReasonModel>,
    /// The plan; `null` unless it is injected.
    pub plan: Option<PlanModel>,
    #[serde(skip)]
    pub(super) opts_out: bool,
}

/// What the webhook would do with a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InjectionOutcome {
    /// It gets a drainer.
    Injected,
    /// It requests a drainer, and gets none.
    Skipped,
    /// It could get a drainer, but its document cannot be changed, or has a denied pod.
    Unchanged,
    /// It would be denied.
    #[serde(rename = "refused")]
    Denied,
    /// It requests no drainer.
    #[serde(rename = "not-asked")]
    NotRequested,
}

/// A reason or a warning, and its remedy.
#[derive(Debug, Serialize)]
pub struct ReasonModel {
    /// `DRN008`.
    pub code: String,
    /// The line of the annotation that it is about, or of the pod.
    pub line: usize,
    /// The problem.
    pub message: String,
    /// What to do about it, unless the message contains that.
    pub remedy: Option<&'static str>,
}

/// The plan of an injection.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanModel {
    /// The Envoy container.
    pub envoy: EnvoyModel,
    /// Envoy's admin interface.
    pub admin: AdminModel,
    /// The drainer's container.
    pub drainer: DrainerModel,
    /// The termination grace period, in seconds.
    pub grace: GracePeriod,
    /// Whether the Envoy container's own preStop hook is replaced.
    pub replaces_hook: bool,
    /// The pod's readiness probes, which continue while it terminates and do not count as client connections.
    pub readiness_probes: Vec<ProbeModel>,
    /// All settings, by the names of their annotations.
    pub settings: SettingsModel,
    /// The timeline of the pod's termination.
    #[serde(rename = "end")]
    pub timeline: Vec<TimelineEvent>,
}

/// The Envoy container.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvoyModel {
    /// Its name.
    pub container: String,
    /// `containers` or `initContainers`.
    pub list: &'static str,
    /// `annotation`, `name`, `image`, `only-container` or `guess`.
    pub found_by: &'static str,
    #[serde(skip)]
    pub(super) container_list: ContainerList,
    #[serde(skip)]
    pub(super) detected_by: EnvoyContainerSource,
}

/// Envoy's admin interface.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdminModel {
    /// Its address.
    pub address: String,
    /// `annotation`, `container-port`, `config-yaml` or `default`.
    pub found_by: &'static str,
    #[serde(skip)]
    pub(super) detected_by: AdminAddressSource,
}

/// The drainer's container.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainerModel {
    /// `native` (an init container with `restartPolicy: Always`) or `plain`.
    #[serde(rename = "form")]
    pub mode: SidecarMode,
    /// `containers` or `initContainers`.
    pub list: &'static str,
    /// The container directly after it; `null` at the end of the list.
    pub before: Option<String>,
    /// Its port.
    pub port: u16,
}

/// A readiness probe.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeModel {
    /// The port that it connects to.
    pub port: u16,
    /// Its period, in seconds.
    pub period_seconds: u64,
}

// === impl Explanation ===

impl Explanation {
    /// Explains a workload of a file, whose document may have to stay unchanged.
    pub fn new(file: &str, workload: &WorkloadResult, is_unchanged: bool) -> Self {
        let to_reason = |one: &Diagnostic| ReasonModel::new(one, workload.line_of(one));
        let reasons_of = |all: &[Diagnostic]| all.iter().map(to_reason).collect();
        let (outcome, reasons, mut warnings, plan) = match &workload.decision {
            Decision::NotRequested => {
                (InjectionOutcome::NotRequested, Vec::new(), Vec::new(), None)
            }
            Decision::Inject { warnings, .. } if is_unchanged => (
                InjectionOutcome::Unchanged,
                Vec::new(),
                reasons_of(warnings),
                None,
            ),
            Decision::Inject { plan, warnings, .. } => {
                let plan = PlanModel::from(&**plan);
                (
                    InjectionOutcome::Injected,
                    Vec::new(),
                    reasons_of(warnings),
                    Some(plan),
                )
            }
            Decision::Skip {
                reason, warnings, ..
            } => (
                InjectionOutcome::Skipped,
                vec![to_reason(reason)],
                reasons_of(warnings),
                None,
            ),
            Decision::Deny { reasons, warnings } => (
                InjectionOutcome::Denied,
                reasons_of(reasons),
                reasons_of(warnings),
                None,
            ),
        };
        let lints = workload.lints.iter();
        warnings.extend(lints.map(|lint| ReasonModel::new(&lint.diagnostic, lint.line)));
        Self {
            file: file.to_owned(),
            line: workload.line,
            kind: workload.object.kind.clone(),
            namespace: workload.object.namespace.clone(),
            name: workload.object.name.clone(),
            outcome,
            reasons,
            warnings,
            plan,
            opts_out: workload.opts_out(),
        }
    }
}

// === impl ReasonModel ===

impl ReasonModel {
    fn new(diagnostic: &Diagnostic, line: usize) -> Self {
        Self {
            code: diagnostic.code.to_string(),
            line,
            message: diagnostic.detail.clone(),
            remedy: diagnostic.remedy(),
        }
    }
}

// === impl PlanModel ===

impl From<&DrainPlan> for PlanModel {
    fn from(plan: &DrainPlan) -> Self {
        let envoy = &plan.envoy;
        let probe = |probe: &ReadinessProbe| ProbeModel {
            port: probe.port.get(),
            period_seconds: probe.period.as_secs(),
        };
        Self {
            envoy: EnvoyModel {
                container: envoy.name.clone(),
                list: envoy.container_ref.list.key(),
                found_by: match envoy.source {
                    EnvoyContainerSource::Annotation => "annotation",
                    EnvoyContainerSource::Name => "name",
                    EnvoyContainerSource::Image => "image",
                    EnvoyContainerSource::OnlyContainer => "only-container",
                    EnvoyContainerSource::Guess => "guess",
                },
                container_list: envoy.container_ref.list,
                detected_by: envoy.source,
            },
            admin: AdminModel {
                address: plan.admin.address.to_string(),
                found_by: match plan.admin.source {
                    AdminAddressSource::Annotation => "annotation",
                    AdminAddressSource::ContainerPort(_) => "container-port",
                    AdminAddressSource::ConfigYaml => "config-yaml",
                    AdminAddressSource::Default => "default",
                },
                detected_by: plan.admin.source,
            },
            drainer: DrainerModel {
                mode: plan.sidecar,
                list: plan.sidecar.container_list().key(),
                before: plan.is_before_envoy().then(|| envoy.name.clone()),
                port: plan.drainer.settings.port.get(),
            },
            grace: plan.grace,
            replaces_hook: plan.replaced_hook.is_some(),
            readiness_probes: plan.drainer.readiness_probes.iter().map(probe).collect(),
            settings: SettingsModel(plan.settings.rows()),
            timeline: timeline(plan),
        }
    }
}
