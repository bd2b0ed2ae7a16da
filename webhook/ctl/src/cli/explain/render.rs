//! The text output of `explain`.

use admission::settings::keys::INJECT;
use admission::{
    ContainerList, DrainPlan, GracePeriod, SettingRow, SettingSource, ShutdownManager,
};
use anstyle::{AnsiColor, Style};
use drainer::duration::format;

use super::timeline::{TimelineEvent, timeline};
use crate::object_name::ObjectName;
use crate::offline::{InjectionOutcome, LocatedDiagnostic, WorkloadResult};
use crate::running_pod::{RunningDrainer, RunningPod, RunningSetting};
use crate::text::PrintableText;

/// Settings that are printed even with their default values.
const ALWAYS_LISTED_SETTINGS: [&str; 5] = [
    "drain-delay",
    "min-drain-duration",
    "drain-timeout",
    "idle-exit",
    "quiet-period",
];

/// Maximum width of the column of values in characters, so that one long list of listeners does not widen it.
const MAX_VALUE_WIDTH: usize = 40;

/// Follows the name of an Envoy's container that was moved.
const MOVED: &str = ", moved to the end of initContainers, as a native sidecar";

/// A setting as it is listed.
struct ListedSetting<'a> {
    name: &'a str,
    value: &'a str,
    source: String,
    /// Whether it is set for this pod, and so not dimmed.
    is_set: bool,
}

/// Renders explanations, with styles or without; empty if there are none.
pub(super) fn render(
    pods: &[(String, WorkloadResult)],
    running: &[RunningPod],
    styled: bool,
) -> PrintableText {
    let mut out = PrintableText::new(styled);
    if pods.is_empty() && running.is_empty() {
        return out;
    }
    for pod in running {
        render_running_pod(&mut out, pod);
        out.end_line();
    }
    for (file, pod) in pods {
        render_pod(&mut out, file, pod);
        out.end_line();
    }
    let mut outcomes = pods.iter().map(|(_, pod)| pod.outcome);
    if !pods.is_empty() && outcomes.all(|outcome| outcome == InjectionOutcome::NotRequested) {
        let annotation = format!("{INJECT}: \"true\"");
        let hint = format!("To request a drainer, annotate the pod template with {annotation}.");
        out.push_wrapped(0, &hint);
    }
    out.end("\n")
}

fn render_pod(out: &mut PrintableText, file: &str, pod: &WorkloadResult) {
    let WorkloadResult {
        object,
        line,
        outcome,
        plan,
        reasons,
        warnings,
    } = pod;
    let (mark, color) = match outcome {
        InjectionOutcome::Injected => ("✔", AnsiColor::Green),
        InjectionOutcome::Denied => ("✘", AnsiColor::Red),
        InjectionOutcome::NotRequested | InjectionOutcome::OptedOut => ("·", AnsiColor::White),
        _ => ("!", AnsiColor::Yellow),
    };
    let text = match outcome {
        InjectionOutcome::Injected => "gets a drainer",
        InjectionOutcome::Skipped | InjectionOutcome::AlreadyInjected => "gets no drainer",
        InjectionOutcome::Unchanged => "gets no drainer: its document is not changed",
        InjectionOutcome::Denied => "is denied",
        InjectionOutcome::NotRequested | InjectionOutcome::OptedOut => "does not request a drainer",
    };
    push_title(out, (mark, color), object, text);
    out.push("  ");
    let location = match line {
        0 => file.to_owned(),
        line => format!("{file}:{line}"),
    };
    out.push_styled(Style::new().dimmed(), location);
    out.end_line();
    render_reasons(out, *line, reasons, color);
    if let Some(plan) = plan {
        out.end_line();
        for (label, text) in plan_rows(plan) {
            out.push_row(Style::new().bold(), label, &text);
        }
        out.end_line();
        render_settings(out, &plan.settings.rows());
        out.end_line();
        render_timeline(out, &timeline(&plan.drainer, plan.grace.to));
    }
    render_reasons(out, *line, warnings, AnsiColor::Yellow);
}

