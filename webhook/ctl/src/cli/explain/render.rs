//! The text output of `explain`.

use admission::keys::INJECT;
use admission::{
    AdminEndpoint, ContainerList, DrainPlan, EnvoyContainerSource, GracePeriod, SettingRow,
    SettingSource, ShutdownManager,
};
use anstyle::{AnsiColor, Style};
use drainer::duration::format;
use drainer::{Config, SettingValue};

use super::timeline::{Prospect, TimelineEvent, planned, timeline};
use crate::object_name::ObjectName;
use crate::offline::{InjectionOutcome, LocatedDiagnostic, Verdict, WorkloadResult};
use crate::running_pod::{RunningDrainer, RunningPod, RunningSetting};
use crate::text::{PrintableText, WIDTH, width};

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

/// A setting as it is listed: its name and value, its source, and whether it is set for this pod, and so not dimmed.
type ListedSetting<'a> = (&'a str, &'a str, String, bool);

/// Renders explanations to `out`; empty if there are none.
pub(super) fn render(
    pods: &[(String, WorkloadResult)],
    running: &[RunningPod],
    mut out: PrintableText,
) -> PrintableText {
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
        let hint = format!(
            "To see what a drainer would change, annotate the pod template with {INJECT}: \"true\"."
        );
        out.push_wrapped(0, &hint);
    }
    out.end("\n")
}

fn render_pod(out: &mut PrintableText, file: &str, pod: &WorkloadResult) {
    let (object, line) = (&pod.object, pod.line);
    let (mark, color, text) = headline(pod);
    push_title(out, mark, color, object);
    let place = match line {
        0 => file.to_owned(),
        line => format!("{file}:{line}"),
    };
    let (text, column) = (format!(" {text}"), 2 + width(&object.to_string()));
    if column + width(&text) + 2 + width(&place) <= *WIDTH {
        out.push(text + "  ");
    } else {
        out.push_wrapped(column, &text);
        out.push("  ");
    }
    out.push_styled(Style::new().dimmed(), place);
    out.end_line();
    render_reasons(out, line, &pod.reasons, color);
    if let Some(plan) = &pod.plan {
        let (rows, settings) = (plan_rows(plan, pod), plan.settings.rows());
        let timeline = planned(plan, Prospect::of(pod));
        render_drainer(out, rows, &listed_settings(&settings), &timeline);
    }
    render_reasons(out, line, &pod.warnings, AnsiColor::Yellow);
}

/// The mark of a pod, its color, and what happens to it in short.
fn headline(pod: &WorkloadResult) -> (&'static str, AnsiColor, &'static str) {
    use AnsiColor::{Green, Red, White, Yellow};
    use InjectionOutcome::{
        AlreadyInjected, Denied, Injected, NotRequested, OptedOut, Skipped, Unchanged,
    };
    match (pod.outcome, pod.verdict()) {
        (Injected, Verdict::Fine) => ("✔", Green, "gets a drainer"),
        (Injected, Verdict::Unknown) => {
            ("?", Yellow, "gets a drainer, though it may have no Envoy")
        }
        (Injected, _) if pod.obstacle().is_some() => {
            ("!", Yellow, "gets a drainer, but cannot be drained")
        }
        (Injected, _) if pod.takes_port_of_envoy() => {
            ("!", Yellow, "gets a drainer, but Envoy does not start")
        }
        (Injected, _) => ("!", Yellow, "gets a drainer, but may lose requests"),
        (Skipped, Verdict::Unknown) => ("?", Yellow, "has pods that are not known here"),
        (Skipped, _) => ("!", Yellow, "gets no drainer"),
        (Unchanged, _) => (
            "!",
            Yellow,
            "gets a drainer from the webhook alone: `inject` does not change its document",
        ),
        (Denied, _) => ("✘", Red, "is denied"),
        (AlreadyInjected, _) => ("·", White, "has a drainer already"),
        (NotRequested, Verdict::Finding) => ("!", Yellow, "does not request a drainer"),
        (NotRequested, Verdict::Unknown) => ("?", Yellow, "does not request a drainer"),
        (NotRequested | OptedOut, _) => ("·", White, "does not request a drainer"),
    }
}

