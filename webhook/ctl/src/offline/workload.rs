//! The admission decision on one object of a manifest.

use std::slice;

use admission::keys::{INJECT, PREFIX, STATUS};
use admission::{
    AdminAddressSource, AdminEndpoint, CONTAINER_NAME, Code, Decision, Defaults, Diagnostic,
    DrainPlan, Effect, EnvoyConfiguration, PodContext, PodTemplate, PodView, WorkloadObject,
    already_injected, decide, misplaced, remove, token,
};
use drainer::AdminAddress;
use json_patch::jsonptr::Pointer;
use json_patch::{Patch, PatchOperation, RemoveOperation};
use manifest::{Manifest, rebase};
use serde::Serialize;
use serde_json::{Value, json};

use super::configuration::has_no_admin;
use super::context::ManifestContext;
use crate::object_name::ObjectName;

const ANNOTATIONS: &Pointer = Pointer::from_static("/metadata/annotations");

/// The annotation of an admin interface that no drainer would find.
const ADMIN_ADDRESS: &str = "admin-address";

/// The annotation of a port that would be in use.
const PORT: &str = "port";

/// What the webhook would do with a pod, a pod template, or another object that seems to request a drainer.
#[derive(Debug)]
pub struct WorkloadResult {
    pub object: ObjectName,
    /// The line of the stream with the annotation that requests a drainer, or else where the object starts; 0 for an
    /// object of a cluster, which has no lines.
    pub line: usize,
    pub outcome: InjectionOutcome,
    /// The plan; `None` unless it is injected.
    pub plan: Option<Box<DrainPlan>>,
    /// The operations on its document that inject the drainer, or remove it.
    pub(super) operations: Vec<PatchOperation>,
    /// The reasons to skip or deny it; empty otherwise.
    pub reasons: Vec<LocatedDiagnostic>,
    /// The warnings, also about annotations under our prefix in places that do not reach the pods.
    pub warnings: Vec<LocatedDiagnostic>,
}

/// What the webhook would do with a pod. The names are those of `explain -o json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InjectionOutcome {
    /// It gets a drainer, or loses it to `inject --remove`.
    Injected,
    /// It requests a drainer, and gets none.
    Skipped,
    /// The same, since it has one already.
    #[serde(rename = "skipped")]
    AlreadyInjected,
    /// It could get a drainer, but its document cannot be changed, or has a denied pod.
    Unchanged,
    /// It would be denied.
    Denied,
    /// It requests no drainer.
    NotRequested,
    /// The same, with the annotation `inject`.
    #[serde(rename = "not-requested")]
    OptedOut,
}

/// What an explanation finds about a pod, the worst last. The names are those of `explain -o json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is drained, or need not be.
    Fine,
    /// Whether it is drained cannot be told.
    Unknown,
    /// It is denied, or asks to be drained and is not, as far as is known.
    Finding,
}

/// A diagnostic, and the line of the stream that it is about.
#[derive(Debug)]
pub struct LocatedDiagnostic {
    /// The line of the first annotation that it is about, or else the object's; 0 for an object of a cluster.
    pub line: usize,
    pub diagnostic: Diagnostic,
}

// === impl InjectionOutcome ===

impl InjectionOutcome {
    /// Returns true if the pod requests a drainer, or a removal has one to remove.
    pub fn is_requested(self) -> bool {
        !matches!(self, Self::NotRequested | Self::OptedOut)
    }
}

// === impl WorkloadResult ===