/// Renders the line about a pod, but for its end.
fn push_title(
    out: &mut PrintableText,
    (mark, color): (&str, AnsiColor),
    object: &ObjectName,
    text: &str,
) {
    out.push_styled(color.on_default(), mark);
    out.push(" ");
    out.push_styled(Style::new().bold(), object);
    out.push(format_args!(" {text}"));
}

/// Prints reasons, with their lines if these differ from the pod's.
fn render_reasons(
    out: &mut PrintableText,
    pod_line: usize,
    reasons: &[LocatedDiagnostic],
    color: AnsiColor,
) {
    for LocatedDiagnostic { line, diagnostic } in reasons {
        out.end_line();
        let message = match *line {
            line if line == pod_line => diagnostic.detail.clone(),
            line => format!("line {line}: {}", diagnostic.detail),
        };
        out.push_row(color.on_default(), diagnostic.code, &message);
        if let Some(remedy) = diagnostic.remedy() {
            out.push_row(Style::new(), "", &format!("→ {remedy}"));
        }
    }
}

/// The rows of a plan: labels and texts.
fn plan_rows(plan: &DrainPlan) -> Vec<(&'static str, String)> {
    let DrainPlan {
        envoy,
        admin,
        drainer,
        sidecar,
        grace: GracePeriod { from, to },
        replaced_hook,
        added_args,
        adopted,
        is_envoy_moved,
        extra_hooks,
        ..
    } = plan;
    let name = &envoy.name;
    let kind = match envoy.container_ref.list {
        ContainerList::Containers => "container",
        ContainerList::InitContainers => "init container",
    };
    let moved = if *is_envoy_moved { MOVED } else { "" };
    let envoy = format!("{kind} `{name}` ({}){moved}", envoy.source);
    let list = sidecar.container_list().key();
    let position = if plan.is_before_envoy() {
        format!("before `{name}` in {list}")
    } else {
        format!("at the end of {list}")
    };
    let form = format!(
        "{sidecar} {position}, listening on port {}",
        drainer.settings.port
    );
    let grace = if from == to {
        format!("{from}s, which is enough")
    } else if extra_hooks.is_empty() {
        format!("{from}s → {to}s, to cover the drain and Envoy's own shutdown")
    } else {
        format!("{from}s → {to}s, to cover the drain and then the other containers' own shutdown")
    };
    let mut rows = vec![
        ("envoy", envoy),
        ("admin", format!("{} ({})", admin.address, admin.source)),
        ("drainer", form),
        ("grace", grace),
    ];
    if let Some(ShutdownManager {
        product, versions, ..
    }) = adopted
    {
        let text = format!(
            "the container `shutdown-manager` of {product} ({versions}) is removed, and the preStop hook of `{name}` that calls it is replaced"
        );
        rows.push(("adopted", text));
    }
    if !added_args.is_empty() {
        let args = added_args.join(" ");
        rows.push(("args", format!("{args} is added to the args of `{name}`")));
    }
    rows.extend(hooks_row(extra_hooks.iter().map(|hook| &*hook.container)));
    if replaced_hook.is_some() {
        let text = format!("the preStop hook of `{name}` is replaced by the drainer's");
        rows.push(("hook", text));
    }
    if !drainer.readiness_probes.is_empty() {
        let probes = drainer.readiness_probes.iter();
        let probes = probes.map(|it| format!("port {} every {}s", it.port, it.period.as_secs()));
        let probes: Vec<_> = probes.collect();
        let text = format!(
            "probes of {} continue while the pod terminates, and do not postpone the exit",
            probes.join(", ")
        );
        rows.push(("readiness", text));
    }
    rows
}

/// The row of the containers whose SIGTERM waits for the drain; `None` without any.
fn hooks_row<'a>(names: impl Iterator<Item = &'a str>) -> Option<(&'static str, String)> {
    let names: Vec<_> = names.collect();
    let verb = match names.len() {
        0 => return None,
        1 => "gets",
        _ => "get",
    };
    let names = names.join("`, `");
    Some((
        "hooks",
        format!("`{names}` {verb} SIGTERM only after the drain"),
    ))
}

