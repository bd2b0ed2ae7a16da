//! What is told of a pod, for people and programs alike. The fields' names and their words are
//! stable: `explain -o json` writes these types.

use drainer::ReadinessProbe;
use serde::Serialize;

use super::end::{Moment, moments};
use super::settings::Settings;
use crate::admission::{AdminFoundBy, DrainPlan, FoundBy, Grace, List, Notice, Sidecar, Verdict};
use crate::offline::Case;

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
    pub outcome: Outcome,
    /// Why it is skipped or refused; empty otherwise.
    pub reasons: Vec<Reason>,
    /// What its author should know beside.
    pub warnings: Vec<Reason>,
    /// What it gets; `null` unless it is injected.
    pub plan: Option<Plan>,
    #[serde(skip)]
    pub(super) declines: bool,
}

/// What becomes of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It gets a drainer.
    Injected,
    /// It asks, and gets none.
    Skipped,
    /// It could get one, but its document is not changed, for the sake of what else is in it.
    Unchanged,
    /// It asks for what it cannot have.
    Refused,
    /// It does not ask.
    NotAsked,
}

/// Why, and what to do.
#[derive(Debug, Serialize)]
pub struct Reason {
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
pub struct Plan {
    /// Envoy's container.
    pub envoy: Envoy,
    /// Envoy's admin interface.
    pub admin: Admin,
    /// The drainer's container.
    pub drainer: Drainer,
    /// The grace period, in seconds.
    pub grace: Grace,
    /// Whether Envoy's own preStop hook makes way for ours.
    pub replaces_hook: bool,
    /// The pod's readiness probes, which go on while it ends and do not pass for clients.
    pub readiness_probes: Vec<Probe>,
    /// Every setting by its annotation's name.
    pub settings: Settings,
    /// The pod's end.
    pub end: Vec<Moment>,
}

/// Envoy's container.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Envoy {
    /// Its name.
    pub container: String,
    /// `containers` or `initContainers`.
    pub list: &'static str,
    /// `annotation`, `name`, `image`, `only-container` or `guess`.
    pub found_by: &'static str,
    #[serde(skip)]
    pub(super) place: List,
    #[serde(skip)]
    pub(super) how: FoundBy,
}

/// Envoy's admin interface.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Admin {
    /// Its address.
    pub address: String,
    /// `annotation`, `container-port`, `config-yaml` or `default`.
    pub found_by: &'static str,
    #[serde(skip)]
    pub(super) how: AdminFoundBy,
}

/// The drainer's container.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Drainer {
    /// `native` (an init container with `restartPolicy: Always`) or `plain`.
    pub form: Sidecar,
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
pub struct Probe {
    /// The port that it connects to.
    pub port: u16,
    /// How often, in seconds.
    pub period_seconds: u64,
}

// === impl Explanation ===

impl Explanation {
    /// Explains a case of a file, whose document is changed or stays as it is.
    #[must_use]
    pub fn of(file: &str, case: &Case, stays: bool) -> Self {
        let told = |notice: &Notice| Reason::new(notice, case.line_of(notice));
        let reasons_of = |notices: &[Notice]| notices.iter().map(told).collect();
        let (outcome, reasons, mut warnings, plan) = match &case.verdict {
            Verdict::NotAsked => (Outcome::NotAsked, Vec::new(), Vec::new(), None),
            Verdict::Inject { warnings, .. } if stays => {
                (Outcome::Unchanged, Vec::new(), reasons_of(warnings), None)
            }
            Verdict::Inject { plan, warnings, .. } => {
                let plan = Plan::from(&**plan);
                (
                    Outcome::Injected,
                    Vec::new(),
                    reasons_of(warnings),
                    Some(plan),
                )
            }
            Verdict::Skip {
                reason, warnings, ..
            } => (
                Outcome::Skipped,
                vec![told(reason)],
                reasons_of(warnings),
                None,
            ),
            Verdict::Deny { reasons, warnings } => (
                Outcome::Refused,
                reasons_of(reasons),
                reasons_of(warnings),
                None,
            ),
        };
        let hints = case.hints.iter();
        warnings.extend(hints.map(|hint| Reason::new(&hint.notice, hint.line)));
        Self {
            file: file.to_owned(),
            line: case.line,
            kind: case.object.kind.clone(),
            namespace: case.object.namespace.clone(),
            name: case.object.name.clone(),
            outcome,
            reasons,
            warnings,
            plan,
            declines: case.declines(),
        }
    }
}

// === impl Reason ===

impl Reason {
    fn new(notice: &Notice, line: usize) -> Self {
        Self {
            code: notice.code.to_string(),
            line,
            message: notice.detail.clone(),
            remedy: notice.remedy(),
        }
    }
}

// === impl Plan ===

impl From<&DrainPlan> for Plan {
    fn from(plan: &DrainPlan) -> Self {
        let envoy = &plan.envoy;
        let list = match plan.sidecar {
            Sidecar::Native => List::InitContainers,
            Sidecar::Plain => List::Containers,
        };
        // A native sidecar ends after those that stand behind it.
        let before = list == List::InitContainers && envoy.place.list == list;
        let probe = |probe: &ReadinessProbe| Probe {
            port: probe.port.get(),
            period_seconds: probe.period.as_secs(),
        };
        Self {
            envoy: Envoy {
                container: envoy.name.clone(),
                list: envoy.place.list.key(),
                found_by: match envoy.found {
                    FoundBy::Annotation => "annotation",
                    FoundBy::Name => "name",
                    FoundBy::Image => "image",
                    FoundBy::OnlyContainer => "only-container",
                    FoundBy::Guess => "guess",
                },
                place: envoy.place.list,
                how: envoy.found,
            },
            admin: Admin {
                address: plan.admin.address.to_string(),
                found_by: match plan.admin.found {
                    AdminFoundBy::Annotation => "annotation",
                    AdminFoundBy::ContainerPort(_) => "container-port",
                    AdminFoundBy::ConfigYaml => "config-yaml",
                    AdminFoundBy::Default => "default",
                },
                how: plan.admin.found,
            },
            drainer: Drainer {
                form: plan.sidecar,
                list: list.key(),
                before: before.then(|| envoy.name.clone()),
                port: plan.drainer.port.get(),
            },
            grace: plan.grace,
            replaces_hook: plan.replaced_hook.is_some(),
            readiness_probes: plan.drainer.readiness_probes.iter().map(probe).collect(),
            settings: Settings::from(&plan.settings),
            end: moments(plan),
        }
    }
}
