//! What is told of a pod, for people and programs alike. The fields' names and their words are
//! stable: `explain -o json` writes these types.

use drainer::ReadinessProbe;
use serde::Serialize;

use super::settings::SettingsModel;
use super::timeline::{TimelineEvent, timeline};
use crate::admission::{
    AdminAddressSource, ContainerList, Decision, Diagnostic, DrainPlan, EnvoyContainerSource,
    GracePeriod, SidecarMode,
};
use crate::offline::WorkloadResult;

/// A pod, or pod template, and what would become of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The file, or `stdin`.
    pub file: String,
    /// The line where it asks for a drainer, or where it starts.
    pub line: usize,
    /// The kind of the object whose pods these are.
    pub kind: String,
    /// The object's namespace, if the document says it.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
    /// What becomes of it.
    pub outcome: InjectionOutcome,
    /// Why it is skipped or refused; empty otherwise.
    pub reasons: Vec<ReasonModel>,
    /// What its author should know beside.
    pub warnings: Vec<ReasonModel>,
    /// What it gets; `null` unless it is injected.
    pub plan: Option<PlanModel>,
    #[serde(skip)]
    pub(super) opts_out: bool,
}

/// What becomes of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InjectionOutcome {
    /// It gets a drainer.
    Injected,
    /// It asks, and gets none.
    Skipped,
    /// It could get one, but its document is not changed, for the sake of what else is in it.
    Unchanged,
    /// It asks for what it cannot have.
    Refused,
    /// It does not ask.
    #[serde(rename = "not-asked")]
    NotRequested,
}

/// Why, and what to do.
#[derive(Debug, Serialize)]
pub struct ReasonModel {
    /// `DRN008`.
    pub code: String,
    /// The line of the annotation that it is about, or else the pod's.
    pub line: usize,
    /// What is the case.
    pub message: String,
    /// What to do about it, unless the message says it.
    pub remedy: Option<&'static str>,
}

/// What a pod gets.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanModel {
    /// Envoy's container.
    pub envoy: EnvoyModel,
    /// Envoy's admin interface.
    pub admin: AdminModel,
    /// The drainer's container.
    pub drainer: DrainerModel,
    /// The grace period, in seconds.
    pub grace: GracePeriod,
    /// Whether Envoy's own preStop hook makes way for ours.
    pub replaces_hook: bool,
    /// The pod's readiness probes, which go on while it ends and do not pass for clients.
    pub readiness_probes: Vec<ProbeModel>,
    /// Every setting by its annotation's name.
    pub settings: SettingsModel,
    /// The pod's end.
    #[serde(rename = "end")]
    pub timeline: Vec<TimelineEvent>,
}

/// Envoy's container.
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
    /// The container that it stands directly before; `null` at the list's end.
    pub before: Option<String>,
    /// Where it listens.
    pub port: u16,
}

/// A readiness probe.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeModel {
    /// The port that it connects to.
    pub port: u16,
    /// How often, in seconds.
    pub period_seconds: u64,
}

// === impl Explanation ===

impl Explanation {
    /// Explains a case of a file, whose document is changed or stays as it is.
    #[must_use]
    pub fn new(file: &str, workload: &WorkloadResult, stays: bool) -> Self {
        let to_reason = |notice: &Diagnostic| ReasonModel::new(notice, workload.line_of(notice));
        let reasons_of = |notices: &[Diagnostic]| notices.iter().map(to_reason).collect();
        let (outcome, reasons, mut warnings, plan) = match &workload.decision {
            Decision::NotRequested => {
                (InjectionOutcome::NotRequested, Vec::new(), Vec::new(), None)
            }
            Decision::Inject { warnings, .. } if stays => (
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
                InjectionOutcome::Refused,
                reasons_of(reasons),
                reasons_of(warnings),
                None,
            ),
        };
        let hints = workload.lints.iter();
        warnings.extend(hints.map(|hint| ReasonModel::new(&hint.diagnostic, hint.line)));
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
        let list = match plan.sidecar {
            SidecarMode::Native => ContainerList::InitContainers,
            SidecarMode::Plain => ContainerList::Containers,
        };
        // A native sidecar ends after those that stand behind it.
        let before = list == ContainerList::InitContainers && envoy.container_ref.list == list;
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
                list: list.key(),
                before: before.then(|| envoy.name.clone()),
                port: plan.drainer.port.get(),
            },
            grace: plan.grace,
            replaces_hook: plan.replaced_hook.is_some(),
            readiness_probes: plan.drainer.readiness_probes.iter().map(probe).collect(),
            settings: SettingsModel::from(&plan.settings),
            timeline: timeline(plan),
        }
    }
}
