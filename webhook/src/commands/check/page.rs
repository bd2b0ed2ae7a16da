//! Points for a person's eyes.

use anstyle::{AnsiColor, Style};

use crate::check::{Mark, Point, Section, Works};
use crate::commands::sheet::Sheet;

/// Where the text of a point begins.
const TEXT_COLUMN: usize = 4;

/// So many points of one name that are not well are shown; the rest is counted.
const MANY: usize = 20;

/// A page that grows.
pub(super) struct Page {
    styled: bool,
}

// === impl Page ===

impl Page {
    pub(super) fn new(styled: bool) -> Self {
        Self { styled }
    }

    /// The text of one more section, an empty line at its end.
    pub(super) fn section(&self, section: &Section) -> String {
        let mut sheet = Sheet::new(self.styled);
        sheet.styled(Style::new().bold(), section.name);
        sheet.end_line();
        let mut rest = &section.points[..];
        while let [first, ..] = rest {
            let alike = rest
                .iter()
                .take_while(|point| is_like(point, first))
                .count();
            let (group, others) = rest.split_at(alike);
            rest = others;
            for shown in group.iter().take(MANY) {
                point(&mut sheet, shown);
            }
            if let Some(more) = group.len().checked_sub(MANY).filter(|more| *more > 0) {
                sheet.wrapped(
                    TEXT_COLUMN,
                    &format!("    … and {more} more, which `-o json` shows"),
                );
            }
        }
        sheet.into_text() + "\n"
    }

    /// The last line.
    pub(super) fn end(&self, works: Works, sections: &[Section]) -> String {
        let points = || sections.iter().flat_map(|section| &section.points);
        let many = |mark: Mark| points().filter(|point| point.mark == mark).count();
        let said = |many: usize, what: &str| match many {
            0 => None,
            1 => Some(format!("1 {what}")),
            many => Some(format!("{many} {what}s")),
        };
        let unknown = many(Mark::Unknown);
        let counts = [
            said(many(Mark::Error), "error"),
            said(many(Mark::Warning), "warning"),
            said(unknown, "point").map(|points| format!("{points} unknown")),
        ];
        let counts: Vec<_> = counts.into_iter().flatten().collect();
        let counts = match &counts[..] {
            [] => String::new(),
            counts => format!(": {}", counts.join(", ")),
        };
        let (colour, verdict) = match (works, unknown) {
            (Works::Yes, 0) => (AnsiColor::Green, "envoy-drainer works"),
            (Works::Yes, _) => (
                AnsiColor::Green,
                "envoy-drainer works, as far as it can be seen",
            ),
            (Works::No, _) => (AnsiColor::Red, "envoy-drainer does not work"),
            (Works::Unknown, _) => (
                AnsiColor::Cyan,
                "whether envoy-drainer works cannot be found out",
            ),
        };
        let mut sheet = Sheet::new(self.styled);
        sheet.styled(colour.on_default().bold(), verdict);
        sheet.push(&counts);
        sheet.into_text()
    }
}

fn is_like(one: &Point, other: &Point) -> bool {
    (one.name, one.mark) == (other.name, other.mark)
}

fn point(sheet: &mut Sheet, point: &Point) {
    let Point {
        name: _,
        mark,
        decides: _,
        about: _,
        message,
        remedy,
        commands,
    } = point;
    let (mark, colour) = match mark {
        Mark::Ok => ("✔", AnsiColor::Green),
        Mark::Warning => ("!", AnsiColor::Yellow),
        Mark::Error => ("✘", AnsiColor::Red),
        Mark::Unknown => ("?", AnsiColor::Cyan),
    };
    sheet.push("  ");
    sheet.styled(colour.on_default(), mark);
    sheet.push(" ");
    sheet.wrapped(TEXT_COLUMN, message);
    if let Some(remedy) = remedy {
        sheet.push("    → ");
        sheet.wrapped(TEXT_COLUMN + 2, remedy);
    }
    for command in commands {
        // Not wrapped: it is copied.
        sheet.push("      ");
        sheet.styled(Style::new().bold(), command);
        sheet.end_line();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(points: Vec<Point>) -> Section {
        Section {
            name: "pods",
            points,
        }
    }

    #[test]
    fn of_many_points_alike_a_few_are_shown_and_the_rest_is_counted() {
        let mut points = vec![Point::ok("injected", "1 pod has a drainer")];
        let warning = Point::warning("without-drainer", "no drainer").remedy("roll it");
        points.extend(vec![warning.clone(); MANY + 2]);
        let text = Page::new(false).section(&section(points));
        assert_eq!(
            text.matches("  ! no drainer\n    → roll it\n").count(),
            MANY
        );
        assert!(
            text.ends_with("    … and 2 more, which `-o json` shows\n\n"),
            "{text}"
        );
        let text = Page::new(false).section(&section(vec![warning; MANY]));
        assert!(!text.contains('…'), "{text}");
    }

    #[test]
    fn the_last_line_sums_up() {
        let (ok, warning, error) = (Point::ok, Point::warning, Point::error);
        let unknown = Point {
            mark: Mark::Unknown,
            ..ok("d", "")
        };
        let undecided = Point {
            decides: true,
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
            let works = Works::of(&sections);
            assert_eq!(Page::new(false).end(works, &sections), want);
        }
    }

    #[test]
    fn commands_are_never_wrapped() {
        let command = ["kubectl"; 20].join(" ");
        let point = Point::error("a", "wrong").command(&*command);
        let text = Page::new(false).section(&section(vec![point]));
        assert!(text.contains(&command), "{text}");
    }
}
