//! The results of `check`, as text and JSON. The fields' names in JSON and their values are stable.

use std::fmt::Display;

use anstyle::AnsiColor::{Cyan, Green, Red, Yellow};
use anstyle::Style;
use kubernetes::ReadError;
use serde::Serialize;

use crate::object_name::ObjectName;
use crate::text::{PrintableText, plural};

/// The column in which messages begin.
const MESSAGE_COLUMN: usize = 4;

/// How many results with the same check and severity are listed; the rest is counted.
const MAX_LISTED: usize = 20;

/// The results of one topic.
#[derive(Debug, Serialize)]
pub struct Section {
    pub name: &'static str,
    /// In the order in which they are printed.
    pub results: Vec<CheckResult>,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    /// The check; several results may have one name, each about another object.
    pub name: &'static str,
    /// The severity of the finding.
    pub severity: Severity,
    /// True if the installation's health is unknown while this is.
    #[serde(skip)]
    pub is_blocking: bool,
    /// The workload whose restart is all that is to be done.
    #[serde(skip)]
    pub restart: Option<ObjectName>,
    /// The object in question; `null` for the installation as a whole.
    pub subject: Option<ObjectName>,
    pub message: String,
    /// What to do about it.
    pub remedy: Option<String>,
    /// The commands that do it, in order.
    pub commands: Vec<String>,
}

/// How severe a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// The installation works, but perhaps not as expected.
    Warning,
    /// Something does not work.
    Error,
    /// The objects to check could not be read.
    Unknown,
}

/// Sums up all results; `None` if a blocking check is unknown, unless there is an error.
pub fn is_healthy(sections: &[Section]) -> Option<bool> {
    let results = || sections.iter().flat_map(|section| &section.results);
    let has_error = results().any(|result| result.severity == Severity::Error);
    let is_unknown = !has_error && results().any(|result| result.is_blocking);
    (!is_unknown).then_some(!has_error)
}

/// The last line: whether the installation works, and the counts.
pub(crate) fn summary(sections: &[Section], styled: bool) -> PrintableText {
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
    let counts = counts.map(|(count, noun, end)| plural(count, noun) + end);
    let counts: Vec<_> = counts.collect();
    let (color, summary) = match is_healthy(sections) {
        Some(true) if unknown == 0 => (Green, "envoy-drainer works"),
        Some(true) => (Green, "envoy-drainer works, as far as could be read"),
        Some(false) => (Red, "envoy-drainer does not work"),
        None => (
            Cyan,
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

// === impl Section ===

impl Section {
    pub(crate) fn new(name: &'static str, results: Vec<CheckResult>) -> Self {
        Self { name, results }
    }

    /// Its text, with an empty line at its end.
    pub(crate) fn to_text(&self, styled: bool) -> PrintableText {
        let mut out = PrintableText::new(styled);
        out.push_styled(Style::new().bold(), self.name);
        out.end_line();
        let is_same_group = |one: &CheckResult, other: &CheckResult| {
            (one.name, one.severity) == (other.name, other.severity)
        };
        for group in self.results.chunk_by(is_same_group) {
            for result in group.iter().take(MAX_LISTED) {
                result.push_to(&mut out);
            }
            if group.len() > MAX_LISTED {
                let more = group.len() - MAX_LISTED;
                let more = format!("    … and {more} more, listed by `-o json`");
                out.push_wrapped(MESSAGE_COLUMN, &more);
            }
        }
        out.end("\n\n")
    }
}

// === impl CheckResult ===

impl CheckResult {
    /// A check that passed.
    pub fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Severity::Ok, message.into())
    }

    /// A finding that may be unexpected.
    pub fn warning(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Severity::Warning, message.into())
    }

    /// Something that does not work.
    pub fn error(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Severity::Error, message.into())
    }

    /// A check whose objects could not be read. `what` is a clause, such as `whether it runs`.
    pub fn unknown(name: &'static str, what: impl Display, error: &ReadError) -> Self {
        let message = format!("{what} is unknown: {error}");
        Self::new(name, Severity::Unknown, message)
    }

    /// The same for a check without which the installation's health is unknown.
    pub fn unknown_blocking(name: &'static str, what: impl Display, error: &ReadError) -> Self {
        let mut result = Self::unknown(name, what, error);
        result.is_blocking = true;
        result
    }

    fn new(name: &'static str, severity: Severity, message: String) -> Self {
        Self {
            name,
            severity,
            is_blocking: false,
            restart: None,
            subject: None,
            message,
            remedy: None,
            commands: Vec::new(),
        }
    }

    #[must_use]
    pub fn with_subject(mut self, subject: ObjectName) -> Self {
        self.subject = Some(subject);
        self
    }

    /// With the subject of this kind, if there is only one.
    #[must_use]
    pub(super) fn with_only_subject(self, kind: &str, names: &[impl AsRef<str>]) -> Self {
        match names {
            [name] => self.with_subject(ObjectName::cluster_scoped(kind, name.as_ref())),
            _ => self,
        }
    }

    #[must_use]
    pub fn with_remedy(self, remedy: impl Into<String>) -> Self {
        self.with_optional_remedy(Some(remedy))
    }

    #[must_use]
    pub fn with_optional_remedy(mut self, remedy: Option<impl Into<String>>) -> Self {
        self.remedy = remedy.map(Into::into);
        self
    }

    #[must_use]
    pub fn with_command(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }

    fn push_to(&self, out: &mut PrintableText) {
        let (mark, color) = match self.severity {
            Severity::Ok => ("✔", Green),
            Severity::Warning => ("!", Yellow),
            Severity::Error => ("✘", Red),
            Severity::Unknown => ("?", Cyan),
        };
        out.push("  ");
        out.push_styled(color.on_default(), mark);
        out.push(" ");
        out.push_wrapped(MESSAGE_COLUMN, &self.message);
        if let Some(remedy) = &self.remedy {
            out.push("    → ");
            out.push_wrapped(MESSAGE_COLUMN + 2, remedy);
        }
        for command in &self.commands {
            // Not wrapped, to be copied.
            out.push("      ");
            out.push_styled(Style::new().bold(), command);
            out.end_line();
        }
    }
}