impl WorkloadResult {
    /// Decides on an object; `None` if it has neither pods nor an annotation of ours.
    pub(super) fn decide(
        object: &WorkloadObject<'_>,
        manifest: &Manifest<'_>,
        context: &ManifestContext,
        defaults: &Defaults,
    ) -> Option<Self> {
        let name = ObjectName::new(object.kind, object.namespace, object.name);
        let lints = misplaced(object, context.injects_all).into_iter();
        let lints = lints.map(|annotation| LocatedDiagnostic {
            line: manifest.line(&object.path.concat(&annotation.path)),
            diagnostic: annotation.diagnostic,
        });
        let Some(PodTemplate { in_job, path, pod }) = object.template else {
            let found = gateway_diagnostics(object, context, defaults).into_iter();
            let found = found.map(|diagnostic| LocatedDiagnostic {
                line: manifest.line(&object.path),
                diagnostic,
            });
            return Self::without_template(name, lints.chain(found).collect());
        };
        let path = object.path.concat(path);
        let inject = ANNOTATIONS.with_trailing_token(INJECT);
        let is_annotated = inject.resolve(pod).is_ok_and(|value| !value.is_null());
        let position = is_annotated.then(|| path.concat(&inject));
        let line = manifest.line(position.as_ref().unwrap_or(&path));
        let (decision, mut rejected) = if is_annotated || context.injects_all {
            let namespace = name.namespace.as_deref();
            let pod_context = PodContext {
                in_job,
                injects_all: context.injects_all,
                ..PodContext::new(namespace, token_of(&name, pod, &context.token_seed))
            };
            decide_pod(pod, &pod_context, context, defaults)
        } else {
            (Decision::NotRequested, Vec::new())
        };
        let (mut plan, mut operations) = (None, Vec::new());
        let (mut outcome, mut reasons, mut warnings) = match decision {
            Decision::NotRequested if inject.resolve(pod).is_ok() => {
                (InjectionOutcome::OptedOut, vec![], vec![])
            }
            Decision::NotRequested => (InjectionOutcome::NotRequested, vec![], vec![]),
            Decision::Inject {
                plan: injected,
                patch,
                warnings,
            } => {
                let has_delay = !injected.drainer.settings.timing.drain_delay.is_zero();
                let mut warnings = warnings;
                warnings.extend(context.load_balancer(&name, pod).filter(|_| !has_delay));
                plan = Some(injected);
                operations = rebase(patch.operations(), &path);
                (InjectionOutcome::Injected, vec![], warnings)
            }
            // The annotation `status` of a skipped pod is written in clusters only: in a manifest it would outlive its
            // reason.
            Decision::Skip {
                reason, warnings, ..
            } => match reason.code {
                Code::AlreadyInjected => {
                    (InjectionOutcome::AlreadyInjected, vec![reason], warnings)
                }
                _ => (InjectionOutcome::Skipped, vec![reason], warnings),
            },
            // In a manifest, its author may have changed it.
            Decision::Repair { changes, .. } => (
                InjectionOutcome::AlreadyInjected,
                vec![already_injected()],
                changes,
            ),
            Decision::Deny { reasons, warnings } => (InjectionOutcome::Denied, reasons, warnings),
        };
        if !rejected.is_empty() && outcome != InjectionOutcome::NotRequested {
            // The API server rejects the pod, whatever else was decided. Why it would be skipped is a warning then.
            if outcome != InjectionOutcome::Denied {
                warnings.splice(..0, reasons.drain(..));
            }
            rejected.append(&mut reasons);
            (outcome, reasons) = (InjectionOutcome::Denied, rejected);
            (plan, operations) = (None, Vec::new());
        }
        let locate = |diagnostic: Diagnostic| {
            let keys = diagnostic.keys.iter();
            let mut paths =
                keys.map(|key| ANNOTATIONS.with_trailing_token(format!("{PREFIX}{key}")));
            let annotation = paths.find(|annotation| annotation.resolve(pod).is_ok());
            // One from an alias or a merge key is in another mapping of the text.
            let line =
                annotation.map_or(line, |annotation| manifest.line(&path.concat(&annotation)));
            LocatedDiagnostic { line, diagnostic }
        };
        Some(Self {
            object: name,
            line,
            outcome,
            plan,
            operations,
            reasons: reasons.into_iter().map(locate).collect(),
            warnings: warnings.into_iter().map(locate).chain(lints).collect(),
        })
    }

