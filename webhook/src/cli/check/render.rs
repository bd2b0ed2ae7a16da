//! Points for a person's eyes.

use anstyle::{AnsiColor, Style};

use crate::check::{CheckResult, Health, Section, Severity};
use crate::cli::terminal::TextWriter;

/// Where the text of a point begins.
const MESSAGE_COLUMN: usize = 4;

/// So many points of one name that are not well are shown; the rest is counted.
const MAX_LISTED: usize = 20;

/// A page that grows.
pub(super) struct CheckRenderer {
    styled: bool,
}

// === impl CheckRenderer ===

impl CheckRenderer {
    pub(super) fn new(styled: bool) -> Self {
        Self { styled }
    }

    /// The text of one more section, an empty line at its end.
    pub(super) fn section(&self, section: &Section) -> String {
        let mut out = TextWriter::new(self.styled);
        out.push_styled(Style::new().bold(), section.name);
        out.end_line();
        let mut rest = &section.results[..];
        while let [first, ..] = rest {
            let alike = rest
                .iter()
                .take_while(|point| is_same_check(point, first))
                .count();
            let (group, others) = rest.split_at(alike);
            rest = others;
            for shown in group.iter().take(MAX_LISTED) {
                push_result(&mut out, shown);
            }
            if let Some(more) = group.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
                out.push_wrapped(
                    MESSAGE_COLUMN,
                    &format!("    … and {more} more, which `-o json` shows"),
                );
            }
        }
        out.into_text() + "\n"
    }

    /// The last line.
    pub(super) fn summary(&self, works: Health, sections: &[Section]) -> String {
        let points = || sections.iter().flat_map(|section| &section.results);
        let many = |mark: Severity| points().filter(|point| point.severity == mark).count();
        let said = |many: usize, what: &str| match many {
            0 => None,
            1 => Some(format!("1 {what}")),
            many => Some(format!("{many} {what}s")),
        };
        let unknown = many(Severity::Unknown);
        let counts = [
            said(many(Severity::Error), "error"),
            said(many(Severity::Warning), "warning"),
            said(unknown, "point").map(|points| format!("{points} unknown")),
        ];
        let counts: Vec<_> = counts.into_iter().flatten().collect();
        let counts = match &counts[..] {
            [] => String::new(),
            counts => format!(": {}", counts.join(", ")),
        };
        let (colour, verdict) = match (works, unknown) {
            (Health::Healthy, 0) => (AnsiColor::Green, "envoy-drainer works"),
            (Health::Healthy, _) => (
                AnsiColor::Green,
                "envoy-drainer works, as far as it can be seen",
            ),
            (Health::Unhealthy, _) => (AnsiColor::Red, "envoy-drainer does not work"),
            (Health::Unknown, _) => (
                AnsiColor::Cyan,
                "whether envoy-drainer works cannot be found out",
            ),
        };
        let mut out = TextWriter::new(self.styled);
        out.push_styled(colour.on_default().bold(), verdict);
        out.push(&counts);
        out.into_text()
    }
}

fn is_same_check(one: &CheckResult, other: &CheckResult) -> bool {
    (one.name, one.severity) == (other.name, other.severity)
}

fn push_result(out: &mut TextWriter, result: &CheckResult) {
    let CheckResult {
        name: _,
        severity: mark,
        is_blocking: _,
        subject: _,
        message,
        remedy,
        commands,
    } = result;
    let (mark, colour) = match mark {
        Severity::Ok => ("✔", AnsiColor::Green),
        Severity::Warning => ("!", AnsiColor::Yellow),
        Severity::Error => ("✘", AnsiColor::Red),
        Severity::Unknown => ("?", AnsiColor::Cyan),
    };
    out.push("  ");
    out.push_styled(colour.on_default(), mark);
    out.push(" ");
    out.push_wrapped(MESSAGE_COLUMN, message);
    if let Some(remedy) = remedy {
        out.push("    → ");
        out.push_wrapped(MESSAGE_COLUMN + 2, remedy);
    }
    for command in commands {
        // Not wrapped: it is copied.
        out.push("      ");
        out.push_styled(Style::new().bold(), command);
        out.end_line();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(points: Vec<CheckResult>) -> Section {
        Section {
            name: "pods",
            results: points,
        }
    }

    #[test]
    fn of_many_points_alike_a_few_are_shown_and_the_rest_is_counted() {
        let mut points = vec![CheckResult::ok("injected", "1 pod has a drainer")];
        let warning = CheckResult::warning("without-drainer", "no drainer").remedy("roll it");
        points.extend(vec![warning.clone(); MAX_LISTED + 2]);
        let text = CheckRenderer::new(false).section(&section(points));
        assert_eq!(
            text.matches("  ! no drainer\n    → roll it\n").count(),
            MAX_LISTED
        );
        assert!(
            text.ends_with("    … and 2 more, which `-o json` shows\n\n"),
            "{text}"
        );
        let text = CheckRenderer::new(false).section(&section(vec![warning; MAX_LISTED]));
        assert!(!text.contains('…'), "{text}");
    }

    #[test]
    fn the_last_line_sums_up() {
        let (ok, warning, error) = (CheckResult::ok, CheckResult::warning, CheckResult::error);
        let unknown = CheckResult {
            severity: Severity::Unknown,
            ..ok("d", "")
        };
        let undecided = CheckResult {
            is_blocking: true,
            ..unknown.clone()
        };
        let table = [
            (vec![ok("a", "")], "envoy-drainer works\n"),
            (
                vec![ok("a", ""), warning("b", "")],
                "envoy-drainer works: 1 warning\n",
            ),
            (
                vec![warning("b", ""), unknown.clone()],
                "envoy-drainer works, as far as it can be seen: 1 warning, 1 point unknown\n",
            ),
            (
                vec![ok("a", ""), undecided, unknown.clone()],
                "whether envoy-drainer works cannot be found out: 2 points unknown\n",
            ),
            (
                vec![error("c", ""), error("c", ""), unknown],
                "envoy-drainer does not work: 2 errors, 1 point unknown\n",
            ),
        ];
        for (points, want) in table {
            let sections = [section(points)];
            let works = Health::of(&sections);
            assert_eq!(CheckRenderer::new(false).summary(works, &sections), want);
        }
    }

    #[test]
    fn commands_are_never_wrapped() {
        let command = ["kubectl"; 20].join(" ");
        let point = CheckResult::error("a", "wrong").command(&*command);
        let text = CheckRenderer::new(false).section(&section(vec![point]));
        assert!(text.contains(&command), "{text}");
    }
}
