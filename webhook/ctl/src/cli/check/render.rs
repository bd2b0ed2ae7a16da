//! Renders results as text.

use anstyle::{AnsiColor, Style};

use crate::check::{CheckResult, Health, Section, Severity};
use crate::text::{PrintableText, plural};

/// The column in which messages begin.
const MESSAGE_COLUMN: usize = 4;

/// How many results with the same check and severity are listed; the rest is counted.
const MAX_LISTED: usize = 20;

/// Renders a section, with an empty line at its end.
pub(super) fn render_section(section: &Section, styled: bool) -> PrintableText {
    let mut out = PrintableText::new(styled);
    out.push_styled(Style::new().bold(), section.name);
    out.end_line();
    let is_same_group = |one: &CheckResult, other: &CheckResult| {
        (one.name, one.severity) == (other.name, other.severity)
    };
    for group in section.results.chunk_by(is_same_group) {
        for result in group.iter().take(MAX_LISTED) {
            push_result(&mut out, result);
        }
        if group.len() > MAX_LISTED {
            let more = group.len() - MAX_LISTED;
            let more = format!("    … and {more} more, listed by `-o json`");
            out.push_wrapped(MESSAGE_COLUMN, &more);
        }
    }
    out.end("\n\n")
}

/// Renders the last line: whether it works, and the counts.
pub(super) fn render_summary(health: Health, sections: &[Section], styled: bool) -> PrintableText {
    let count = |severity: Severity| {
        let results = sections.iter().flat_map(|section| &section.results);
        results.filter(|result| result.severity == severity).count()
    };
    let unknown = count(Severity::Unknown);
    let counts = [
        (count(Severity::Error), "error", ""),
        (count(Severity::Warning), "warning", ""),
        (unknown, "check", " without result"),
    ];
    let counts = counts.into_iter().filter(|(count, ..)| *count > 0);
    let counts: Vec<_> = counts
        .map(|(count, noun, end)| plural(count, noun) + end)
        .collect();
    let (color, summary) = match health {
        Health::Healthy if unknown == 0 => (AnsiColor::Green, "envoy-drainer works"),
        Health::Healthy => (
            AnsiColor::Green,
            "envoy-drainer works, as far as could be read",
        ),
        Health::Unhealthy => (AnsiColor::Red, "envoy-drainer does not work"),
        Health::Unknown => (
            AnsiColor::Cyan,
            "unknown whether envoy-drainer works: some required objects could not be read",
        ),
    };
    let mut out = PrintableText::new(styled);
    out.push_styled(color.on_default().bold(), summary);
    if !counts.is_empty() {
        out.push(format_args!(" ({})", counts.join(", ")));
    }
    out.end("\n")
}

fn push_result(out: &mut PrintableText, result: &CheckResult) {
    let (mark, color) = match result.severity {
        Severity::Ok => ("✔", AnsiColor::Green),
        Severity::Warning => ("!", AnsiColor::Yellow),
        Severity::Error => ("✘", AnsiColor::Red),
        Severity::Unknown => ("?", AnsiColor::Cyan),
    };
    out.push("  ");
    out.push_styled(color.on_default(), mark);
    out.push(" ");
    out.push_wrapped(MESSAGE_COLUMN, &result.message);
    if let Some(remedy) = &result.remedy {
        out.push("    → ");
        out.push_wrapped(MESSAGE_COLUMN + 2, remedy);
    }
    for command in &result.commands {
        // Not wrapped, to be copied.
        out.push("      ");
        out.push_styled(Style::new().bold(), command);
        out.end_line();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(results: Vec<CheckResult>) -> Section {
        Section {
            name: "pods",
            results,
        }
    }

    #[test]
    fn results_beyond_the_limit_are_counted() {
        let mut results = vec![CheckResult::ok("injected", "1 pod has a drainer")];
        let warning = CheckResult::warning("without-drainer", "no drainer").with_remedy("roll it");
        results.extend(vec![warning.clone(); MAX_LISTED + 2]);
        let text = render_section(&section(results), false).to_string();
        assert_eq!(
            text.matches("  ! no drainer\n    → roll it\n").count(),
            MAX_LISTED
        );
        assert!(
            text.ends_with("    … and 2 more, listed by `-o json`\n\n"),
            "{text}"
        );
        let text = render_section(&section(vec![warning; MAX_LISTED]), false).to_string();
        assert!(!text.contains('…'), "{text}");
    }

    #[test]
    fn summary_counts_findings_by_severity() {
        let (ok, warning, error) = (CheckResult::ok, CheckResult::warning, CheckResult::error);
        let unknown = CheckResult {
            severity: Severity::Unknown,
            ..ok("d", "")
        };
        let blocking = CheckResult {
            is_blocking: true,
            ..unknown.clone()
        };
        let table = [
            (vec![ok("a", "")], "envoy-drainer works\n"),
            (
                vec![ok("a", ""), warning("b", "")],
                "envoy-drainer works (1 warning)\n",
            ),
            (
                vec![warning("b", ""), unknown.clone()],
                "envoy-drainer works, as far as could be read (1 warning, 1 check without result)\n",
            ),
            (
                vec![ok("a", ""), blocking, unknown.clone()],
                "unknown whether envoy-drainer works: some required objects could not be read (2 checks without result)\n",
            ),
            (
                vec![error("c", ""), error("c", ""), unknown],
                "envoy-drainer does not work (2 errors, 1 check without result)\n",
            ),
        ];
        for (results, want) in table {
            let sections = [section(results)];
            let health = Health::of(&sections);
            assert_eq!(&*render_summary(health, &sections, false), want);
        }
    }

    #[test]
    fn commands_are_never_wrapped() {
        let command = ["kubectl"; 20].join(" ");
        let result = CheckResult::error("a", "wrong").with_command(&*command);
        let text = render_section(&section(vec![result]), false).to_string();
        assert!(text.contains(&command), "{text}");
    }
}