    /// Takes the drainer out of an object's pods; `None` if they have none.
    pub(super) fn remove(object: &WorkloadObject<'_>, manifest: &Manifest<'_>) -> Option<Self> {
        let PodTemplate { path, pod, .. } = object.template.as_ref()?;
        let path = object.path.concat(path);
        let line = manifest.line(&path.concat(&ANNOTATIONS.with_trailing_token(STATUS)));
        let json = pod.to_string();
        let patch = match PodView::decode(&json) {
            Ok(view) => remove(&view),
            Err(_) if !json.contains(&format!(r#""name":"{CONTAINER_NAME}""#)) => return None,
            Err(error) => Err(Code::NotAPod.diagnostic(error.to_string())),
        };
        let (patch, reasons) = match patch.transpose()? {
            Ok(patch) => (without_empty(patch.operations(), Value::clone(pod)), vec![]),
            Err(diagnostic) => (
                Patch::default(),
                vec![LocatedDiagnostic { line, diagnostic }],
            ),
        };
        Some(Self {
            object: ObjectName::new(object.kind, object.namespace, object.name),
            line,
            outcome: match reasons[..] {
                [] => InjectionOutcome::Injected,
                _ => InjectionOutcome::Denied,
            },
            plan: None,
            operations: rebase(patch, &path),
            reasons,
            warnings: Vec::new(),
        })
    }

    /// The result for an object whose pods are unknown: skipped if it seems to request a drainer, unless they would be
    /// denied.
    fn without_template(object: ObjectName, lints: Vec<LocatedDiagnostic>) -> Option<Self> {
        let line = lints.first()?.line;
        let is_denial = |lint: &LocatedDiagnostic| lint.diagnostic.code == Code::BadValue;
        let is_reason = |lint: &LocatedDiagnostic| lint.diagnostic.code == Code::UnknownKind;
        let (denials, lints): (Vec<_>, Vec<_>) = lints.into_iter().partition(is_denial);
        let (unknown, warnings): (Vec<_>, _) = lints.into_iter().partition(is_reason);
        let (outcome, reasons) = match (&denials[..], &unknown[..]) {
            ([], []) => (InjectionOutcome::NotRequested, unknown),
            ([], _) => (InjectionOutcome::Skipped, unknown),
            _ => (InjectionOutcome::Denied, denials),
        };
        Some(Self {
            object,
            line,
            outcome,
            plan: None,
            operations: Vec::new(),
            reasons,
            warnings,
        })
    }

    /// Whether it requests a drainer, whatever the outcome.
    pub fn requests_drainer(&self) -> bool {
        self.outcome.is_requested()
    }

    /// Returns true if it requests a drainer and does not get it as it is injected, or if something was assumed.
    pub fn is_assumed(&self) -> bool {
        use InjectionOutcome::{Skipped, Unchanged};
        let mut warnings = self.warnings.iter();
        matches!(self.outcome, Skipped | Unchanged)
            || self.outcome == InjectionOutcome::AlreadyInjected
                && self.warning(Code::Repaired).is_some()
            || warnings.any(|warning| warning.diagnostic.code.effect() == Effect::Assumption)
    }

    /// Returns why a pod that gets a drainer is not drained; `None` if nothing is known of it.
    pub fn obstacle(&self) -> Option<&Diagnostic> {
        let is_socket = self.plan.as_ref()?.admin.first().is_some_and(is_path);
        let mut warnings = self.warnings.iter().map(|located| &located.diagnostic);
        warnings.find(|warning| match warning.code {
            Code::NoAdmin => true,
            Code::SocketNotReachable => is_socket,
            // The drainer's search may find an address that is not readable, but not one that `for_webhook` warns of.
            Code::AdminNotRead | Code::AdminContradiction => warning.keys == [ADMIN_ADDRESS],
            _ => false,
        })
    }

    /// Returns true if Envoy cannot listen on a port that the drainer has, and so does not start.
    pub fn takes_port_of_envoy(&self) -> bool {
        // The webhook's own warning is about no annotation.
        (self.warning(Code::OtherPort)).is_some_and(|warning| warning.keys == [PORT])
    }

    /// Returns the warning with this code.
    pub fn warning(&self, code: Code) -> Option<&Diagnostic> {
        let mut warnings = self.warnings.iter().map(|located| &located.diagnostic);
        warnings.find(|warning| warning.code == code)
    }

    /// Judges the outcome by what is known.
    pub fn verdict(&self) -> Verdict {
        use Code::{
            EnvoyGuessed, HealthCheckOfAll, HookRedirected, Misplaced, SettingsWithoutInject,
            UnknownKey,
        };
        use InjectionOutcome::{Denied, Injected, NotRequested, Skipped, Unchanged};
        let has = |code| self.warning(code).is_some();
        let mut reasons = self.reasons.iter().map(|reason| reason.diagnostic.code);
        match self.outcome {
            Unchanged | Denied => Verdict::Finding,
            Skipped if reasons.any(|code| code != Code::UnknownKind) => Verdict::Finding,
            Injected if self.obstacle().is_some() => Verdict::Finding,
            Injected if has(HookRedirected) || has(HealthCheckOfAll) => Verdict::Finding,
            Injected if self.takes_port_of_envoy() => Verdict::Finding,
            NotRequested if has(Misplaced) || has(UnknownKey) => Verdict::Finding,
            Skipped => Verdict::Unknown,
            Injected if has(EnvoyGuessed) => Verdict::Unknown,
            NotRequested if has(SettingsWithoutInject) => Verdict::Unknown,
            _ => Verdict::Fine,
        }
    }

    /// Forgets the lines, for an object that is not from a file.
    pub fn forget_lines(&mut self) {
        let diagnostics = self.reasons.iter_mut().chain(&mut self.warnings);
        diagnostics.for_each(|located| located.line = 0);
        self.line = 0;
    }

    /// Records why API servers do not call the webhook for these pods, unless they request no drainer or have one.
    pub fn skip(&mut self, diagnostic: Diagnostic) {
        if self.requests_drainer() && self.outcome != InjectionOutcome::AlreadyInjected {
            self.outcome = InjectionOutcome::Skipped;
            self.plan = None;
            let line = self.line;
            self.reasons = vec![LocatedDiagnostic { line, diagnostic }];
        }
    }

    /// Records that the document of this workload is not changed.
    pub(super) fn leave_unchanged(&mut self) {
        self.plan = None;
        if self.outcome == InjectionOutcome::Injected {
            self.outcome = InjectionOutcome::Unchanged;
        }
    }
}

/// The operations of a removal from a pod, so that no parent becomes empty.
fn without_empty(mut patch: Patch, mut pod: Value) -> Patch {
    for operation in &mut patch.0 {
        if let PatchOperation::Remove(RemoveOperation { path }) = operation {
            while let Some(parent) = path.parent().filter(|parent| parent.count() > 1)
                && parent.resolve(&pod).is_ok_and(has_one_value)
            {
                *path = parent.to_buf();
            }
        }
        // If it does not apply, neither does it to the document, which is an error there.
        let _ = json_patch::patch(&mut pod, slice::from_ref(operation));
    }
    patch
}

fn has_one_value(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.len() == 1,
        Value::Object(entries) => entries.len() == 1,
        _ => false,
    }
}

/// What is wrong with the annotations that a Gateway's controller gives to its pods.
fn gateway_diagnostics(
    object: &WorkloadObject<'_>,
    context: &ManifestContext,
    defaults: &Defaults,
) -> Vec<Diagnostic> {
    let annotations = &object.value["spec"]["infrastructure"]["annotations"];
    if !object.is_gateway() || annotations.get(INJECT).is_none() {
        return Vec::new();
    }
    let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "envoy"}]}});
    let pod_context = PodContext::new(object.namespace, token(&[]));
    let (decision, mut found) = decide_pod(&pod, &pod_context, context, defaults);
    if let Decision::Deny { reasons, .. } = decision {
        found.extend(reasons);
    }
    found.retain(|diagnostic| diagnostic.code == Code::BadValue);
    found
}