/// Renders the start of the line about a pod.
fn push_title(out: &mut PrintableText, mark: &str, color: AnsiColor, object: &ObjectName) {
    out.push_styled(color.on_default(), mark);
    out.push(" ");
    out.push_styled(Style::new().bold(), object);
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
        let place = (*line != pod_line).then(|| format!("line {line}: "));
        let message = place.unwrap_or_default() + &diagnostic.detail;
        out.push_row(color.on_default(), diagnostic.code, &message);
        if let Some(remedy) = diagnostic.remedy() {
            out.push_row(Style::new(), "", &format!("→ {remedy}"));
        }
    }
}

/// Where the drainer finds Envoy's admin interface, if it can; or the ports of a server.
fn describe_admin(plan: &DrainPlan, pod: &WorkloadResult) -> (&'static str, String) {
    if let Some(obstacle) = pod.obstacle() {
        let text = format!("none that the drainer can call ({})", obstacle.code);
        return ("admin", text);
    }
    let describe = |it: &AdminEndpoint| format!("{} ({})", it.address, it.source);
    source_row(&plan.drainer, plan.admin.iter().map(describe).collect())
}

/// Where the drainer learns what is in flight: the addresses that it asks, and whether it searches after that; or the ports of
/// a server, and what is protected on them.
fn source_row(drainer: &Config, mut addresses: Vec<String>) -> (&'static str, String) {
    if drainer.is_of_server() {
        let (ports, never_idle) = (&drainer.server_ports, &drainer.never_idle_ports);
        let idle_exit = drainer.settings.timing.idle_exit;
        let streams = match idle_exit.filter(|_| never_idle != ports) {
            None => "streams too".to_owned(),
            Some(idle_exit) => {
                let on = Some(never_idle.format()).filter(|on| !on.is_empty());
                let on = on.map_or_else(String::new, |on| format!(", on {on} to their end"));
                format!(
                    "streams until they are silent for {}{on}",
                    format(idle_exit)
                )
            }
        };
        let text = format!("{}: requests of HTTP/1 end, {streams}", ports.format());
        return ("ports", text);
    }
    let has_hints_alone = drainer.host_network || drainer.manager.is_some();
    let is_searched = drainer.admin_address.is_none() && !has_hints_alone;
    addresses.extend(is_searched.then(|| "found by the drainer".to_owned()));
    ("admin", addresses.join(", else "))
}

