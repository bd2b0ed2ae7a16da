//! The two ends side by side, and what was promised of them.

use drainer::Durations;
use tests::load::FailureKind;

use crate::screen::{BOLD, DIMMED, Screen, thousands};
use crate::shop::TerminationResult;

/// So many requests each way, or the figures say little.
const MIN_REQUESTS: u64 = 5_000;

/// So many must fail without the drainer, or the test was no test.
const MIN_FAILED_WITHOUT: u64 = 20;

/// The least share of the rate asked for.
const MIN_RATE_RATIO: f64 = 0.95;

/// The pod's end with the drainer and without.
pub(crate) struct Comparison {
    pub(crate) with: TerminationResult,
    pub(crate) without: TerminationResult,
}

// === impl Outcome ===

impl Comparison {
    /// What was promised and did not come true.
    pub(crate) fn failed_expectations(&self) -> Vec<String> {
        let Self { with, without } = self;
        let mut broken = Vec::new();
        let mut promise = |kept: bool, what: String| {
            if !kept {
                broken.push(what);
            }
        };
        for (name, ending) in [("with", with), ("without", without)] {
            let (sent, reached) = (ending.report.sent(), ending.report.reached());
            promise(
                sent >= MIN_REQUESTS,
                format!("only {sent} requests were sent {name} the drainer"),
            );
            let share = reached * 100.0;
            promise(
                reached >= MIN_RATE_RATIO,
                format!(
                    "clients reached only {share:.0} % of their rate {name} the drainer:\n{}",
                    ending.report
                ),
            );
        }
        let failed = with.report.failed();
        promise(
            failed == 0,
            format!(
                "{failed} requests failed with the drainer:\n{}",
                with.report
            ),
        );
        let failed = without.report.failed();
        promise(
            failed >= MIN_FAILED_WITHOUT,
            format!("only {failed} requests failed without the drainer"),
        );
        for kind in [FailureKind::Refused, FailureKind::CutInFlight] {
            let some = without.report.failed_of_kind(kind) > 0;
            promise(some, format!("without the drainer none was {kind}"));
        }
        broken
    }

    /// Shows both in a table.
    pub(crate) fn print(&self, screen: &Screen) {
        let Self { with, without } = self;
        let line = |name: &str, with: &str, without: &str| {
            format!("   {name:<34}{with:>18}{without:>18}\n")
        };
        let row = |name: &str, of: &dyn Fn(&TerminationResult) -> String| {
            screen.print(&line(name, &of(with), &of(without)));
        };
        let header = line("", "with the drainer", "without");
        screen.print(&screen.styled(DIMMED, &header));
        row("requests (rate reached of asked)", &|ending| {
            let report = &ending.report;
            let percent = report.reached() * 100.0;
            format!("{} ({percent:.0} %)", thousands(report.sent()))
        });
        let failed = |ending: &TerminationResult| thousands(ending.report.failed());
        screen.print(&screen.styled(BOLD, &line("failed", &failed(with), &failed(without))));
        for kind in FailureKind::ALL {
            let count = |ending: &TerminationResult| ending.report.failed_of_kind(kind);
            // The last kinds do not come up unless something is wrong.
            if kind <= FailureKind::CutOnReused || count(with) + count(without) > 0 {
                row(&format!("  {kind}"), &|ending| thousands(count(ending)));
            }
        }
        row("connections open at SIGTERM", &|ending| {
            ending.open_connections.to_string()
        });
        row("the pod's end took", &|ending| {
            format!("{:.1} s", ending.elapsed.as_secs_f64())
        });
        let Durations {
            min_drain_duration: least,
            idle_exit,
            ..
        } = Durations::default();
        let idle = idle_exit.unwrap_or_default();
        screen.note(&format!(
            "\n   A drain lasts {least:?} at the least, for clients that learn late of the end, and as long as something
   is in flight. Connections that are only kept open it leaves behind after {idle:?} of silence."
        ));
    }
}