/// The decision on a pod, and why the API server would reject it: annotations that are not strings, invalid names.
fn decide_pod(
    pod: &Value,
    context: &PodContext<'_>,
    known: &ManifestContext,
    defaults: &Defaults,
) -> (Decision, Vec<Diagnostic>) {
    let (pod, mut rejected) = take_non_strings(pod.clone());
    let decision = match PodView::decode(&pod.to_string()) {
        Ok(view) => {
            let invalid_name = view.invalid_name();
            rejected.extend(invalid_name.map(|reason| Code::NotAPod.diagnostic(reason)));
            let configurations = known.configurations(context.namespace, &view, &pod);
            let informed = PodContext {
                configurations: Some(&configurations),
                ..*context
            };
            let mut decision = decide(&view, &informed, defaults);
            if let Decision::Inject { plan, warnings, .. } = &mut decision
                && let Some(configuration) = configurations.get(&plan.envoy.name)
                && let Some(obstacle) = admin_obstacle(&view, configuration, plan)
                && warnings.iter().all(|it| it.code != obstacle.code)
            {
                warnings.push(obstacle);
            }
            if known.is_for_webhook {
                for_webhook(decision, decide(&view, context, defaults))
            } else {
                decision
            }
        }
        Err(error) => Decision::Deny {
            reasons: vec![Code::NotAPod.diagnostic(error.to_string())],
            warnings: Vec::new(),
        },
    };
    (decision, rejected)
}