/// The rows of a plan: labels and texts.
fn plan_rows(plan: &DrainPlan, pod: &WorkloadResult) -> Vec<(&'static str, String)> {
    use EnvoyContainerSource::{Guess, Image, OnlyContainer};
    let (drainer, sidecar) = (&plan.drainer, plan.sidecar);
    let GracePeriod { from, to } = &plan.grace;
    let name = &plan.envoy.name;
    let kind = match plan.envoy.container_ref.list {
        ContainerList::Containers => "container",
        ContainerList::InitContainers => "init container",
    };
    let moved = if plan.is_envoy_moved { MOVED } else { "" };
    let envoy = format!("{kind} `{name}` ({}){moved}", plan.envoy.source);
    let (list, port) = (sidecar.container_list().key(), drainer.settings.port);
    let before = plan
        .is_before_envoy()
        .then(|| format!("before `{name}` in {list}"));
    let position = before.unwrap_or_else(|| format!("at the end of {list}"));
    let form = format!("{sidecar} {position}, listening on port {port}");
    let is_server = plan.is_of_server();
    let label = if is_server { "server" } else { "envoy" };
    let drained = if is_server { "the server" } else { "Envoy" };
    let grace = if from == to {
        format!("{from}s, which is enough")
    } else if plan.extra_hooks.is_empty() {
        format!("{from}s → {to}s, to cover the drain and {drained}'s own shutdown")
    } else {
        format!("{from}s → {to}s, to cover the drain and then the other containers' own shutdown")
    };
    let mut rows = vec![
        (label, envoy),
        describe_admin(plan, pod),
        ("drainer", form),
        ("grace", grace),
    ];
    rows.extend(plan.adopted.map(|ShutdownManager { product, versions, .. }| {
        let text = format!(
            "the container `shutdown-manager` of {product} ({versions}) is removed, and the preStop hook of `{name}` that calls it is replaced"
        );
        ("adopted", text)
    }));
    if !plan.added_args.is_empty() {
        let args = plan.added_args.join(" ");
        rows.push(("args", format!("{args} is added to the args of `{name}`")));
    }
    let hooks = plan.extra_hooks.iter().map(|hook| &*hook.container);
    rows.extend(hooks_row(hooks));
    if plan.replaced_hook.is_some() {
        let text = format!("the preStop hook of `{name}` is replaced by the drainer's");
        rows.push(("hook", text));
    }
    let weak = [Image, OnlyContainer, Guess].contains(&plan.envoy.source);
    let container = weak.then(|| format!("`envoy-container: {name}`"));
    let is_hint = drainer.host_network && drainer.admin_address.is_none();
    let address = is_hint.then(|| {
        "`admin-address`, since the drainer does not search on the node's network".to_owned()
    });
    let annotations: Vec<_> = container.into_iter().chain(address).collect();
    if !annotations.is_empty() {
        let text = format!("to be certain, annotate {}", annotations.join(" and "));
        rows.push(("assumed", text));
    }
    if plan.readiness_failure.is_none() {
        let text = format!(
            "`{name}` has no readiness probe: new pods get requests before it listens; docs/examples/deployment.yaml has one"
        );
        rows.push(("readiness", text));
    }
    if !drainer.readiness_probes.is_empty() {
        let probes = drainer.readiness_probes.iter();
        let probes = probes.map(|it| format!("port {} every {}s", it.port, it.period.as_secs()));
        let probes = probes.collect::<Vec<_>>().join(", ");
        let effect = "continue while the pod terminates, and do not postpone the exit";
        rows.push(("readiness", format!("probes of {probes} {effect}")));
    }
    rows
}

/// The row of the containers whose SIGTERM waits for the drain; `None` without any.
fn hooks_row<'a>(names: impl Iterator<Item = &'a str>) -> Option<(&'static str, String)> {
    let names: Vec<_> = names.collect();
    let verb = if names.len() == 1 { "gets" } else { "get" };
    let text = format!(
        "`{}` {verb} SIGTERM only after the drain",
        names.join("`, `")
    );
    (!names.is_empty()).then_some(("hooks", text))
}

