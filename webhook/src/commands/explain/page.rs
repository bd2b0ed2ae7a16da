//! Explanations for a person's eyes.

use anstyle::{AnsiColor, Style};
use drainer::duration::plain;

use super::end::Moment;
use super::explanation::{Explanation, Outcome, Plan, Reason};
use super::settings::{Settings, Value};
use crate::admission::annotations::INJECT;
use crate::admission::{Grace, List, Source};
use crate::commands::sheet::Sheet;

/// The settings that are told even if nobody set them.
const TIMINGS: [&str; 5] = [
    "drain-delay",
    "min-drain-duration",
    "drain-timeout",
    "idle-exit",
    "quiet-period",
];

/// A column of values is no wider, so that one long list of listeners does not push the others away.
const LONGEST_VALUE: usize = 40;

/// Explanations as text, with styles or without; empty if there are none.
pub(super) fn page(explained: &[Explanation], styled: bool) -> String {
    if explained.is_empty() {
        return String::new();
    }
    let mut sheet = Sheet::new(styled);
    for explanation in explained {
        pod(&mut sheet, explanation);
        sheet.end_line();
    }
    let decided = |explanation: &Explanation| {
        explanation.outcome != Outcome::NotAsked || explanation.declines
    };
    if !explained.iter().any(decided) {
        let hint =
            format!("To ask for a drainer, annotate the pod template with {INJECT}: \"true\".");
        sheet.wrapped(0, &hint);
    }
    sheet.into_text()
}

fn pod(sheet: &mut Sheet, explanation: &Explanation) {
    let Explanation {
        file,
        line,
        kind,
        namespace,
        name,
        outcome,
        reasons: why,
        warnings,
        plan,
        declines: _,
    } = explanation;
    let (mark, colour, said) = match outcome {
        Outcome::Injected => ("✔", AnsiColor::Green, "gets a drainer"),
        Outcome::Skipped => ("!", AnsiColor::Yellow, "gets no drainer"),
        Outcome::Unchanged => (
            "!",
            AnsiColor::Yellow,
            "gets no drainer: its document stays as it is",
        ),
        Outcome::Refused => ("✘", AnsiColor::Red, "is refused"),
        Outcome::NotAsked => ("·", AnsiColor::White, "does not ask for a drainer"),
    };
    let namespace = namespace.as_ref().map(|namespace| format!("{namespace}/"));
    let object = format!("{kind} {}{name}", namespace.unwrap_or_default());
    sheet.styled(colour.on_default(), mark);
    sheet.push(" ");
    sheet.styled(Style::new().bold(), &object);
    sheet.push(&format!(" {said}  "));
    sheet.styled(Style::new().dimmed(), &format!("{file}:{line}"));
    sheet.end_line();
    reasons(sheet, *line, why, colour);
    if let Some(plan) = plan {
        sheet.end_line();
        for (label, text) in facts(plan) {
            sheet.row(Style::new().bold(), label, &text);
        }
        sheet.end_line();
        settings(sheet, &plan.settings);
        sheet.end_line();
        end(sheet, &plan.end);
    }
    reasons(sheet, *line, warnings, AnsiColor::Yellow);
}

/// Reasons, with their lines where these are not the pod's.
fn reasons(sheet: &mut Sheet, pods_line: usize, reasons: &[Reason], colour: AnsiColor) {
    for Reason {
        code,
        line,
        message,
        remedy,
    } in reasons
    {
        sheet.end_line();
        let message = match *line == pods_line {
            true => message.clone(),
            false => format!("line {line}: {message}"),
        };
        sheet.row(colour.on_default(), code, &message);
        if let Some(remedy) = remedy {
            sheet.row(Style::new(), "", &format!("→ {remedy}"));
        }
    }
}

/// What was found and what comes of it, in a few words each.
fn facts(plan: &Plan) -> Vec<(&'static str, String)> {
    let Plan {
        envoy,
        admin,
        drainer,
        grace: Grace { from, to },
        replaces_hook,
        readiness_probes,
        ..
    } = plan;
    let name = &envoy.container;
    let kind = match envoy.place {
        List::Containers => "container",
        List::InitContainers => "init container",
    };
    let place = match &drainer.before {
        Some(before) => format!("before `{before}` in {}", drainer.list),
        None => format!("at the end of {}", drainer.list),
    };
    let grace = match from == to {
        true => format!("{from}s, which is enough"),
        false => format!("{from}s → {to}s, so that the drain and Envoy's own end fit in"),
    };
    let mut facts = vec![
        ("envoy", format!("{kind} `{name}` ({})", envoy.how)),
        ("admin", format!("{} ({})", admin.address, admin.how)),
        (
            "drainer",
            format!(
                "{} {place}, listening on port {}",
                drainer.form, drainer.port
            ),
        ),
        ("grace", grace),
    ];
    if *replaces_hook {
        let text = format!("the preStop hook of `{name}` makes way for the drainer's");
        facts.push(("hook", text));
    }
    if !readiness_probes.is_empty() {
        let probes: Vec<_> = readiness_probes
            .iter()
            .map(|probe| format!("port {} every {}s", probe.port, probe.period_seconds))
            .collect();
        let text = format!(
            "probes of {} go on while the pod ends, and do not keep it from ending",
            probes.join(", ")
        );
        facts.push(("readiness", text));
    }
    facts
}

fn settings(sheet: &mut Sheet, Settings(settings): &Settings) {
    let told: Vec<_> = settings
        .iter()
        .filter(|(name, Value { from, .. })| {
            TIMINGS.contains(name) || matches!(from, Source::Annotation | Source::NextFree)
        })
        .collect();
    let lengths = told.iter().map(|(_, Value { value, .. })| value.len());
    let width = lengths.max().unwrap_or(0).clamp(8, LONGEST_VALUE);
    sheet.heading("settings");
    for (name, Value { value, from, .. }) in told {
        let style = match from {
            Source::Annotation | Source::NextFree => Style::new(),
            Source::Default | Source::JobDefault => Style::new().dimmed(),
        };
        sheet.push(&format!("    {name:<20}{value:>width$}  "));
        sheet.styled(style, &from.to_string());
        sheet.end_line();
    }
}

fn end(sheet: &mut Sheet, moments: &[Moment]) {
    sheet.heading("when the pod is deleted");
    for Moment { at, text, .. } in moments {
        sheet.push(&format!("    {:>8}  ", plain(*at).to_string()));
        sheet.wrapped(14, text);
    }
}