/// Returns why the drainer cannot call Envoy, by its configuration: the admin interface is missing, or not at the address
/// that is annotated.
fn admin_obstacle(
    pod: &PodView<'_>,
    configuration: &EnvoyConfiguration,
    plan: &DrainPlan,
) -> Option<Diagnostic> {
    let Some(address) = configuration.admin_address() else {
        let first = plan.admin.first()?;
        let mut containers = pod.long_running_containers().map(|(_, it)| it);
        let envoy = containers.find(|it| it.name() == plan.envoy.name)?;
        let lacks = first.source != AdminAddressSource::Added && has_no_admin(envoy, configuration);
        let detail = "Envoy's configuration has no admin interface: nothing can be drained";
        return lacks.then(|| Code::NoAdmin.diagnostic(detail));
    };
    let is_same = |annotated: &AdminAddress| match (annotated, address) {
        // The same port at another address may be the same socket.
        (AdminAddress::Tcp(annotated), AdminAddress::Tcp(address)) => {
            annotated.port() == address.port()
        }
        _ => annotated == address,
    };
    let other = plan.admin.annotated().filter(|it| !is_same(it))?;
    let detail = format!(
        "the drainer calls {other} alone, and the admin interface in Envoy's configuration is at {address}"
    );
    Some(Code::AdminContradiction.about(ADMIN_ADDRESS, detail))
}