/// Renders a pod of a cluster, as it runs.
fn render_running_pod(out: &mut PrintableText, pod: &RunningPod) {
    if pod.has_drainer {
        push_title(out, ("✔", AnsiColor::Green), &pod.object, "has a drainer");
    } else {
        push_title(out, ("!", AnsiColor::Yellow), &pod.object, "has no drainer");
    }
    out.end_line();
    if let Some(drainer) = &pod.drainer {
        render_running_drainer(out, drainer);
    }
    for note in pod.all_notes() {
        out.end_line();
        out.push_row(AnsiColor::Yellow.on_default(), "note", note);
    }
}

fn render_running_drainer(out: &mut PrintableText, drainer: &RunningDrainer) {
    let RunningDrainer {
        config,
        sidecar,
        recorded,
        image,
        grace,
        settings,
    } = drainer;
    let (list, port) = (drainer.list().key(), config.settings.port);
    let form = format!("{sidecar} in {list}, listening on port {port}");
    let moved = recorded.envoy.map_or("", |_| MOVED);
    let envoy = format!("container `{}`{moved}", recorded.container);
    let envoy = (!recorded.container.is_empty()).then_some(("envoy", envoy));
    let rows = [
        ("admin", config.settings.admin_address.to_string()),
        ("drainer", form),
        ("image", image.clone()),
        ("grace", format!("{grace}s")),
    ];
    let hooks = hooks_row(recorded.extra_hooks.iter().map(String::as_str));
    out.end_line();
    for (label, text) in envoy.into_iter().chain(rows).chain(hooks) {
        out.push_row(Style::new().bold(), label, &text);
    }
    out.end_line();
    let is_listed = |setting: &&RunningSetting| {
        let is_row = ["admin-address", "port"].contains(&setting.name);
        let is_always_listed = ALWAYS_LISTED_SETTINGS.contains(&setting.name);
        is_always_listed || setting.annotation.is_some() || setting.is_changed && !is_row
    };
    let listed = settings.iter().filter(is_listed);
    let listed = listed.map(|setting| ListedSetting {
        name: setting.name,
        value: &setting.value,
        source: match &setting.annotation {
            Some(annotation) if *annotation == setting.value => "annotation".to_owned(),
            Some(_) => "injected; the annotation differs".to_owned(),
            None => "injected".to_owned(),
        },
        is_set: setting.annotation.is_some(),
    });
    push_settings(out, &listed.collect::<Vec<_>>());
    out.end_line();
    render_timeline(out, &timeline(config, *grace));
}

fn render_settings(out: &mut PrintableText, settings: &[SettingRow]) {
    use SettingSource::{Annotation, NextFree, ShutdownManager};
    let is_set = |row: &SettingRow| matches!(row.source, Annotation | NextFree | ShutdownManager);
    let is_listed = |row: &&SettingRow| ALWAYS_LISTED_SETTINGS.contains(&row.name) || is_set(row);
    let listed = settings.iter().filter(is_listed).map(|row| ListedSetting {
        name: row.name,
        value: &row.value,
        source: match row.source {
            // Of the installation, or built in.
            SettingSource::Default => "default".to_owned(),
            source => source.to_string(),
        },
        is_set: is_set(row),
    });
    push_settings(out, &listed.collect::<Vec<_>>());
}

/// Prints the table of settings.
fn push_settings(out: &mut PrintableText, settings: &[ListedSetting<'_>]) {
    let lengths = settings.iter().map(|row| row.value.len());
    let short = lengths.filter(|length| *length <= MAX_VALUE_WIDTH);
    let width = short.max().unwrap_or(0).max(8);
    let names = settings.iter().map(|row| row.name.len());
    let name_width = names.max().unwrap_or(0).max(20);
    out.push_heading("settings");
    for ListedSetting {
        name,
        value,
        source,
        is_set,
    } in settings
    {
        let style = if *is_set {
            Style::new()
        } else {
            Style::new().dimmed()
        };
        out.push(format_args!("    {name:<name_width$}{value:>width$}  "));
        out.push_styled(style, source);
        out.end_line();
    }
}

fn render_timeline(out: &mut PrintableText, timeline: &[TimelineEvent]) {
    out.push_heading("when the pod is deleted");
    for TimelineEvent { at, text, .. } in timeline {
        out.push(format_args!("    {:>8}  ", format(*at).to_string()));
        out.push_wrapped(14, text);
    }
}
