//! The report as text.

use std::collections::{BTreeMap, BTreeSet};

use admission::Cut;
use ctl::text::{PrintableText, cell, plural};
use load::FailureKind;

use crate::report::{DrillReport, PodReport};

/// Rows of cells, the first of which has the headings.
pub(super) type Table = Vec<Vec<String>>;

/// The report as text for a terminal.
pub(super) fn to_text(report: &DrillReport) -> PrintableText {
    let mut text = PrintableText::default();
    text.push_table(&client_table(report));
    for left_out in &report.left_out {
        text.push(format_args!("Left out: {left_out}"));
        text.end_line();
    }
    text.end_line();
    text.push_table(&pod_table(report));
    let lines = failure_lines(report);
    if !lines.is_empty() {
        text.end_line();
    }
    for line in lines {
        text.push(line);
        text.end_line();
    }
    text.end_line();
    text.push_wrapped(0, &verdict(report));
    text
}

/// One sentence on what was lost.
pub(super) fn verdict(report: &DrillReport) -> String {
    let (sent, disruption) = (report.sent, &report.subject.disruption);
    let lost = match report.failed {
        0 => format!("No request failed of {sent}"),
        failed => format!("{} failed of {sent}", plural(failed, "request")),
    };
    match report.settled_at {
        Some(at) => {
            let seconds = at - report.disrupted_at;
            format!("{lost} ({disruption}, complete {seconds:.0} s after its start).")
        }
        None => format!("Not complete in time: {disruption}. {lost}."),
    }
}

/// The number of failures of each kind, as in `1 refused, 2 cut in flight`.
pub(super) fn count_failures(failures: &BTreeMap<FailureKind, u64>) -> String {
    let counts = failures.iter();
    let counts = counts.map(|(kind, count)| format!("{count} {kind}"));
    counts.collect::<Vec<_>>().join(", ")
}

/// The requests by kind of client and of failure.
pub(super) fn client_table(report: &DrillReport) -> Table {
    let failures = report.failures();
    let heading = ["CLIENTS", "RATE", "SENT", "FAILED"];
    let mut heading: Vec<_> = heading.map(str::to_owned).into();
    heading.extend(failures.keys().map(|kind| kind.to_string().to_uppercase()));
    let rows = report.clients.iter().map(|client| {
        let mut row = vec![
            client.name.clone(),
            format!("{}/s", client.rate),
            client.sent.to_string(),
            client.failed.to_string(),
        ];
        row.extend(failures.keys().map(|kind| cell(client.failures.get(kind))));
        row
    });
    [heading].into_iter().chain(rows).collect()
}

/// The ends of pods.
pub(super) fn pod_table(report: &DrillReport) -> Table {
    let heading = [
        "POD",
        "DELETED AT",
        "GONE AFTER",
        "FAILED MEANWHILE",
        "DRAIN",
        "CUT BY DRAINER",
    ];
    let heading = heading.map(str::to_owned).into();
    let rows = report.pods.iter().map(|pod| {
        let gone_after = pod
            .gone_at
            .map(|at| format!("{:.1} s", at - pod.deleted_at));
        vec![
            pod.name.clone(),
            format!("{:.1} s", pod.deleted_at),
            cell(gone_after),
            pod.failed_meanwhile.to_string(),
            drain(pod),
            cut(pod),
        ]
    });
    [heading].into_iter().chain(rows).collect()
}

fn drain(pod: &PodReport) -> String {
    match (&pod.outcome, &pod.summary) {
        (Some(outcome), Some(summary)) => format!("{outcome} after {:.1} s", summary.seconds),
        (Some(outcome), None) => outcome.clone(),
        (None, _) => "no drainer".to_owned(),
    }
}

fn cut(pod: &PodReport) -> String {
    let cut = match (&pod.outcome, &pod.summary) {
        (_, Some(summary)) => Cut::of(summary),
        (Some(_), None) => Some(Cut::Unknown),
        (None, None) => None,
    };
    cell(cut)
}

/// A line with the failing seconds, and one for each of the first failures of a kind of clients that differ.
pub(super) fn failure_lines(report: &DrillReport) -> Vec<String> {
    let seconds = report.failing_seconds();
    let seconds: Vec<_> = seconds
        .map(|(second, failed)| format!("{failed} in second {second}"))
        .collect();
    let mut lines = Vec::new();
    if !seconds.is_empty() {
        lines.push(format!("Failed: {}", seconds.join(", ")));
    }
    if report.failed_later > 0 {
        let later = plural(report.failed_later, "request");
        lines.push(format!(
            "{later} failed more than a second after the last pod was gone"
        ));
    }
    for client in &report.clients {
        let mut known = BTreeSet::new();
        for sample in &client.first_failures {
            let failure = sample.failure.to_string();
            if known.insert(failure.clone()) {
                lines.push(format!("{} at {:.3} s: {failure}", client.name, sample.at));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn text_has_clients_pods_failures_and_the_verdict() {
        let want = "\
CLIENTS      RATE   SENT   FAILED   REFUSED   CUT IN FLIGHT
keep-alive   10/s   120    0        -         -
connect      10/s   120    3        1         2

POD      DELETED AT   GONE AFTER   FAILED MEANWHILE   DRAIN        CUT BY DRAINER
edge-a   2.1 s        2.9 s        0                  no drainer   -
edge-b   6.0 s        3.5 s        3                  no drainer   -

Failed: 2 in second 9, 1 in second 10
connect at 9.200 s: cut in flight: connection reset <by> \"peer\"

3 requests failed of 240 (rollout, complete 8 s after its start).
";
        assert_eq!(&*to_text(&sample()), want);
    }
}