#[cfg(test)]
mod tests {
    use kubernetes::api_call;
    use serde_json::json;

    use super::*;

    #[test]
    fn health_is_null_while_blocking_check_is_unknown() {
        let error = ReadError::Forbidden(api_call("list", "nodes", None));
        let ok = || CheckResult::ok("a", "");
        let warning = || CheckResult::warning("b", "");
        let failed = || CheckResult::error("c", "");
        let unknown = || CheckResult::unknown("d", "it", &error);
        let blocking = || CheckResult::unknown_blocking("e", "it", &error);
        let table = [
            (vec![ok()], json!(true)),
            (vec![ok(), warning(), unknown()], json!(true)),
            (vec![ok(), blocking()], json!(null)),
            (vec![blocking(), warning(), unknown()], json!(null)),
            (vec![blocking(), failed()], json!(false)),
            (vec![failed(), ok()], json!(false)),
        ];
        for (results, want) in table {
            // However they are spread over sections.
            let one = |result: &CheckResult| Section {
                name: "s",
                results: vec![result.clone()],
            };
            let apart: Vec<_> = results.iter().map(one).collect();
            let together = [Section { name: "s", results }];
            for sections in [&apart[..], &together] {
                assert_eq!(json!(is_healthy(sections)), want, "{sections:?}");
            }
        }
    }

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
        let text = section(results).to_text(false).to_string();
        assert_eq!(
            text.matches("  ! no drainer\n    → roll it\n").count(),
            MAX_LISTED
        );
        assert!(
            text.ends_with("    … and 2 more, listed by `-o json`\n\n"),
            "{text}"
        );
        let text = section(vec![warning; MAX_LISTED])
            .to_text(false)
            .to_string();
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
            assert_eq!(&*summary(&sections, false), want);
        }
    }

    #[test]
    fn commands_are_never_wrapped() {
        let command = ["kubectl"; 20].join(" ");
        let result = CheckResult::error("a", "wrong").with_command(&*command);
        let text = section(vec![result]).to_text(false).to_string();
        assert!(text.contains(&command), "{text}");
    }
}
