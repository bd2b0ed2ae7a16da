//! The results of `check`. `check -o json` serializes these types, so the fields' names in JSON and
//! their values are stable.

use std::fmt::Display;

use serde::Serialize;

use crate::kubernetes::ReadError;
use crate::object_name::ObjectName;

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

/// Whether an installation works; in JSON `true`, `false` or `null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "Option<bool>")]
pub enum Health {
    /// It works.
    Healthy,
    /// Something does not work.
    Unhealthy,
    /// A blocking check is unknown.
    Unknown,
}

// === impl Section ===

impl Section {
    pub(crate) fn new(name: &'static str, results: Vec<CheckResult>) -> Self {
        Self { name, results }
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
}

// === impl Health ===

impl Health {
    /// Sums up all results: an error outweighs an unknown blocking check.
    pub fn of(sections: &[Section]) -> Self {
        let results = || sections.iter().flat_map(|section| &section.results);
        if results().any(|result| result.severity == Severity::Error) {
            Self::Unhealthy
        } else if results().any(|result| result.is_blocking) {
            Self::Unknown
        } else {
            Self::Healthy
        }
    }
}

impl From<Health> for Option<bool> {
    fn from(health: Health) -> Self {
        (health != Health::Unknown).then_some(health == Health::Healthy)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes::ApiCall;

    #[test]
    fn health_is_null_while_blocking_check_is_unknown() {
        let error = ReadError::Forbidden(ApiCall::new("list", "nodes", None));
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
                assert_eq!(json!(Health::of(sections)), want, "{sections:?}");
            }
        }
    }
}
