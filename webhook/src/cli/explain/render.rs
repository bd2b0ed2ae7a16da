//! The text output of `explain`.

use anstyle::{AnsiColor, Style};
use drainer::duration::format;

use super::model::{Explanation, InjectionOutcome, PlanModel, ReasonModel};
use super::settings::SettingsModel;
use super::timeline::TimelineEvent;
use crate::admission::settings::keys::INJECT;
use crate::admission::{ContainerList, GracePeriod, SettingRow, SettingSource};
use crate::cli::terminal::TextWriter;

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

/// Renders explanations, with styles or without; empty if there are none.
pub(super) fn render(pods: &[Explanation], styled: bool) -> String {
    if pods.is_empty() {
        return String::new();
    }
    let mut out = TextWriter::new(styled);
    for pod in pods {
        render_pod(&mut out, pod);
        out.end_line();
    }
    let is_decided =
        |pod: &Explanation| pod.outcome != InjectionOutcome::NotRequested || pod.opts_out;
    if !pods.iter().any(is_decided) {
        let hint =
            format!("To request a drainer, annotate the pod template with {INJECT}: \"true\".");
        out.push_wrapped(0, &hint);
    }
    out.into_text()
}

fn render_pod(out: &mut TextWriter, explanation: &Explanation) {
    let Explanation {
        file,
        line,
        kind,
        namespace,
        name,
        outcome,
        reasons,
        warnings,
        plan,
        opts_out: _,
    } = explanation;
    let (mark, color, text) = match outcome {
        InjectionOutcome::Injected => ("✔", AnsiColor::Green, "gets a drainer"),
        InjectionOutcome::Skipped => ("!", AnsiColor::Yellow, "gets no drainer"),
        InjectionOutcome::Unchanged => (
            "!",
            AnsiColor::Yellow,
            "gets no drainer: its document is not changed",
        ),
        InjectionOutcome::Denied => ("✘", AnsiColor::Red, "is denied"),
        InjectionOutcome::NotRequested => ("·", AnsiColor::White, "does not request a drainer"),
    };
    let namespace = namespace.as_ref().map(|namespace| format!("{namespace}/"));
    let object = format!("{kind} {}{name}", namespace.unwrap_or_default());
    out.push_styled(color.on_default(), mark);
    out.push(" ");
    out.push_styled(Style::new().bold(), &object);
    out.push(&format!(" {text}  "));
    out.push_styled(Style::new().dimmed(), &format!("{file}:{line}"));
    out.end_line();
    render_reasons(out, *line, reasons, color);
    if let Some(plan) = plan {
        out.end_line();
        for (label, text) in plan_rows(plan) {
            out.push_row(Style::new().bold(), label, &text);
        }
        out.end_line();
        render_settings(out, &plan.settings);
        out.end_line();
        render_timeline(out, &plan.timeline);
    }
    render_reasons(out, *line, warnings, AnsiColor::Yellow);
}

/// Prints reasons, with their lines if these differ from the pod's.
fn render_reasons(
    out: &mut TextWriter,
    pod_line: usize,
    reasons: &[ReasonModel],
    color: AnsiColor,
) {
    for ReasonModel {
        code,
        line,
        message,
        remedy,
    } in reasons
    {
        out.end_line();
        let message = match *line == pod_line {
            true => message.clone(),
            false => format!("line {line}: {message}"),
        };
        out.push_row(color.on_default(), code, &message);
        if let Some(remedy) = remedy {
            out.push_row(Style::new(), "", &format!("→ {remedy}"));
        }
    }
}

/// The rows of a plan: labels and texts.
fn plan_rows(plan: &PlanModel) -> Vec<(&'static str, String)> {
    let PlanModel {
        envoy,
        admin,
        drainer,
        grace: GracePeriod { from, to },
        replaces_hook,
        readiness_probes,
        ..
    } = plan;
    let name = &envoy.container;
    let kind = match envoy.container_list {
        ContainerList::Containers => "container",
        ContainerList::InitContainers => "init container",
    };
    let position = match &drainer.before {
        Some(before) => format!("before `{before}` in {}", drainer.list),
        None => format!("at the end of {}", drainer.list),
    };
    let grace = match from == to {
        true => format!("{from}s, which is enough"),
        false => format!("{from}s → {to}s, to cover the drain and Envoy's own shutdown"),
    };
    let mut rows = vec![
        ("envoy", format!("{kind} `{name}` ({})", envoy.detected_by)),
        (
            "admin",
            format!("{} ({})", admin.address, admin.detected_by),
        ),
        (
            "drainer",
            format!(
                "{} {position}, listening on port {}",
                drainer.mode, drainer.port
            ),
        ),
        ("grace", grace),
    ];
    if *replaces_hook {
        let text = format!("the preStop hook of `{name}` is replaced by the drainer's");
        rows.push(("hook", text));
    }
    if !readiness_probes.is_empty() {
        let probes: Vec<_> = readiness_probes
            .iter()
            .map(|probe| format!("port {} every {}s", probe.port, probe.period_seconds))
            .collect();
        let text = format!(
            "probes of {} continue while the pod terminates, and do not postpone the exit",
            probes.join(", ")
        );
        rows.push(("readiness", text));
    }
    rows
}

fn render_settings(out: &mut TextWriter, SettingsModel(settings): &SettingsModel) {
    let is_set = |row: &SettingRow| {
        matches!(
            row.source,
            SettingSource::Annotation | SettingSource::NextFree
        )
    };
    let is_listed = |row: &&SettingRow| ALWAYS_LISTED_SETTINGS.contains(&row.name) || is_set(row);
    let listed: Vec<_> = settings.iter().filter(is_listed).collect();
    let lengths = listed.iter().map(|row| row.value.len());
    let width = lengths.max().unwrap_or(0).clamp(8, MAX_VALUE_WIDTH);
    out.push_heading("settings");
    for row in listed {
        let SettingRow {
            name,
            value,
            source,
        } = row;
        let style = match is_set(row) {
            true => Style::new(),
            false => Style::new().dimmed(),
        };
        out.push(&format!("    {name:<20}{value:>width$}  "));
        out.push_styled(style, &source.to_string());
        out.end_line();
    }
}

fn render_timeline(out: &mut TextWriter, timeline: &[TimelineEvent]) {
    out.push_heading("when the pod is deleted");
    for TimelineEvent { at, text, .. } in timeline {
        out.push(&format!("    {:>8}  ", format(*at).to_string()));
        out.push_wrapped(14, text);
    }
}
