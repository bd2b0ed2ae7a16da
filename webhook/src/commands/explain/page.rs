//! Explanations for a person's eyes.

use std::iter;

use anstyle::{AnsiColor, Style};
use drainer::duration::display;

use super::explanation::{Explanation, Outcome, Plan, Reason, Settings, Value};
use crate::admission::Grace;
use crate::admission::annotations::INJECT;

/// No line is longer, unless one word is.
const WIDTH: usize = 92;

/// Where the text of a labelled row begins.
const TEXT_COLUMN: usize = 12;

/// The settings that are told even if nobody set them.
const TIMINGS: [&str; 5] = [
    "drain-delay",
    "min-drain-duration",
    "drain-timeout",
    "idle-exit",
    "quiet-period",
];

/// Explanations as text, with styles or without.
pub(super) fn page(explained: &[Explanation], styled: bool) -> String {
    let mut page = Page {
        text: String::new(),
        styled,
    };
    for explanation in explained {
        page.explanation(explanation);
        page.text.push('\n');
    }
    if explained.is_empty() {
        return page.text;
    }
    if explained.iter().all(|one| one.outcome == Outcome::NotAsked) {
        let hint =
            format!("To ask for a drainer, annotate the pod template with {INJECT}: \"true\".");
        page.wrapped(0, &hint);
    }
    page.text.truncate(page.text.trim_end().len());
    page.text.push('\n');
    page.text
}

struct Page {
    text: String,
    styled: bool,
}

// === impl Page ===

impl Page {
    fn explanation(&mut self, explanation: &Explanation) {
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
        } = explanation;
        let (mark, colour, said) = match outcome {
            Outcome::Injected => ("✔", AnsiColor::Green, "gets a drainer"),
            Outcome::Skipped => ("!", AnsiColor::Yellow, "gets no drainer"),
            Outcome::Refused => ("✘", AnsiColor::Red, "is refused"),
            Outcome::NotAsked => ("·", AnsiColor::White, "does not ask for a drainer"),
        };
        let namespace = namespace.as_ref().map(|namespace| format!("{namespace}/"));
        self.styled(colour.on_default(), mark);
        self.text.push(' ');
        self.styled(
            Style::new().bold(),
            &format!("{kind} {}{name}", namespace.unwrap_or_default()),
        );
        self.text.push_str(&format!(" {said}  "));
        self.styled(Style::new().dimmed(), &format!("{file}:{line}"));
        self.text.push('\n');
        self.reasons(reasons, colour);
        if let Some(plan) = plan {
            self.plan(plan);
        }
        self.reasons(warnings, AnsiColor::Yellow);
    }

    fn reasons(&mut self, reasons: &[Reason], colour: AnsiColor) {
        for reason in reasons {
            self.text.push('\n');
            let code = reason.code.as_deref().unwrap_or("invalid");
            self.row(colour.on_default(), code, &reason.message);
            if let Some(remedy) = reason.remedy {
                self.row(Style::new(), "", &format!("→ {remedy}"));
            }
        }
    }

    fn plan(&mut self, plan: &Plan) {
        let Plan {
            envoy,
            admin,
            drainer,
            grace,
            replaces_hook,
            readiness_probes,
            settings: Settings(settings),
            end,
        } = plan;
        let heading = Style::new().bold();
        let name = &envoy.container;
        self.text.push('\n');
        let kind = match envoy.list {
            "initContainers" => "init container",
            _ => "container",
        };
        self.row(
            heading,
            "envoy",
            &format!("{kind} `{name}` ({})", envoy.how),
        );
        self.row(
            heading,
            "admin",
            &format!("{} ({})", admin.address, admin.how),
        );
        let place = match &drainer.before {
            Some(before) => format!("before `{before}` in {}", drainer.list),
            None => format!("at the end of {}", drainer.list),
        };
        let (form, port) = (drainer.form, drainer.port);
        self.row(
            heading,
            "drainer",
            &format!("{form} {place}, listening on port {port}"),
        );
        if *replaces_hook {
            self.row(
                heading,
                "hook",
                &format!("the preStop hook of `{name}` makes way for the drainer's"),
            );
        }
        let Grace { from, to } = grace;
        let grace = match from == to {
            true => format!("{from} s, which is enough"),
            false => format!("{from} s → {to} s, so that the drain and Envoy's own end fit in"),
        };
        self.row(heading, "grace", &grace);
        if !readiness_probes.is_empty() {
            let probes: Vec<_> = readiness_probes
                .iter()
                .map(|probe| format!("port {} every {} s", probe.port, probe.period_seconds))
                .collect();
            let probes = probes.join(", ");
            self.row(
                heading,
                "readiness",
                &format!("{probes}: no clients, and not counted as new ones"),
            );
        }

        self.text.push('\n');
        self.heading("settings");
        for (name, Value { value, source }) in settings {
            let is_default = *source != "annotation";
            if is_default && !TIMINGS.contains(name) {
                continue;
            }
            self.text.push_str(&format!("    {name:<20}{value:>8}  "));
            let style = if is_default {
                Style::new().dimmed()
            } else {
                Style::new()
            };
            self.styled(style, source);
            self.text.push('\n');
        }

        self.text.push('\n');
        self.heading("when the pod is deleted");
        for moment in end {
            self.text
                .push_str(&format!("    {:>8}  ", display(moment.at).to_string()));
            self.wrapped(14, &moment.text);
        }
    }

    fn heading(&mut self, text: &str) {
        self.text.push_str("  ");
        self.styled(Style::new().bold(), text);
        self.text.push('\n');
    }

    /// A label and its text.
    fn row(&mut self, style: Style, label: &str, text: &str) {
        self.text.push_str("  ");
        self.styled(style, label);
        let gap = (TEXT_COLUMN - 2).saturating_sub(label.len());
        self.text.extend(iter::repeat_n(' ', gap));
        self.wrapped(TEXT_COLUMN, text);
    }

    /// The rest of a line that began in `column`, and more lines in the same column as needed.
    fn wrapped(&mut self, column: usize, text: &str) {
        let mut end = column;
        for (nth, word) in text.split(' ').enumerate() {
            let width = word.chars().count();
            if nth > 0 && end + 1 + width > WIDTH {
                self.text.push('\n');
                self.text.extend(iter::repeat_n(' ', column));
                end = column;
            } else if nth > 0 {
                self.text.push(' ');
                end += 1;
            }
            self.text.push_str(word);
            end += width;
        }
        self.text.push('\n');
    }

    fn styled(&mut self, style: Style, text: &str) {
        let style = if self.styled { style } else { Style::new() };
        self.text.push_str(&format!("{style}{text}{style:#}"));
    }
}
