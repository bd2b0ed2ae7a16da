//! Compares the terminations with and without the drainer, and checks them against the expectations.

use drainer::Durations;
use tests::load::FailureKind;

use crate::screen::{BOLD, DIMMED, Screen, thousands};
use crate::shop::TerminationResult;

/// Minimum number of requests of each run; fewer make the comparison meaningless.
const MIN_REQUESTS: u64 = 5_000;

/// Minimum number of failed requests without the drainer; fewer mean that the load did not test the termination.
const MIN_FAILED_WITHOUT: u64 = 20;

/// Minimum ratio of the request rate that was reached to the one that was configured.
const MIN_RATE_RATIO: f64 = 0.95;

/// The pod's termination with the drainer and without it.
pub(crate) struct Comparison {
    pub(crate) with: TerminationResult,
    pub(crate) without: TerminationResult,
}

// === impl Comparison ===

impl Comparison {
    /// Returns a message for each expectation that was not met.
    pub(crate) fn failed_expectations(&self) -> Vec<String> {
        let Self { with, without } = self;
        let mut failures = Vec::new();
        let mut expect = |is_met: bool, failure: String| {
            if !is_met {
                failures.push(failure);
            }
        };
        for (name, result) in [("with", with), ("without", without)] {
            let (sent, reached) = (result.report.sent(), result.report.reached());
            expect(
                sent >= MIN_REQUESTS,
                format!("only {sent} requests were sent {name} the drainer"),
            );
            let percent = reached * 100.0;
            expect(
                reached >= MIN_RATE_RATIO,
                format!(
                    "clients reached only {percent:.0} % of the configured request rate {name} the drainer:\n{}",
                    result.report
                ),
            );
        }
        let failed = with.report.failed();
        expect(
            failed == 0,
            format!(
                "{failed} requests failed with the drainer:\n{}",
                with.report
            ),
        );
        let failed = without.report.failed();
        expect(
            failed >= MIN_FAILED_WITHOUT,
            format!("only {failed} requests failed without the drainer"),
        );
        for kind in [FailureKind::Refused, FailureKind::CutInFlight] {
            let occurred = without.report.failed_of_kind(kind) > 0;
            expect(
                occurred,
                format!("no request failed without the drainer as \"{kind}\""),
            );
        }
        failures
    }

    /// Prints both results as a table.
    pub(crate) fn print(&self, screen: &Screen) {
        let Self { with, without } = self;
        let format_row = |name: &str, with: &str, without: &str| {
            format!("   {name:<34}{with:>18}{without:>18}\n")
        };
        let row = |name: &str, format: &dyn Fn(&TerminationResult) -> String| {
            screen.print(&format_row(name, &format(with), &format(without)));
        };
        let header = format_row("", "with the drainer", "without");
        screen.print(&screen.styled(DIMMED, &header));
        row("requests sent (of configured rate)", &|result| {
            let report = &result.report;
            let percent = report.reached() * 100.0;
            format!("{} ({percent:.0} %)", thousands(report.sent()))
        });
        let failed = |result: &TerminationResult| thousands(result.report.failed());
        screen.print(&screen.styled(
            BOLD,
            &format_row("requests failed", &failed(with), &failed(without)),
        ));
        for kind in FailureKind::ALL {
            let count = |result: &TerminationResult| result.report.failed_of_kind(kind);
            // The kinds after `CutOnReused` occur only when something is wrong.
            if kind <= FailureKind::CutOnReused || count(with) + count(without) > 0 {
                row(&format!("  {kind}"), &|result| thousands(count(result)));
            }
        }
        row("connections open at SIGTERM", &|result| {
            result.open_connections.to_string()
        });
        row("duration of the termination", &|result| {
            format!("{:.1} s", result.elapsed.as_secs_f64())
        });
        let Durations {
            min_drain_duration,
            idle_exit,
            ..
        } = Durations::default();
        let idle = idle_exit.unwrap_or_default();
        screen.note(&format!(
            "\n   A drain lasts at least {min_drain_duration:?}, for clients that learn late of the termination, and until no
   request is in flight. Connections that stay idle for {idle:?} do not postpone the exit."
        ));
    }
}
