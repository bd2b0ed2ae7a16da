//! Whether an installation works, by all that was said of it.

use serde::Serialize;

use super::point::{Mark, Section};

/// Whether an installation works; in JSON `true`, `false` or `null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "Option<bool>")]
pub enum Works {
    /// It does.
    Yes,
    /// Something does not.
    No,
    /// That cannot be found out: something that decides could not be looked at.
    Unknown,
}

// === impl Works ===

impl Works {
    /// Sums up. What is known not to work outweighs what is not known.
    #[must_use]
    pub fn of(sections: &[Section]) -> Self {
        let points = || sections.iter().flat_map(|section| &section.points);
        if points().any(|point| point.mark == Mark::Error) {
            Self::No
        } else if points().any(|point| point.mark == Mark::Unknown && point.decides) {
            Self::Unknown
        } else {
            Self::Yes
        }
    }
}

impl From<Works> for Option<bool> {
    fn from(works: Works) -> Self {
        match works {
            Works::Yes => Some(true),
            Works::No => Some(false),
            Works::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::check::Point;
    use crate::kubernetes::{Call, Unseen};

    #[test]
    fn an_installation_works_if_nothing_speaks_against_it_and_what_decides_was_seen() {
        let unseen = Unseen::Forbidden(Call {
            verb: "list",
            resource: "nodes",
            namespace: None,
        });
        let ok = || Point::ok("a", "");
        let warning = || Point::warning("b", "");
        let error = || Point::error("c", "");
        let unknown = || Point::unknown("d", "it", &unseen);
        let undecided = || Point::undecided("e", "it", &unseen);
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
            let one = |point: &Point| Section {
                name: "s",
                points: vec![point.clone()],
            };
            let apart: Vec<_> = points.iter().map(one).collect();
            let together = [Section { name: "s", points }];
            for sections in [&apart[..], &together] {
                assert_eq!(json!(Works::of(sections)), want, "{sections:?}");
            }
        }
    }
}