/// Renders a pod of a cluster, as it runs.
fn render_running_pod(out: &mut PrintableText, pod: &RunningPod) {
    let (mark, color, text) = match (pod.has_drainer, pod.is_changed) {
        (true, false) => ("✔", AnsiColor::Green, "has a drainer"),
        (true, true) => (
            "!",
            AnsiColor::Yellow,
            "has a drainer, and may end without a drain",
        ),
        (false, _) => ("!", AnsiColor::Yellow, "has no drainer"),
    };
    push_title(out, mark, color, &pod.object);
    out.push(format_args!(" {text}"));
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
    let (config, recorded) = (&drainer.config, &drainer.recorded);
    let (sidecar, grace) = (drainer.sidecar, drainer.grace);
    let (list, port) = (drainer.sidecar.container_list().key(), config.settings.port);
    let form = format!("{sidecar} in {list}, listening on port {port}");
    let moved = recorded.envoy.map_or("", |_| MOVED);
    let envoy = format!("container `{}`{moved}", recorded.container);
    let envoy = (!recorded.container.is_empty()).then_some(("envoy", envoy));
    let admin = config.admin_address.iter().chain(&config.admin_hints);
    let admin = admin.map(ToString::to_string).collect();
    let rows = [
        source_row(config, admin),
        ("drainer", form),
        ("image", drainer.image.clone()),
        ("grace", format!("{grace}s")),
    ];
    let hooks = hooks_row(recorded.extra_hooks.iter().map(String::as_str));
    let rows = envoy.into_iter().chain(rows).chain(hooks);
    let is_listed = |setting: &&RunningSetting| {
        let is_row = ["admin-address", "port"].contains(&setting.name);
        let is_always_listed = ALWAYS_LISTED_SETTINGS.contains(&setting.name);
        is_always_listed || setting.annotation.is_some() || setting.is_changed && !is_row
    };
    let listed = drainer.settings.iter().filter(is_listed).map(|setting| {
        let source = match &setting.annotation {
            Some(annotation) if *annotation == setting.value => "annotation",
            Some(_) => "injected; the annotation differs",
            None => "injected",
        };
        let is_set = setting.annotation.is_some();
        (setting.name, &*setting.value, source.to_owned(), is_set)
    });
    let timeline = timeline(config, grace, &[], None, Prospect::Drain);
    render_drainer(out, rows, &listed.collect::<Vec<_>>(), &timeline);
}

/// The settings of a plan that are listed.
fn listed_settings(settings: &[SettingRow]) -> Vec<ListedSetting<'_>> {
    use SettingSource::{Annotation, NextFree, ShutdownManager};
    let is_set = |row: &SettingRow| matches!(row.source, Annotation | NextFree | ShutdownManager);
    let is_listed = |row: &&SettingRow| ALWAYS_LISTED_SETTINGS.contains(&row.name) || is_set(row);
    let listed = settings.iter().filter(is_listed).map(|row| {
        let source = match row.source {
            // Of the installation, or built in.
            SettingSource::Default => "default".to_owned(),
            source => source.to_string(),
        };
        (row.name, &*row.value, source, is_set(row))
    });
    listed.collect()
}

/// Renders what is known of a drainer: labels and texts, the table of settings, and the timeline.
fn render_drainer(
    out: &mut PrintableText,
    rows: impl IntoIterator<Item = (&'static str, String)>,
    settings: &[ListedSetting<'_>],
    timeline: &[TimelineEvent],
) {
    out.end_line();
    for (label, text) in rows {
        out.push_row(Style::new().bold(), label, &text);
    }
    out.end_line();
    push_settings(out, settings);
    out.end_line();
    out.push_heading("when the pod is deleted");
    for TimelineEvent { at, text, .. } in timeline {
        out.push(format_args!("    {:>8}  ", format(*at).to_string()));
        out.push_wrapped(14, text);
    }
}

/// Prints the table of settings.
fn push_settings(out: &mut PrintableText, settings: &[ListedSetting<'_>]) {
    let lengths = settings.iter().map(|(_, value, ..)| value.len());
    let short = lengths.filter(|length| *length <= MAX_VALUE_WIDTH);
    let width = short.max().unwrap_or(0).max(8);
    let names = settings.iter().map(|(name, ..)| name.len());
    let name_width = names.max().unwrap_or(0).max(20);
    out.push_heading("settings");
    for (name, value, source, is_set) in settings {
        let dimmed = (!is_set).then(|| Style::new().dimmed());
        let style = dimmed.unwrap_or_default();
        let row = format!("    {name:<name_width$}{value:>width$}");
        if row.chars().count() + 2 + source.len() > *WIDTH {
            out.push(row);
            out.end_line();
            out.push("     ");
        } else {
            out.push(row);
        }
        out.push("  ");
        out.push_styled(style, source);
        out.end_line();
    }
}
