//! Whether an installation works, by all that was said of it.

use serde::Serialize;

use super::report::{Section, Severity};

/// Whether an installation works; in JSON `true`, `false` or `null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "Option<bool>")]
pub enum Health {
    /// It does.
    Healthy,
    /// Something does not.
    Unhealthy,
    /// That cannot be found out: something that decides could not be looked at.
    Unknown,
}

// === impl Health ===

impl Health {
    /// Sums up. What is known not to work outweighs what is not known.
    #[must_use]
    pub fn of(sections: &[Section]) -> Self {
        let points = || sections.iter().flat_map(|section| &section.results);
        if points().any(|point| point.severity == Severity::Error) {
            Self::Unhealthy
        } else if points().any(|point| point.severity == Severity::Unknown && point.is_blocking) {
            Self::Unknown
        } else {
            Self::Healthy
        }
    }
}

impl From<Health> for Option<bool> {
    fn from(works: Health) -> Self {
        match works {
            Health::Healthy => Some(true),
            Health::Unhealthy => Some(false),
            Health::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::check::CheckResult;
    use crate::kubernetes::{ApiCall, ReadError};

    #[test]
    fn an_installation_works_if_nothing_speaks_against_it_and_what_decides_was_seen() {
        let unseen = ReadError::Forbidden(ApiCall {
            verb: "list",
            resource: "nodes",
            namespace: None,
        });
        let ok = || CheckResult::ok("a", "");
        let warning = || CheckResult::warning("b", "");
        let error = || CheckResult::error("c", "");
        let unknown = || CheckResult::unknown("d", "it", &unseen);
        let undecided = || CheckResult::unknown_blocking("e", "it", &unseen);
        let table = [
            (vec![ok()], json!(true)),
            (vec![ok(), warning(), unknown()], json!(true)),
            (vec![ok(), undecided()], json!(null)),
            (vec![undecided(), warning(), unknown()], json!(null)),
            (vec![undecided(), error()], json!(false)),
            (vec![error(), ok()], json!(false)),
        ];
        for (points, want) in table {
            // However they are spread over sections.
            let one = |point: &CheckResult| Section {
                name: "s",
                results: vec![point.clone()],
            };
            let apart: Vec<_> = points.iter().map(one).collect();
            let together = [Section {
                name: "s",
                results: points,
            }];
            for sections in [&apart[..], &together] {
                assert_eq!(json!(Health::of(sections)), want, "{sections:?}");
            }
        }
    }
}