/// The decision of a reader of Envoy's configuration, corrected by that of the webhook, which reads none: its drainer
/// searches for the admin interface, but not on a node's network, and not for a Unix socket in a volume. It knows only the
/// ports that the manifest names.
fn for_webhook(mut informed: Decision, uninformed: Decision) -> Decision {
    let Decision::Inject { plan, warnings, .. } = &mut informed else {
        return informed;
    };
    let Decision::Inject { plan: known, .. } = uninformed else {
        return uninformed;
    };
    let (free, port) = (plan.drainer.settings.port, known.drainer.settings.port);
    if free != port {
        warnings.retain(|warning| warning.code != Code::OtherPort);
        let detail = format!(
            "Envoy's configuration, which is not read when a pod is admitted, uses the drainer's port {port}: Envoy exits"
        );
        warnings.push(Code::OtherPort.about(PORT, detail));
        (plan.settings, plan.drainer.settings) = (known.settings, known.drainer.settings);
    }
    let mut codes = warnings.iter().map(|warning| warning.code);
    if let Some(AdminEndpoint { address, source }) = plan.admin.first().filter(|it| is_path(it))
        && known.admin.iter().all(|it| it.address != *address)
        && codes.all(|code| code != Code::SocketNotReachable)
    {
        let detail = format!(
            "{source} is not read when a pod is admitted, and the drainer does not search for {address}"
        );
        warnings.push(Code::AdminNotRead.about(ADMIN_ADDRESS, detail));
    }
    informed
}

fn is_path(admin: &AdminEndpoint) -> bool {
    matches!(admin.address, AdminAddress::Path(_))
}

/// Reports annotations under our prefix that are not strings, for which the API server rejects the pod: to YAML `90` is
/// a number and `off` is `false`. Returns the pod without them, and with `inject: "true"` if that is one of them, so
/// that the rest of the pod can be checked.
fn take_non_strings(mut pod: Value) -> (Value, Vec<Diagnostic>) {
    let mut diagnostics = Vec::new();
    let mut is_kept = |key: &String, value: &mut Value| {
        let Some(name) = key.strip_prefix(PREFIX) else {
            return true;
        };
        let value_type = match value {
            // The API server reads null as an empty string.
            Value::String(_) | Value::Null => return true,
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::Array(_) => "list",
            Value::Object(_) => "mapping",
        };
        let detail = format!("`{key}` is a {value_type}, not a string: quote it");
        diagnostics.push(Code::BadValue.about(name, detail));
        *value = "true".into();
        key == INJECT
    };
    if let Ok(Value::Object(annotations)) = ANNOTATIONS.resolve_mut(&mut pod) {
        // One pass: to remove a key moves all that follow it.
        annotations.retain(&mut is_kept);
    }
    (pod, diagnostics)
}

/// The token of a pod that has no admission request: a hash of the object's kind, namespace and name, and of the value
/// of its pod template. Every run derives the same token from the same document, and only a change that rolls the pods
/// anyway changes it. Comments, quotes and the order of keys do not count. Without the seed, if there is one, it cannot
/// be derived.
fn token_of(object: &ObjectName, pod: &Value, seed: &str) -> drainer::Token {
    let mut pod = pod.clone();
    pod.sort_all_objects();
    let namespace = object.namespace.as_deref().unwrap_or_default();
    let source = [&*object.kind, namespace, &object.name, &pod.to_string()];
    let source = source.join("\0");
    // On both sides: the hash could be undone from the end that is known.
    token(format!("{seed}{source}{seed}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::DocumentReview;
    use super::*;

    #[test]
    fn non_string_annotations_are_bad_values() {
        let table = [
            ("inject", json!(true), "boolean"),
            ("drain-timeout", json!(90), "number"),
            ("drain-timeout", json!(1.5), "number"),
            ("drain-timeout", json!(true), "boolean"),
            ("drain-delay", json!(0), "number"),
            ("idle-exit", json!(false), "boolean"),
            ("ignore-listeners", json!([8080, "probes"]), "list"),
            ("ignore-listeners", json!({"a": 1}), "mapping"),
            ("prot", json!(9903), "number"),
            ("port", json!(0), "number"),
        ];
        for (name, value, value_type) in table {
            let key = format!("{PREFIX}{name}");
            let pod = json!({"metadata": {"annotations": {(key.as_str()): value, "other": 1}}});
            let (strings_only, diagnostics) = take_non_strings(pod.clone());
            let want = format!("`{key}` is a {value_type}, not a string: quote it");
            assert_eq!(diagnostics, [Code::BadValue.about(name, want)], "{name}");
            let annotations = &strings_only["metadata"]["annotations"];
            let rest = (name == "inject").then(|| json!("true"));
            assert_eq!(annotations.get(&key), rest.as_ref(), "{name}");
            assert_eq!(annotations["other"], 1);
        }
    }

    /// Decides on a document, which may have the ConfigMaps of its pods.
    fn review(text: &str, is_for_webhook: bool) -> DocumentReview {
        let mut context = ManifestContext::read([text.as_bytes()]);
        context.is_for_webhook = is_for_webhook;
        let document = &manifest::documents(text.as_bytes())[0];
        let defaults = Defaults::new("drainer", "envoy-drainer");
        DocumentReview::new(document, &context, &defaults)
    }

    #[test]
    fn webhook_finds_no_socket_in_a_volume_by_the_configuration() {
        let socket = "pipe: {path: /run/admin/a.sock}";
        let tcp = "socket_address: {address: 127.0.0.1, port_value: 1}";
        let annotated = ", envoy-drainer.dev/admin-address: 'unix:/run/admin/a.sock'";
        let host = "hostNetwork: true, ";
        for (address, annotation, host, outcome, obstacle) in [
            (socket, "", "", InjectionOutcome::Injected, true),
            (socket, annotated, "", InjectionOutcome::Injected, false),
            (
                "pipe: {path: '@a'}",
                "",
                "",
                InjectionOutcome::Injected,
                false,
            ),
            (tcp, "", "", InjectionOutcome::Injected, false),
            (tcp, "", host, InjectionOutcome::Denied, false),
        ] {
            let text = format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: a, annotations: {{envoy-drainer.dev/inject: 'true'{annotation}}}}}\nspec: {{{host}\
                 volumes: [{{name: admin, emptyDir: {{}}}}], containers: [{{name: envoy, image: envoyproxy/envoy:v1.40.0, \
                 args: [--config-yaml, \"admin: {{address: {{{address}}}}}\"], \
                 volumeMounts: [{{name: admin, mountPath: /run/admin}}]}}]}}\n"
            );
            for is_for_webhook in [true, false] {
                let review = review(&text, is_for_webhook);
                let [pod] = &review.workloads[..] else {
                    panic!("{review:?}")
                };
                let found = pod.obstacle().map(|obstacle| obstacle.code);
                let hidden = obstacle.then_some(Code::AdminNotRead);
                let want = if is_for_webhook {
                    (outcome, hidden)
                } else {
                    (InjectionOutcome::Injected, None)
                };
                assert_eq!((pod.outcome, found), want, "{text} {is_for_webhook}");
            }
        }
    }

    #[test]
    fn address_that_is_not_readable_is_no_obstacle() {
        let text = "{kind: List, apiVersion: v1, items: [\
            {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: \
            {e.yaml: 'admin: {address: {pipe: {path: /run/admin/a.sock}}}'}}, \
            {apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {envoy-drainer.dev/inject: 'true'}}, spec: {\
            volumes: [{name: admin, emptyDir: {}}, {name: c, configMap: {name: c}}], containers: [{name: envoy, \
            args: [-c, /c/e.yaml, --config-yaml, 'admin: $(ADMIN)'], volumeMounts: [\
            {name: admin, mountPath: /run/admin}, {name: c, mountPath: /c}]}]}}]}\n";
        for is_for_webhook in [false, true] {
            let review = review(text, is_for_webhook);
            let pods = review.workloads.iter();
            let pod = pods.last().unwrap();
            assert!(pod.warning(Code::AdminNotRead).is_some(), "{review:?}");
            assert_eq!(pod.obstacle().is_some(), is_for_webhook, "{review:?}");
        }
    }

    #[test]
    fn known_configuration_without_the_admin_interface_is_an_obstacle() {
        let none = "static_resources: {}";
        let at_9901 = "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 9901}}}";
        let (official, other) = ("envoyproxy/envoy:v1.40.0", "registry.example.com/envoy:1");
        let ports = ", ports: [{name: admin, containerPort: 9901}]";
        let add_admin = ", envoy-drainer.dev/add-admin: 'true'";
        let same = ", envoy-drainer.dev/admin-address: '127.0.0.1:9901'";
        let port = ", envoy-drainer.dev/admin-address: '127.0.0.1:19000'";
        let socket = ", envoy-drainer.dev/admin-address: 'unix:@a'";
        for (configuration, image, annotation, container, want) in [
            (none, official, "", "", Some(Code::NoAdmin)),
            (none, official, "", ports, Some(Code::NoAdmin)),
            // Its entry point may name a file.
            (none, other, "", ports, None),
            (none, official, add_admin, "", None),
            (at_9901, official, "", "", None),
            (at_9901, official, same, "", None),
            (at_9901, official, port, "", Some(Code::AdminContradiction)),
            (
                at_9901,
                official,
                socket,
                "",
                Some(Code::AdminContradiction),
            ),
        ] {
            let text = format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: a, annotations: {{envoy-drainer.dev/inject: 'true'{annotation}}}}}\n\
                 spec: {{containers: [{{name: envoy, image: {image}, args: [--config-yaml, \"{configuration}\"]{container}}}]}}\n"
            );
            for is_for_webhook in [true, false] {
                let review = review(&text, is_for_webhook);
                let pod = &review.workloads[0];
                assert_eq!(pod.obstacle().map(|it| it.code), want, "{text} {review:?}");
            }
        }
    }

    #[test]
    fn port_of_a_listener_is_taken_by_the_webhook_alone() {
        let listener = |port| {
            format!(
                "{{admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 9901}}}}}}, \
                 static_resources: {{listeners: [{{address: {{socket_address: {{address: '::', port_value: {port}}}}}}}]}}}}"
            )
        };
        let metrics = ", prometheus.io/port: '15902'";
        for (port, annotation, webhook, inject) in [
            (8080, "", 15902, 15902),
            (15902, "", 15902, 15903),
            // The default is in use for both, and the webhook takes the port of a listener instead.
            (15903, metrics, 15903, 15904),
            (8080, metrics, 15903, 15903),
        ] {
            let text = format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: a, annotations: {{envoy-drainer.dev/inject: 'true'{annotation}}}}}\n\
                 spec: {{containers: [{{name: envoy, image: envoyproxy/envoy:v1.40.0, args: [--config-yaml, \"{}\"]}}]}}\n",
                listener(port)
            );
            for (is_for_webhook, want) in [(true, webhook), (false, inject)] {
                let review = review(&text, is_for_webhook);
                let pod = &review.workloads[0];
                let plan = pod.plan.as_ref().unwrap();
                assert_eq!(plan.drainer.settings.port.get(), want, "{text}");
                let mut rows = plan.settings.rows().into_iter();
                let row = rows.rfind(|row| row.name == "port").unwrap();
                assert_eq!(row.value, want.to_string(), "{text}");
                let is_finding = pod.verdict() == Verdict::Finding;
                assert_eq!(is_finding, want == port, "{text} {is_for_webhook}");
                assert_eq!(pod.takes_port_of_envoy(), want == port, "{text}");
            }
        }
    }

    #[test]
    fn string_annotations_are_kept() {
        for annotations in [
            json!({"envoy-drainer.dev/inject": "true", "envoy-drainer.dev/port": null, "a": 1}),
            json!(null),
            json!([1]),
        ] {
            let pod = json!({"metadata": {"annotations": annotations}});
            let (strings_only, diagnostics) = take_non_strings(pod.clone());
            assert_eq!((strings_only, diagnostics), (pod, vec![]), "{annotations}");
        }
    }
}
